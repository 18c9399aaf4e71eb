package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/codefleet/codefleet/internal/sse"
)

const (
	maxStream = 64 << 20 // bytes of a streamed answer
	maxEvent  = 1 << 20  // bytes of one event in it
)

// ChatRequest asks for one streamed chat completion. What is zero or nil is not sent.
type ChatRequest struct {
	Model               string         `json:"model"`
	Messages            []Message      `json:"messages"`
	MaxTokens           int            `json:"max_tokens,omitempty"`            // the name that older servers know
	MaxCompletionTokens int            `json:"max_completion_tokens,omitempty"` // the name that newer models want
	Temperature         *float64       `json:"temperature,omitempty"`
	StreamOptions       *StreamOptions `json:"stream_options,omitempty"`
}

// Message is one turn of a conversation. Role is system, user or assistant.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// StreamOptions ask for a last chunk with the usage.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// Chunk is one event of the answer.
type Chunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
			Refusal string `json:"refusal"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"` // stop, length, content_filter; empty before the end
	} `json:"choices"`
	Usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"` // zero but in the last chunk
	Error json.RawMessage `json:"error"`
}

// ErrBrokenOff is the error of an answer that just stops: a server whose model was killed ends the stream in order.
var ErrBrokenOff = errors.New("the answer broke off: it has no finish_reason")

// Chat yields the answer's chunks as they arrive; an error ends it. Errors are a *StatusError, a *ConnectionError, a
// *json.SyntaxError, ErrBrokenOff, or what is wrong with the answer.
func (c *Client) Chat(ctx context.Context, r ChatRequest) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		request := struct {
			ChatRequest
			Stream bool `json:"stream"`
		}{r, true}
		body, err := c.post(ctx, "chat/completions", "text/event-stream", request, maxStream)
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		defer body.Close()
		done, finished := false, false
		for event, err := range sse.Read(body, maxEvent) {
			done = done || string(event.Data) == "[DONE]"
			switch {
			case done && err == nil: // to the end, so that the connection can be used again
			case done:
				return
			case err != nil:
				yield(Chunk{}, fmt.Errorf("read the answer: %w", err))
				return
			case len(event.Data) > 0: // else it only keeps the connection
				chunk, err := parseChunk(event.Data)
				finished = finished || len(chunk.Choices) > 0 && chunk.Choices[0].FinishReason != ""
				if !yield(chunk, err) || err != nil {
					return
				}
			}
		}
		if !done && !finished {
			yield(Chunk{}, ErrBrokenOff)
		}
	}
}

func parseChunk(data []byte) (Chunk, error) {
	var chunk Chunk
	if err := json.Unmarshal(data, &chunk); err != nil {
		return Chunk{}, fmt.Errorf("read the answer: %w", err)
	}
	if len(chunk.Error) > 0 && string(chunk.Error) != "null" {
		return Chunk{}, fmt.Errorf("the endpoint broke off: %s", text(faultOf(chunk.Error).Message))
	}
	return chunk, nil
}
