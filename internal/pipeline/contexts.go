package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/jobs"
)

// cancellable is ctx for the executor: a task that its owner cancels gets a verdict.
func cancellable(ctx context.Context) (context.Context, context.CancelFunc) {
	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if errors.Is(cause, jobs.ErrCancelled) {
			cause = executor.ErrCancelled
		}
		cancel(cause)
	})
	return running, func() { stop(); cancel(nil) }
}

// fenced is ctx for a commit: once begun, only a lost lease stops it.
func fenced(ctx context.Context) (context.Context, context.CancelFunc) {
	committing, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, jobs.ErrLeaseLost) {
			cancel(cause)
		}
	})
	return committing, func() { stop(); cancel(nil) }
}

// orCause prefers the reason why a context ended to the news that it did.
func orCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}
