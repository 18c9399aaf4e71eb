package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/jobs"
)

// cancellable returns a context for the executor that ends when ctx ends. If the task was cancelled, the context's
// cause is executor.ErrCancelled, so that the execution ends with a verdict.
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

// uninterrupted returns a context with ctx's values that does not end when the task is cancelled or expires. It ends
// when the lease is lost, and jobs.FinishTime after the end of a drain, because the process then exits.
func uninterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	finishing, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	exit, release := jobs.UntilExit(ctx)
	stopExit := context.AfterFunc(exit, func() { cancel(context.Cause(exit)) })
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, jobs.ErrLeaseLost) {
			cancel(cause)
		}
	})
	return finishing, func() { stopExit(); release(); stop(); cancel(nil) }
}

// cleanupTime bounds the work that must be done even if the task's context has ended.
const cleanupTime = 10 * time.Second

// cleanup returns a context for work that must be done even if ctx has ended. It ends after cleanupTime, when the lease
// is lost, or jobs.FinishTime after the end of a drain.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := uninterrupted(ctx)
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	return ctx, func() { cancel(); stop() }
}

// withCause adds to err the cause of ctx's end, if it has ended.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}
