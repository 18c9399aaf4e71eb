package codegen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
)

// WriterOptions are the settings of a Writer; zero values mean the defaults.
type WriterOptions struct {
	MaxTokens int           // of an answer; 4,000
	Timeout   time.Duration // of one program, retries included; 60 s
	Attempts  int           // while the endpoint is busy or down; 3
	Backoff   time.Duration // before the second attempt, then doubled, unless Retry-After is longer; 500 ms
}

// Writer writes programs with a model. It is safe for concurrent use.
type Writer struct {
	model Model
	opts  WriterOptions
}

// NewWriter returns a writer that asks m.
func NewWriter(m Model, o WriterOptions) *Writer {
	if o.MaxTokens <= 0 {
		o.MaxTokens = 4000
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	if o.Attempts <= 0 {
		o.Attempts = 3
	}
	if o.Backoff <= 0 {
		o.Backoff = 500 * time.Millisecond
	}
	return &Writer{model: m, opts: o}
}

// Call holds what differs between two calls of a writer for the same request.
type Call struct {
	Progress func(string) // receives the answer as it arrives; may be nil
	Budgets  []*Budget    // of the task and of the tenant
}

// Write asks for a program. The error is a *ModelError or that of ctx; the Program then holds the usage so far.
func (w *Writer) Write(ctx context.Context, r Request, c Call) (Program, error) {
	messages, err := Messages(r)
	if err != nil {
		return Program{}, err
	}
	return w.ask(ctx, r, messages, c)
}

// Repair asks for a corrected program after one failed. The caller bounds the number of repairs. Errors are as in
// Write.
func (w *Writer) Repair(ctx context.Context, r Request, f Failure, c Call) (Program, error) {
	messages, err := RepairMessages(r, f)
	if err != nil {
		return Program{}, err
	}
	return w.ask(ctx, r, messages, c)
}

// Rules write a program without a model; package rules has them.
type Rules func(Request) (Program, error)

// Generate asks the writer for a program, and the rules when the writer has none: no writer, key, budget or program.
// Program.Fallback then says why. When the rules fail too, the error is their *CodeRequiredError joined with the
// writer's *ModelError.
func Generate(ctx context.Context, w *Writer, rules Rules, r Request, c Call) (Program, error) {
	if w == nil {
		return rules(r)
	}
	program, err := w.Write(ctx, r, c)
	if err == nil || ctx.Err() != nil {
		return program, err
	}
	fallback, refusal := rules(r)
	fallback.Usage, fallback.Fallback = program.Usage, explain(err)
	if refusal != nil {
		return fallback, errors.Join(refusal, err)
	}
	return fallback, nil
}

func (w *Writer) ask(ctx context.Context, r Request, messages []Message, c Call) (Program, error) {
	bounded, cancel := context.WithTimeout(ctx, w.opts.Timeout)
	defer cancel()
	program := Program{By: ByModel, Usage: Usage{Model: w.model.Name()}}
	answer, err := w.complete(bounded, messages, c, &program.Usage)
	if err != nil {
		if ctx.Err() == nil && bounded.Err() != nil {
			err = w.timeout(err)
		}
		return program, err
	}
	code, err := Extract(answer.Text)
	if answer.Cut {
		message := fmt.Sprintf("the answer was cut after %d tokens", answer.Usage.CompletionTokens)
		return program, &ModelError{Kind: TooLong, Message: message}
	}
	if err != nil {
		return program, err
	}
	program.Code, program.Tools = code, imported(code, r.Tools)
	return program, nil
}

// timeout is the error of a program that was not written in time; last is that of the last attempt.
func (w *Writer) timeout(last error) *ModelError {
	message := fmt.Sprintf("no program within %s", w.opts.Timeout)
	if failed, ok := errors.AsType[*ModelError](last); ok && failed.Kind != TimedOut {
		message += "; last: " + last.Error()
	}
	return &ModelError{Kind: TimedOut, Message: message}
}

// complete repeats attempts until one succeeds, the error is final, or the time or a budget is spent. It adds the
// tokens of all attempts to usage.
func (w *Writer) complete(ctx context.Context, messages []Message, c Call, usage *Usage) (Answer, error) {
	prompt := 0
	for _, m := range messages {
		prompt += Tokens(m.Text) + 4
	}
	wait := w.opts.Backoff
	for attempt := 1; ; attempt++ {
		answer, err := w.attempt(ctx, messages, prompt, c)
		usage.add(answer.Usage)
		if err == nil {
			return answer, nil
		}
		failed, ok := errors.AsType[*ModelError](err)
		if !ok || !failed.retryable() || attempt == w.opts.Attempts {
			return answer, err
		}
		delay := max(wait, failed.RetryAfter)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
			return answer, err // the deadline is before the retry: report the cause now
		}
		if clock.Sleep(ctx, delay) != nil {
			return answer, err
		}
		wait *= 2
	}
}

// attempt calls the model once, within the budgets. prompt is the size of the messages in tokens.
func (w *Writer) attempt(ctx context.Context, messages []Message, prompt int, c Call) (Answer, error) {
	reserved := prompt + w.opts.MaxTokens
	for i, b := range c.Budgets {
		if b.reserve(reserved) {
			continue
		}
		for _, earlier := range c.Budgets[:i] {
			earlier.charge(reserved, 0)
		}
		message := fmt.Sprintf("the call may need %d tokens, the budget has %d left", reserved, b.Left())
		return Answer{Usage: Usage{Model: w.model.Name()}}, &ModelError{Kind: OverBudget, Message: message}
	}
	answer, err := w.model.Complete(ctx, messages, w.opts.MaxTokens, c.Progress)
	u := &answer.Usage
	u.Model = w.model.Name()
	if u.PromptTokens == 0 && billed(err) {
		u.PromptTokens, u.CompletionTokens, u.Estimated = prompt, Tokens(answer.Text), true
	}
	for _, b := range c.Budgets {
		b.charge(reserved, u.PromptTokens+u.CompletionTokens)
	}
	return answer, err
}

// billed reports whether the model began to answer: the provider then bills the prompt, whatever the outcome.
func billed(err error) bool {
	failed, ok := errors.AsType[*ModelError](err)
	return err == nil || ok && (failed.Kind == TimedOut || failed.Kind == BadAnswer || failed.Kind == Refused)
}
