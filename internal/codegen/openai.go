package codegen

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/openai"
)

// OpenAIOptions describe a chat endpoint. With a Deployment it is an Azure OpenAI resource, otherwise OpenAI itself or
// any server that implements its protocol. The environment is not read.
type OpenAIOptions struct {
	BaseURL     string // the default is OpenAI's; for Azure the resource's endpoint
	APIKey      string
	Model       string   // for Azure only a label; the default is Deployment
	Deployment  string   // only for Azure
	APIVersion  string   // only for Azure; the default is 2024-10-21
	Temperature *float64 // nil means the model's default
	Client      *http.Client
}

// OpenAI is a Model that is reached by streamed chat completions. It learns from refused requests which parameters the
// endpoint accepts.
type OpenAI struct {
	client *openai.Client
	opts   OpenAIOptions

	mu     sync.Mutex
	params parameters
}

// parameters says which request parameters an endpoint accepts.
type parameters struct {
	oldLimit      bool // it accepts max_tokens instead of max_completion_tokens
	noTemperature bool
	noUsage       bool // it does not accept stream_options
}

const maxResponse = 256 << 10 // bytes; a longer response is truncated

// NewOpenAI checks the options. It sends no request.
func NewOpenAI(o OpenAIOptions) (*OpenAI, error) {
	o.Model = cmp.Or(o.Model, o.Deployment)
	if o.Model == "" {
		return nil, errors.New("the model has no name")
	}
	client, err := openai.New(openai.Endpoint{
		BaseURL: o.BaseURL, APIKey: o.APIKey, Deployment: o.Deployment, APIVersion: o.APIVersion, Client: o.Client,
	})
	if err != nil {
		return nil, err
	}
	m := &OpenAI{client: client, opts: o}
	m.params.oldLimit = o.Deployment == "" && o.BaseURL != "" // most other servers only know the old name
	return m, nil
}

// Name implements Model.
func (m *OpenAI) Name() string { return m.opts.Model }

// Complete implements Model. A parameter that the endpoint refuses costs one more request, and only once: the
// parameters of a successful request are remembered.
func (m *OpenAI) Complete(
	ctx context.Context, messages []Message, limit int, progress func(string),
) (Completion, error) {
	m.mu.Lock()
	params := m.params
	m.mu.Unlock()
	for tries := 0; ; tries++ {
		completion, err := m.stream(ctx, m.request(messages, limit, params), progress)
		if err == nil {
			m.mu.Lock()
			m.params = params
			m.mu.Unlock()
			return completion, nil
		}
		next, ok := adapt(params, err)
		if !ok || tries == 3 {
			return completion, modelError(ctx, err)
		}
		params = next
	}
}

func (m *OpenAI) request(messages []Message, limit int, params parameters) openai.ChatRequest {
	r := openai.ChatRequest{Model: m.opts.Model, IncludeUsage: !params.noUsage}
	for _, message := range messages {
		r.Messages = append(r.Messages, openai.Message{Role: message.Role, Content: message.Text})
	}
	if params.oldLimit {
		r.MaxTokens = limit
	} else {
		r.MaxCompletionTokens = limit
	}
	if !params.noTemperature {
		r.Temperature = m.opts.Temperature
	}
	return r
}

// stream sends one request. After an error, the completion has the text and the usage that were received.
func (m *OpenAI) stream(ctx context.Context, request openai.ChatRequest, progress func(string)) (Completion, error) {
	var text, refusal strings.Builder
	completion := Completion{Usage: Usage{Model: m.opts.Model}}
	for chunk, err := range m.client.Chat(ctx, request) {
		if err != nil {
			completion.Text = text.String()
			return completion, err
		}
		if chunk.PromptTokens > 0 {
			completion.Usage.PromptTokens = chunk.PromptTokens
			completion.Usage.CompletionTokens = chunk.CompletionTokens
		}
		text.WriteString(chunk.Content)
		refusal.WriteString(chunk.Refusal)
		if progress != nil && chunk.Content != "" {
			progress(chunk.Content)
		}
		completion.Truncated = completion.Truncated || chunk.FinishReason == "length"
		if chunk.FinishReason == "content_filter" {
			refusal.WriteString("the endpoint's content filter stopped the response")
		}
		if text.Len()+refusal.Len() > maxResponse {
			completion.Truncated = true
			break
		}
	}
	completion.Text = text.String()
	if refusal.Len() > 0 {
		return completion, &ModelError{Kind: Refused, Message: excerpt(refusal.String())}
	}
	return completion, nil
}

