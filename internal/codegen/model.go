package codegen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

// Model is a language model. *OpenAI implements it.
type Model interface {
	// Complete continues a conversation by at most limit tokens. progress, which may be nil, receives the text as it
	// arrives. The error is a *ModelError unless ctx was cancelled; the Completion then has what was received. Complete
	// does not retry.
	Complete(ctx context.Context, messages []Message, limit int, progress func(string)) (Completion, error)
	Name() string
}

// Completion is a model's response.
type Completion struct {
	Text      string
	Truncated bool // the response reached its limit
	Usage     Usage
}

// Usage counts the model tokens of one or several requests.
type Usage struct {
	Model            string
	PromptTokens     int
	CompletionTokens int
	Estimated        bool // some of the tokens were counted by Tokens, because the endpoint did not report them
}

func (u *Usage) add(o Usage) {
	u.Model = o.Model
	u.PromptTokens += o.PromptTokens
	u.CompletionTokens += o.CompletionTokens
	u.Estimated = u.Estimated || o.Estimated
}

// Kind is the cause of a ModelError.
type Kind string

// The kinds of a ModelError; the strings are error codes.
const (
	Unauthorised Kind = errcode.ModelUnauthorised // 401, 403: the key is wrong
	UnknownModel Kind = errcode.ModelUnknown      // 404: the model, the deployment or the URL is wrong
	RateLimited  Kind = errcode.ModelRateLimited  // 429
	Unavailable  Kind = errcode.ModelUnavailable  // 5xx, 408, or no connection
	BadRequest   Kind = errcode.ModelBadRequest   // another 4xx
	TimedOut     Kind = errcode.ModelTimeout      // no complete response in time
	BadResponse  Kind = errcode.ModelBadResponse  // a response that is incomplete or violates the protocol
	Refused      Kind = errcode.ModelRefused      // the model or a content filter refused
	NoProgram    Kind = errcode.ModelNoProgram    // an empty response, prose, or another language
	TooLong      Kind = errcode.ModelTooLong      // the response was truncated, or the prompt is too long
	OverBudget   Kind = errcode.ModelOverBudget   // the budget of the task, the tenant or the account is spent
)

// ModelError reports why a model wrote no program. It contains no key and no URL.
type ModelError struct {
	Kind       Kind
	Status     int // the HTTP status; 0 without a response
	Message    string
	RetryAfter time.Duration // the delay that the endpoint requested; 0 if it requested none
}

func (e *ModelError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (%d): %s", e.Kind, e.Status, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Kind, e.Message)
}

// remedies name the setting to check, for errors that a retry does not fix.
var remedies = map[Kind]string{
	Unauthorised: " (check the model's key in the settings llm)",
	UnknownModel: " (check the name of the model or deployment, and the address, in the settings llm)",
}

// explain returns the error's text with its remedy.
func explain(err error) string {
	if e, ok := errors.AsType[*ModelError](err); ok {
		return err.Error() + remedies[e.Kind]
	}
	return err.Error()
}

// retryable reports whether the same request may succeed later.
func (e *ModelError) retryable() bool {
	return e.Kind == RateLimited || e.Kind == Unavailable || e.Kind == BadResponse
}

// Budget limits the tokens of a task or a tenant. It is safe for concurrent use. A nil Budget has no limit.
type Budget struct {
	mu    sync.Mutex
	limit int
	used  int
}

// NewBudget returns a budget of limit tokens.
func NewBudget(limit int) *Budget { return &Budget{limit: limit} }

// Left returns the tokens that are neither spent nor reserved. b must not be nil.
func (b *Budget) Left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit - b.used
}

// reserve sets tokens aside for a request. It returns false if fewer tokens are left.
func (b *Budget) reserve(tokens int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+tokens > b.limit {
		return false
	}
	b.used += tokens
	return true
}

// charge replaces a reservation with the tokens that the request spent.
func (b *Budget) charge(reserved, spent int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += spent - reserved
}
