package codegen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

// Model is a language model behind some wire. *OpenAI is one.
type Model interface {
	// Complete answers a conversation. progress gets the text as it arrives; it may be nil. The error is a *ModelError
	// except when ctx ended. One call is one attempt: Complete does not retry what the endpoint turned down for load.
	Complete(ctx context.Context, messages []Message, limit int, progress func(string)) (Answer, error)
	Name() string
}

// Answer is what a model said.
type Answer struct {
	Text  string
	Cut   bool // the model ran into the limit
	Usage Usage
}

// Usage counts model tokens, over all calls for a task.
type Usage struct {
	Model            string
	PromptTokens     int
	CompletionTokens int
	Estimated        bool // counted by Tokens: the endpoint did not say
}

func (u *Usage) add(o Usage) {
	u.Model = o.Model
	u.PromptTokens += o.PromptTokens
	u.CompletionTokens += o.CompletionTokens
	u.Estimated = u.Estimated || o.Estimated
}

// Kind says why a model gave no program.
type Kind string

// The kinds of a ModelError; the strings are error codes.
const (
	Unauthorised Kind = errcode.ModelUnauthorised // 401, 403: the key
	UnknownModel Kind = errcode.ModelUnknown      // 404: model, deployment or URL
	RateLimited  Kind = errcode.ModelRateLimited  // 429
	Unavailable  Kind = errcode.ModelUnavailable  // 5xx, no connection
	BadRequest   Kind = errcode.ModelBadRequest   // other 4xx
	TimedOut     Kind = errcode.ModelTimeout      // no whole answer within the time
	BadAnswer    Kind = errcode.ModelBadAnswer    // not the protocol
	Refused      Kind = errcode.ModelRefused      // a refusal or a content filter
	NoProgram    Kind = errcode.ModelNoProgram    // nothing, prose, another language
	TooLong      Kind = errcode.ModelTooLong      // the answer was cut
	OverBudget   Kind = errcode.ModelOverBudget   // the task's or tenant's tokens are used up
)

// ModelError says why a model gave no program. It holds no key and no URL.
type ModelError struct {
	Kind       Kind
	Status     int // of HTTP, 0 without
	Message    string
	RetryAfter time.Duration // as the endpoint asked, 0 when it did not
}

func (e *ModelError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (%d): %s", e.Kind, e.Status, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Kind, e.Message)
}

// remedies say what to look at when an error stays until somebody changes a setting.
var remedies = map[Kind]string{
	Unauthorised: " (check the key of the model: codefleet config show says where it comes from)",
	UnknownModel: " (check the name of the model or deployment, and the address: codefleet config show)",
}

// explain is the error with its remedy.
func explain(err error) string {
	if e, ok := errors.AsType[*ModelError](err); ok {
		return err.Error() + remedies[e.Kind]
	}
	return err.Error()
}

// again tells whether asking once more may help.
func (e *ModelError) again() bool {
	return e.Kind == RateLimited || e.Kind == Unavailable || e.Kind == BadAnswer
}

// Budget bounds the tokens of a task or a tenant. It may be shared; a nil Budget is unbounded.
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

// reserve takes tokens before a call; false when there are not as many.
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

// settle replaces a reservation by what the call really took.
func (b *Budget) settle(reserved, spent int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += spent - reserved
}
