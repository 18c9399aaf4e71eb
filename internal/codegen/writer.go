package codegen

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// WriterOptions are the settings of a Writer; zero values mean the defaults.
type WriterOptions struct {
	MaxTokens int           // of an answer; 4,000
	Timeout   time.Duration // of one program, retries included; 60 s
	Attempts  int           // when the endpoint is busy or down; 3
	Backoff   time.Duration // before the second attempt, doubled after; 500 ms. Retry-After goes before
}

// Writer lets a model write programs. It is safe for concurrent use.
type Writer struct {
	model Model
	opts  WriterOptions
}

// NewWriter returns a writer that asks the model.
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

// Call says what one call of a writer may cost and who listens.
type Call struct {
	Progress func(string) // the answer as it arrives; may be nil
	Budgets  []*Budget    // the task's and the tenant's
}

// Write asks for a program. The error is a *ModelError, or ctx's; the Program then holds the usage so far.
func (w *Writer) Write(ctx context.Context, r Request, c Call) (Program, error) {
	messages, err := Messages(r)
	if err != nil {
		return Program{}, err
	}
	return w.ask(ctx, r, messages, c)
}

// Repair asks for a corrected program after one failed. Count the attempts outside.
func (w *Writer) Repair(ctx context.Context, r Request, f Failure, c Call) (Program, error) {
	messages, err := RepairMessages(r, f)
	if err != nil {
		return Program{}, err
	}
	return w.ask(ctx, r, messages, c)
}

// Generate lets the writer write and the rules when it cannot: no writer, no key, no budget, no program. Program.Fallback
// says why the rules did it. When neither can, the error is a *CodeRequiredError joined with the model's *ModelError.
func Generate(ctx context.Context, w *Writer, r Request, c Call) (Program, error) {
	if w == nil {
		return WriteRules(r)
	}
	program, err := w.Write(ctx, r, c)
	if err == nil || ctx.Err() != nil {
		return program, err
	}
	fallback, refusal := WriteRules(r)
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
			message := fmt.Sprintf("no program within %s", w.opts.Timeout)
			if failed, ok := errors.AsType[*ModelError](err); ok && failed.Kind != TimedOut {
				message += "; last: " + err.Error()
			}
			err = &ModelError{Kind: TimedOut, Message: message}
		}
		return program, err
	}
	code, err := Extract(answer.Text)
	if answer.Cut {
		return program, &ModelError{Kind: TooLong, Message: fmt.Sprintf("the answer was cut after %d tokens", answer.Usage.CompletionTokens)}
	}
	if err != nil {
		return program, err
	}
	program.Code, program.Tools = code, imported(code, r.Tools)
	return program, nil
}

// complete asks until an attempt succeeds, help is hopeless, or the time or a budget is used up.
func (w *Writer) complete(ctx context.Context, messages []Message, c Call, usage *Usage) (Answer, error) {
	prompt := 0
	for _, m := range messages {
		prompt += Tokens(m.Text) + 4
	}
	wait := w.opts.Backoff
	for attempt := 1; ; attempt++ {
		answer, err := w.once(ctx, messages, prompt, c)
		usage.add(answer.Usage)
		if err == nil {
			return answer, nil
		}
		failed, ok := errors.AsType[*ModelError](err)
		if !ok || !failed.again() || attempt == w.opts.Attempts {
			return answer, err
		}
		if pauseErr := pause(ctx, max(wait, failed.RetryAfter)); pauseErr != nil {
			return answer, err // a wait longer than the time left: say what was wrong, at once
		}
		wait *= 2
	}
}

// once makes one attempt within the budgets.
func (w *Writer) once(ctx context.Context, messages []Message, prompt int, c Call) (Answer, error) {
	reserved := prompt + w.opts.MaxTokens
	for i, b := range c.Budgets {
		if !b.reserve(reserved) {
			for _, earlier := range c.Budgets[:i] {
				earlier.settle(reserved, 0)
			}
			return Answer{Usage: Usage{Model: w.model.Name()}}, &ModelError{Kind: OverBudget, Message: fmt.Sprintf("the call may take %d tokens, the budget has %d left", reserved, b.Left())}
		}
	}
	answer, err := w.model.Complete(ctx, messages, w.opts.MaxTokens, c.Progress)
	answer.Usage.Model = w.model.Name()
	if answer.Usage.PromptTokens == 0 && begun(err) {
		answer.Usage.PromptTokens, answer.Usage.CompletionTokens, answer.Usage.Estimated = prompt, Tokens(answer.Text), true
	}
	for _, b := range c.Budgets {
		b.settle(reserved, answer.Usage.PromptTokens+answer.Usage.CompletionTokens)
	}
	return answer, err
}

// begun tells whether the model began to answer: then the prompt was paid for, whatever came of it.
func begun(err error) bool {
	failed, ok := errors.AsType[*ModelError](err)
	return err == nil || ok && (failed.Kind == TimedOut || failed.Kind == BadAnswer || failed.Kind == Refused)
}

// pause waits; it fails at once when the deadline is nearer than the wait.
func pause(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
