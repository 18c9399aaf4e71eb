package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

const (
	maxStream = 64 << 20 // bytes of a streamed answer
	maxEvent  = 1 << 20  // bytes of one event in it
)

// ChatRequest asks for one streamed chat completion. Fields that are zero or nil are not sent.
type ChatRequest struct {
	Model               string
	Messages            []Message
	MaxTokens           int // the name of the limit that older servers know
	MaxCompletionTokens int // the name that newer models require
	Temperature         *float64
	IncludeUsage        bool // ask for a last chunk with the usage
}

// Message is one turn of a conversation. Role is system, user or assistant.
type Message struct {
	Role, Content string
}

// Chunk is one event of the answer.
type Chunk struct {
	Content, Refusal string
	FinishReason     string // stop, length, content_filter; empty before the end

	PromptTokens, CompletionTokens int // of the whole request; zero except in the last chunk
}

// ErrBrokenOff is the error of an answer without an end: a server whose model was killed ends the stream in order.
var ErrBrokenOff = errors.New("the answer broke off: it has no finish_reason")

// Chat yields the chunks of the answer as they arrive; an error ends it. Errors are a *StatusError, a *ConnectionError,
// a *json.SyntaxError, ErrTooLarge, ErrBrokenOff, or describe what is wrong with the answer.
func (c *Client) Chat(ctx context.Context, r ChatRequest) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		response, err := c.stream(ctx, r)
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		defer response.Body.Close()
		events := ssestream.NewDecoder(response)
		done, finished := false, false
		for events.Next() {
			data := bytes.TrimSuffix(events.Event().Data, []byte("\n"))
			done = done || string(data) == "[DONE]"
			switch {
			case done: // read to the end, so that the connection can be reused
			case len(data) > maxEvent:
				yield(Chunk{}, fmt.Errorf("read the answer: %w", errLongEvent))
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
		case done:
		case err != nil:
			yield(Chunk{}, fmt.Errorf("read the answer: %w", err))
		case !finished:
			yield(Chunk{}, ErrBrokenOff)
		}
	}
}

// stream returns the answer unread. The SDK's own stream takes `"error": null` and empty events for errors and closes
// the connection at [DONE].
func (c *Client) stream(ctx context.Context, r ChatRequest) (*http.Response, error) {
	var response *http.Response
	bounds := guard("text/event-stream", limits{maxStream, maxEvent})
	stream := c.chat.NewStreaming(ctx, r.params(), bounds, option.WithResponseInto(&response))
	if err := stream.Err(); err != nil {
		return nil, failure(ctx, err, "encode the request")
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
		return Chunk{}, fmt.Errorf("read the answer: %w", err)
	}
	if raw := c.JSON.ExtraFields["error"].Raw(); raw != "" && raw != "null" {
		fault := parseFault(json.RawMessage(raw))
		return Chunk{}, fmt.Errorf("the endpoint broke off: %s", stringOf(fault.Message))
	}
	chunk := Chunk{PromptTokens: int(c.Usage.PromptTokens), CompletionTokens: int(c.Usage.CompletionTokens)}
	if len(c.Choices) > 0 {
		first := c.Choices[0]
		chunk.Content, chunk.Refusal, chunk.FinishReason = first.Delta.Content, first.Delta.Refusal, first.FinishReason
	}
	return chunk, nil
}
