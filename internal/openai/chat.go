package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

const (
	maxStream = 64 << 20 // bytes of a streamed response
	maxEvent  = 1 << 20  // bytes of one event
)

// ChatRequest asks for one streamed chat completion. Fields that are zero or nil are not sent.
type ChatRequest struct {
	Model               string
	Messages            []Message
	MaxTokens           int // the limit, for older servers
	MaxCompletionTokens int // the limit, for newer models
	Temperature         *float64
	IncludeUsage        bool // requests a last chunk with the usage
}

// Message is one turn of a conversation. Role is system, user or assistant.
type Message struct {
	Role, Content string
}

// Chunk is one event of a response.
type Chunk struct {
	Content, Refusal string
	FinishReason     string // such as stop, length or content_filter; empty before the end

	PromptTokens, CompletionTokens int // tokens of the whole request; zero except in the last chunk
}

// ErrIncomplete means that a stream ended with neither a finish_reason nor [DONE]. Reading such a stream may give no
// error: a server whose model was killed may end its response as usual.
var ErrIncomplete = errors.New("the response is incomplete: it has no finish_reason")

// Chat yields the chunks of the response as they arrive. An error ends the sequence. It is a *StatusError, a
// *ConnectionError, a *json.SyntaxError, ErrTooLarge, ErrIncomplete, an error of reading the response (such as that of
// ctx), or a description of a wrong response.
func (c *Client) Chat(ctx context.Context, r ChatRequest) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		response, err := c.stream(ctx, r)
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		defer response.Body.Close()
		events := ssestream.NewDecoder(response)
		finished := false
		for events.Next() {
			data := bytes.TrimSuffix(events.Event().Data, []byte("\n"))
			switch {
			case string(data) == "[DONE]":
				drain(response.Body)
				return
			case len(data) > maxEvent:
				yield(Chunk{}, fmt.Errorf("read the response: %w", errLongEvent))
				return
			case len(data) > 0: // an empty event keeps the connection alive
				chunk, err := parseChunk(data)
				finished = finished || chunk.FinishReason != ""
				if !yield(chunk, err) || err != nil {
					return
				}
			}
		}
		switch err := events.Err(); {
		case err != nil:
			yield(Chunk{}, fmt.Errorf("read the response: %w", err))
		case !finished:
			yield(Chunk{}, ErrIncomplete)
		}
	}
}

// stream returns the response with an unread body. It does not use the SDK's stream, which treats `"error": null` and
// empty events as errors.
func (c *Client) stream(ctx context.Context, r ChatRequest) (*http.Response, error) {
	var response *http.Response
	bounds := guard("text/event-stream", limits{maxStream, maxEvent})
	stream := c.chat.NewStreaming(ctx, r.params(), bounds, option.WithResponseInto(&response))
	if err := stream.Err(); err != nil {
		return nil, requestError(ctx, err, "encode the request")
	}
	return response, nil
}

func (r ChatRequest) params() sdk.ChatCompletionNewParams {
	p := sdk.ChatCompletionNewParams{Model: r.Model, Messages: []sdk.ChatCompletionMessageParamUnion{}}
	for _, m := range r.Messages {
		switch m.Role {
		case "system":
			p.Messages = append(p.Messages, sdk.SystemMessage(m.Content))
		case "assistant":
			p.Messages = append(p.Messages, sdk.AssistantMessage(m.Content))
		default:
			p.Messages = append(p.Messages, sdk.UserMessage(m.Content))
		}
	}
	if r.MaxTokens > 0 {
		p.MaxTokens = param.NewOpt(int64(r.MaxTokens))
	}
	if r.MaxCompletionTokens > 0 {
		p.MaxCompletionTokens = param.NewOpt(int64(r.MaxCompletionTokens))
	}
	if r.Temperature != nil {
		p.Temperature = param.NewOpt(*r.Temperature)
	}
	if r.IncludeUsage {
		p.StreamOptions.IncludeUsage = param.NewOpt(true)
	}
	return p
}

func parseChunk(data []byte) (Chunk, error) {
	var c sdk.ChatCompletionChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return Chunk{}, fmt.Errorf("read the response: %w", err)
	}
	if raw := c.JSON.ExtraFields["error"].Raw(); raw != "" && raw != "null" {
		body := parseErrorBody(json.RawMessage(raw))
		return Chunk{}, fmt.Errorf("the endpoint ended the response with an error: %s", stringOf(body.Message))
	}
	chunk := Chunk{PromptTokens: int(c.Usage.PromptTokens), CompletionTokens: int(c.Usage.CompletionTokens)}
	if len(c.Choices) > 0 {
		first := c.Choices[0]
		chunk.Content, chunk.Refusal, chunk.FinishReason = first.Delta.Content, first.Delta.Refusal, first.FinishReason
	}
	return chunk, nil
}

// drain reads the rest of a body that should have none, so that the connection can be used again. An endpoint may keep
// the response open, so drain closes the body after drainTime.
func drain(body io.ReadCloser) {
	const drainTime, maxRest = 100 * time.Millisecond, 4 << 10
	stop := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer stop.Stop()
	_, _ = io.CopyN(io.Discard, body, maxRest)
}
