package codegen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
)

// WriterOptions are the settings of a Writer. Zero values mean the defaults.
type WriterOptions struct {
	MaxTokens int           // limit of one response; the default is 4,000
	Timeout   time.Duration // for one program with all retries; the default is 60 s
	Attempts  int           // for one program, if the endpoint is busy or down; the default is 3

	// Backoff is the delay before the second attempt. It doubles with every attempt. A longer Retry-After of the
	// endpoint takes precedence. The default is 500 ms.
	Backoff time.Duration
}

// Writer writes programs with a model. It is safe for concurrent use.
type Writer struct {
	model Model
	opts  WriterOptions
}

// NewWriter returns a writer that asks m.
func NewWriter(m Model, o WriterOptions) *Writer {
	o.MaxTokens = cmp.Or(o.MaxTokens, 4000)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.Attempts = cmp.Or(o.Attempts, 3)
	o.Backoff = cmp.Or(o.Backoff, 500*time.Millisecond)
	return &Writer{model: m, opts: o}
}

// Call holds the parameters of one Write or Repair besides the request.
type Call struct {
	Progress func(string) // receives the response as it arrives; may be nil
	Budgets  []*Budget    // the task's and the tenant's
	Private  Privacy      // the zero value changes nothing
}

// Privacy keeps private values from the model. Nil functions change nothing.
type Privacy struct {
	// Hide replaces values in texts and JSON values with tokens.
	Hide func(ctx context.Context, texts ...string) []string
	// Restore replaces tokens in the model's program with values.
	Restore func(program string) string
}

// HideIn returns the request with tokens in place of values. The names of modules and functions stay.
func (p Privacy) HideIn(ctx context.Context, r Request) Request {
	if p.Hide == nil {
		return r
	}
	r.Files, r.Skills, r.Tools = slices.Clone(r.Files), slices.Clone(r.Skills), slices.Clone(r.Tools)
	texts := pointers([]*string{&r.Task, &r.Inputs}, r.Files)
	for i := range r.Skills {
		texts = append(texts, &r.Skills[i].Signature, &r.Skills[i].Description)
	}
	params := make([]string, len(r.Tools))
	for i := range r.Tools {
		t := &r.Tools[i]
		t.Signature, params[i], _ = strings.Cut(t.Stub(), "(")
		texts = append(texts, &params[i], &t.Doc)
	}
	p.hideAll(ctx, texts)
	for i := range r.Tools {
		r.Tools[i].Signature += "(" + params[i]
	}
	return r
}

func (p Privacy) hideInFailure(ctx context.Context, f Failure) Failure {
	if p.Hide == nil {
		return f
	}
	f.Done = slices.Clone(f.Done)
	p.hideAll(ctx, pointers([]*string{&f.Program, &f.Error}, f.Done))
	return f
}

// hideAll hides the texts at once, because each call may be a request to a recognizer.
func (p Privacy) hideAll(ctx context.Context, texts []*string) {
	values := make([]string, len(texts))
	for i, t := range texts {
		values[i] = *t
	}
	for i, hidden := range p.Hide(ctx, values...) {
		*texts[i] = hidden
	}
}

// pointers returns list with a pointer to each text.
func pointers(list []*string, texts []string) []*string {
	for i := range texts {
		list = append(list, &texts[i])
	}
	return list
}

// Write asks for a program. The error is a *ModelError or the error of ctx; the Program then holds the usage so far.
func (w *Writer) Write(ctx context.Context, r Request, c Call) (Program, error) {
	messages, err := Messages(c.Private.HideIn(ctx, r))
	if err != nil {
		return Program{}, err
	}
	return w.ask(ctx, messages, c)
}

// Repair asks for a corrected program after one failed. The caller limits the number of repairs. Errors are as in
// Write.
func (w *Writer) Repair(ctx context.Context, r Request, f Failure, c Call) (Program, error) {
	messages, err := RepairMessages(c.Private.HideIn(ctx, r), c.Private.hideInFailure(ctx, f))
	if err != nil {
		return Program{}, err
	}
	return w.ask(ctx, messages, c)
}

// Rules writes a program without a model. rules.Write implements it.
type Rules func(Request) (Program, error)

