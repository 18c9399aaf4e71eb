package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/jobs"
)

// cancellable returns ctx for the executor. When the task is cancelled, the context's cause is
// executor.ErrCancelled, so that the execution ends with a verdict.
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

// untilLeaseLost returns ctx for work that must not be interrupted: only a lost lease ends it.
func untilLeaseLost(ctx context.Context) (context.Context, context.CancelFunc) {
	finishing, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, jobs.ErrLeaseLost) {
			cancel(cause)
		}
	})
	return finishing, func() { stop(); cancel(nil) }
}

// orCause adds to err the cause of ctx's end, if it has ended.
func orCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}
