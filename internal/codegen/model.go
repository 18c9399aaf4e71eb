package codegen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

// Model is a language model behind some protocol. *OpenAI implements it.
type Model interface {
	// Complete answers a conversation with at most limit tokens. progress, which may be nil, receives the text as it
	// arrives. The error is a *ModelError unless ctx ended. Complete makes one attempt: the caller retries.
	Complete(ctx context.Context, messages []Message, limit int, progress func(string)) (Answer, error)
	Name() string
}

// Answer is the answer of a model.
type Answer struct {
	Text  string
	Cut   bool // the answer reached the limit
	Usage Usage
}

// Usage counts the model tokens of a task, over all its calls.
type Usage struct {
	Model            string
	PromptTokens     int
	CompletionTokens int
	Estimated        bool // counted by Tokens: the endpoint did not report them
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
	Unauthorised Kind = errcode.ModelUnauthorised // 401, 403: the key
	UnknownModel Kind = errcode.ModelUnknown      // 404: model, deployment or URL
	RateLimited  Kind = errcode.ModelRateLimited  // 429
	Unavailable  Kind = errcode.ModelUnavailable  // 5xx, no connection
	BadRequest   Kind = errcode.ModelBadRequest   // other 4xx
	TimedOut     Kind = errcode.ModelTimeout      // no complete answer in time
	BadAnswer    Kind = errcode.ModelBadAnswer    // not an answer of the protocol
	Refused      Kind = errcode.ModelRefused      // a refusal or a content filter
	NoProgram    Kind = errcode.ModelNoProgram    // empty, prose, another language
	TooLong      Kind = errcode.ModelTooLong      // the answer was cut
	OverBudget   Kind = errcode.ModelOverBudget   // the tokens of the task or tenant are spent
)

// ModelError reports why a model wrote no program. It contains no key and no URL.
type ModelError struct {
	Kind       Kind
	Status     int // of HTTP; 0 without an answer
	Message    string
	RetryAfter time.Duration // as the endpoint requested; 0 when it did not
}

func (e *ModelError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (%d): %s", e.Kind, e.Status, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Kind, e.Message)
}

// remedies name the setting to check, for errors that no retry mends.
var remedies = map[Kind]string{
	Unauthorised: " (check the key of the model: codefleet config show says where it comes from)",
	UnknownModel: " (check the name of the model or deployment, and the address: codefleet config show)",
}

// explain returns the error's text with its remedy.
func explain(err error) string {
	if e, ok := errors.AsType[*ModelError](err); ok {
		return err.Error() + remedies[e.Kind]
	}
	return err.Error()
}

// retryable reports whether another attempt may succeed.
func (e *ModelError) retryable() bool {
	return e.Kind == RateLimited || e.Kind == Unavailable || e.Kind == BadAnswer
}

// Budget bounds the tokens of a task or a tenant. It is safe for concurrent use; a nil Budget has no bound.
type Budget struct {
	mu    sync.Mutex
	limit int
	used  int
}

// NewBudget returns a budget of limit tokens.
func NewBudget(limit int) *Budget { return &Budget{limit: limit} }

// Left returns the tokens that are not spent or reserved.
func (b *Budget) Left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit - b.used
}

// reserve sets tokens aside for a call; false when fewer are left.
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

// charge replaces a reservation by the tokens that the call spent.
func (b *Budget) charge(reserved, spent int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += spent - reserved
}