// Generate asks the writer for a program. If w is nil or fails, it asks the rules; after a failure Program.Fallback
// says why. If the rules fail too, the error is their *CodeRequiredError, joined with the writer's error. If ctx ends,
// Generate returns without asking the rules.
func Generate(ctx context.Context, w *Writer, rules Rules, r Request, c Call) (Program, error) {
	if w == nil {
		return rules(r)
	}
	program, err := w.Write(ctx, r, c)
	if err == nil || ctx.Err() != nil {
		return program, err
	}
	fallback, rulesErr := rules(r)
	fallback.Usage, fallback.Fallback = program.Usage, explain(err)
	if rulesErr != nil {
		return fallback, errors.Join(rulesErr, err)
	}
	return fallback, nil
}

// ask sends the messages to the model and returns the program in its response, with private values restored.
func (w *Writer) ask(ctx context.Context, messages []Message, c Call) (Program, error) {
	bounded, cancel := context.WithTimeout(ctx, w.opts.Timeout)
	defer cancel()
	program := Program{By: ByModel, Usage: Usage{Model: w.model.Name()}}
	completion, err := w.complete(bounded, messages, c, &program.Usage)
	if err != nil {
		if ctx.Err() == nil && bounded.Err() != nil {
			err = w.timeout(err)
		}
		return program, err
	}
	if completion.Truncated {
		message := fmt.Sprintf("the response was truncated after %d tokens", completion.Usage.CompletionTokens)
		return program, &ModelError{Kind: TooLong, Message: message}
	}
	program.Code, err = Extract(completion.Text)
	if c.Private.Restore != nil {
		program.Code = c.Private.Restore(program.Code)
	}
	return program, err
}

// timeout returns the error for a program that was not written in time. last is the error of the last attempt.
func (w *Writer) timeout(last error) *ModelError {
	message := fmt.Sprintf("no program within %s", w.opts.Timeout)
	if failed, ok := errors.AsType[*ModelError](last); ok && failed.Kind != TimedOut {
		message += "; last attempt: " + last.Error()
	}
	return &ModelError{Kind: TimedOut, Message: message}
}

// complete repeats attempts until one succeeds, the error is final, or the attempts, the time or a budget are used up.
// It adds the tokens of all attempts to usage.
func (w *Writer) complete(ctx context.Context, messages []Message, c Call, usage *Usage) (Completion, error) {
	prompt := 0
	for _, m := range messages {
		prompt += Tokens(m.Text) + 4
	}
	wait := w.opts.Backoff
	for attempt := 1; ; attempt++ {
		completion, err := w.attempt(ctx, messages, prompt, c)
		usage.add(completion.Usage)
		failed, ok := errors.AsType[*ModelError](err)
		if !ok || !failed.retryable() || attempt == w.opts.Attempts {
			return completion, err
		}
		delay := max(wait, failed.RetryAfter)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
			return completion, err // a retry would miss the deadline: report the cause now
		}
		if clock.Sleep(ctx, delay) != nil {
			return completion, err
		}
		wait *= 2
	}
}

// attempt calls the model once, within the budgets. prompt is the size of the messages in tokens.
func (w *Writer) attempt(ctx context.Context, messages []Message, prompt int, c Call) (Completion, error) {
	if err := ctx.Err(); err != nil { // no request is sent, so the provider bills nothing
		return Completion{Usage: Usage{Model: w.model.Name()}}, err
	}
	reserved := prompt + w.opts.MaxTokens
	for i, b := range c.Budgets {
		if b.reserve(reserved) {
			continue
		}
		for _, earlier := range c.Budgets[:i] {
			earlier.charge(reserved, 0)
		}
		message := fmt.Sprintf("the call may need %d tokens; the budget has %d left", reserved, b.Left())
		return Completion{Usage: Usage{Model: w.model.Name()}}, &ModelError{Kind: OverBudget, Message: message}
	}
	completion, err := w.model.Complete(ctx, messages, w.opts.MaxTokens, c.Progress)
	u := &completion.Usage
	u.Model = w.model.Name()
	if u.PromptTokens == 0 && billed(err) {
		u.PromptTokens, u.CompletionTokens, u.Estimated = prompt, Tokens(completion.Text), true
	}
	for _, b := range c.Budgets {
		b.charge(reserved, u.PromptTokens+u.CompletionTokens)
	}
	return completion, err
}

// billed reports whether the model may have begun to respond to a request: the provider then bills the prompt, whatever
// the outcome, also if the task was cancelled meanwhile.
func billed(err error) bool {
	failed, ok := errors.AsType[*ModelError](err)
	return err == nil || errors.Is(err, context.Canceled) ||
		ok && (failed.Kind == TimedOut || failed.Kind == BadResponse || failed.Kind == Refused)
}