// adapt returns the parameters for the next request after one was refused, and false if other parameters cannot help.
// If the error names no parameter, the next request uses the limit's other name and omits stream_options, once.
func adapt(params parameters, err error) (parameters, bool) {
	api, ok := errors.AsType[*openai.StatusError](err)
	if !ok || api.Status != http.StatusBadRequest && api.Status != http.StatusUnprocessableEntity {
		return params, false
	}
	next := params
	switch refusedParam(api) {
	case "max_tokens":
		next.oldLimit = false
	case "max_completion_tokens":
		next.oldLimit = true
	case "temperature":
		next.noTemperature = true
	case "stream_options", "stream_options.include_usage":
		next.noUsage = true
	case "":
		next.oldLimit, next.noUsage = !params.oldLimit, true
		return next, !params.noUsage && api.Code != "content_filter"
	}
	return next, next != params
}

// refusedParam returns the parameter that an error names: in its field, or otherwise first in its message.
func refusedParam(api *openai.StatusError) (param string) {
	if api.Param != "" {
		return api.Param
	}
	first := len(api.Message)
	for _, name := range []string{"max_tokens", "max_completion_tokens", "temperature", "stream_options"} {
		if at := strings.Index(api.Message, name); at >= 0 && at < first {
			param, first = name, at
		}
	}
	return param
}

// modelError converts an error to a *ModelError, or to the error of ctx if ctx was cancelled. An endpoint's message may
// repeat the key, so only safe parts are kept.
func modelError(ctx context.Context, err error) error {
	if failed, ok := errors.AsType[*ModelError](err); ok {
		return failed
	}
	if api, ok := errors.AsType[*openai.StatusError](err); ok {
		return statusError(api)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &ModelError{Kind: TimedOut, Message: "no complete response in time"}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if lost, ok := errors.AsType[*openai.ConnectionError](err); ok {
		return &ModelError{Kind: Unavailable, Message: lost.Error()}
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return &ModelError{Kind: BadResponse, Message: "the response is not valid JSON"}
	}
	return &ModelError{Kind: BadResponse, Message: "the response is incomplete or violates the protocol: " +
		excerpt(redact(err.Error()))}
}

func statusError(api *openai.StatusError) *ModelError {
	e := &ModelError{
		Status: api.Status, RetryAfter: retryAfter(api.Header, time.Now()),
		Message: cmp.Or(excerpt(redact(api.Message)), http.StatusText(api.Status)),
	}
	switch code := api.Status; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		// The endpoint's message repeats a part of the key.
		e.Kind, e.Message = Unauthorised, "the endpoint does not accept the key"
	case code == http.StatusNotFound:
		e.Kind = UnknownModel
	case code == http.StatusTooManyRequests && api.Code == "insufficient_quota":
		e.Kind = OverBudget
	case code == http.StatusTooManyRequests:
		e.Kind = RateLimited
	case code >= 500 || code == http.StatusRequestTimeout:
		e.Kind = Unavailable
	case api.Code == "content_filter":
		e.Kind = Refused
	case api.Code == "context_length_exceeded" || code == http.StatusRequestEntityTooLarge:
		e.Kind = TooLong
	default:
		e.Kind = BadRequest
	}
	return e
}

// redact replaces the words of a message that look like a key or a URL.
func redact(s string) string {
	words := strings.Fields(s)
	for i, w := range words {
		if strings.HasPrefix(w, "sk-") || strings.Contains(w, "://") || len(w) > 30 && !strings.ContainsAny(w, "_.'/") {
			words[i] = "…"
		}
	}
	return strings.Join(words, " ")
}

// retryAfter returns the delay that an endpoint requests in milliseconds, in seconds or as a date. It returns 0 if the
// endpoint requests none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 && seconds < 1e6 {
		return time.Duration(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
