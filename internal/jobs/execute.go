package jobs

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// execute calls the handler under a lease, and completes or requeues the task. late ends two FinishTimes after work.
func (r *run) execute(work, late context.Context) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(work))
	defer cancel(nil)
	defer context.AfterFunc(work, func() { cancel(ErrDraining) })()
	if !r.rec.ExpiresAt.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, r.rec.ExpiresAt, ErrExpired)
		defer stop()
	}
	ctx, span := r.startSpan(ctx)
	defer span.End()
	tel, pool := r.w.c.tel, attrPool(r.pool)
	if r.rec.Run == 1 {
		wait := r.rec.StartedAt.Sub(r.rec.SubmittedAt)
		tel.waited(ctx, r.pool, r.tenant, wait)
		r.w.tally.countWait(r.tenant, wait)
	}
	tel.running.Add(ctx, 1, pool)
	defer tel.running.Add(ctx, -1, pool)

	l := r.w.leases.start(r.m, r.id, r.rec.Run, cancel)
	defer l.release() // after a panic; finish releases it earlier
	job := r.job()
	began := time.Now()
	result, err := r.handle(ctx, job)
	took := time.Since(began)
	tel.run.Record(ctx, took.Seconds(), pool)
	cause := context.Cause(ctx)
	if l.overdue() {
		cause = ErrLeaseLost
	}
	after, done := detached(ctx, late, r.w.opts.AckWait)
	defer done()
	err = r.finish(after, job, l, cause, result, err)
	r.w.tally.countRun(r.tenant, took, len(r.data), r.ended)
	if err != nil {
		span.SetStatus(codes.Error, spanStatus(err))
		r.w.log.WarnContext(ctx, "run not finished", "task_id", r.id, "run", r.rec.Run, "error", err)
	}
	span.SetAttributes(attribute.String("codefleet.status", string(r.rec.Status)))
}

// FinishTime bounds each of the last two steps of a drained run: after work has ended, the handler may finish a commit
// within FinishTime, and then the task is requeued within FinishTime.
const FinishTime = 300 * time.Millisecond

// UntilExit returns a context with the values of ctx, the context of a run. The new context does not end with ctx,
// unless a drain ends ctx: then it ends FinishTime later, because the process exits.
func UntilExit(ctx context.Context) (context.Context, context.CancelFunc) {
	exit, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if errors.Is(cause, ErrDraining) && clock.Sleep(exit, FinishTime) == nil {
			cancel(cause)
		}
	})
	return exit, func() { stop(); cancel(nil) }
}

// detached returns a context with ctx's values that does not end with ctx. It ends after limit or when late ends.
func detached(ctx, late context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(late, cancel)
	return ctx, func() { stop(); cancel() }
}

// startSpan starts the span task.run as a child of the publisher's span. It also records the span task.queue for the
// time in the queue.
func (r *run) startSpan(ctx context.Context) (context.Context, trace.Span) {
	ctx = extract(ctx, r.m.msg.Header, r.event)
	attrs := trace.WithAttributes(
		attribute.String("codefleet.task", r.id), attribute.String("codefleet.tenant", r.tenant),
		attribute.String("codefleet.pool", r.pool), attribute.Int("codefleet.run", r.rec.Run))
	began := r.rec.Attempts[len(r.rec.Attempts)-1].StartedAt
	_, queue := r.w.c.tel.Start(ctx, "task.queue", attrs, trace.WithTimestamp(r.m.stored))
	queue.End(trace.WithTimestamp(began))
	//nolint:spancheck // the caller ends it
	return r.w.c.tel.Start(ctx, "task.run", trace.WithSpanKind(trace.SpanKindConsumer), attrs)
}

// handle calls the handler. A panic is an error of the fleet.
func (r *run) handle(ctx context.Context, j *Job) (result *schemas.Result, err error) {
	handler := r.handler
	if handler == nil {
		handler = r.w.opts.Handler
	}
	err = contain(ctx, r.w.log, func() (err error) {
		result, err = handler(ctx, j)
		return err
	}, "task_id", r.id)
	if err == nil && result == nil {
		err = errors.New("handler returned neither a result nor an error")
	}
	return result, err
}

// finish completes or requeues the task of a run that has ended. When the lease is lost it does neither: the
// message belongs to another run.
func (r *run) finish(ctx context.Context, job *Job, l *lease, cause error, result *schemas.Result, err error) error {
	defer l.release()
	if errors.Is(cause, ErrLeaseLost) || errors.Is(err, ErrLeaseLost) {
		r.w.c.tel.lost.Add(ctx, 1, attrPool(r.pool))
		return ErrLeaseLost
	}
	mayCommit := result == nil || r.rec.Run > 1 // this or an earlier run may have committed, or may still commit
	if result == nil {
		if result = r.finalResult(cause, err); result == nil {
			return r.requeue(ctx, l, cause, err)
		}
	} else if r.retriesOn(result.Status) {
		return r.retry(ctx, l, r.backoff(), string(result.Status), errorText(result.Error))
	}
	if mayCommit {
		committed, err := r.fence(ctx)
		if err != nil {
			return r.retry(ctx, l, r.backoff(), outcomeError, err.Error())
		}
		if committed != nil && !sameCommit(committed, result) {
			result = committed
		}
	}
	r.fill(result)
	if err := checkResult(result); err != nil {
		result = resultWith(schemas.Dead, &schemas.Error{
			Code: errcode.InvalidResult, Message: "the result does not match its schema", Cause: err.Error(),
		})
		r.fill(result)
	}
	job.emit.Lock()
	emitted := job.emitted
	job.emit.Unlock()
	err = r.complete(ctx, result, result.Status == schemas.Dead, l.release)
	if err == nil && emitted {
		job.Emit(ctx, schemas.Progress{Stage: string(result.Status)})
	}
	return err
}

// sameCommit reports whether a run's result is the result that it has committed.
func sameCommit(committed, result *schemas.Result) bool {
	return result.Status == committed.Status && result.Workspace.Generation == committed.Workspace.Generation
}

// finalResult returns the result of a run whose error completes the task, or nil if the task is requeued.
func (r *run) finalResult(cause, err error) *schemas.Result {
	var permanent *permanentError
	switch {
	case errors.Is(cause, ErrCancelled):
		return resultWith(schemas.Cancelled, errorCancelled())
	case errors.Is(cause, ErrExpired):
		return resultWith(schemas.Expired, errorExpired())
	case errors.Is(cause, ErrDraining):
		return nil
	case errors.As(err, &permanent):
		return resultWith(schemas.Dead, &schemas.Error{
			Code: errcode.FleetError, Message: "the fleet could not run the task", Cause: err.Error(),
		})
	case isUnavailable(err):
		return nil
	case r.attempts() >= r.maxAttempts():
		e := r.errorExhausted()
		if detailed, ok := errors.AsType[*detailedError](err); ok {
			e = &detailed.details
		}
		e.Cause = err.Error()
		return resultWith(schemas.Dead, e)
	}
	return nil
}

// RetriesOn reports whether the task runs again if this run returns a result of this status.
func (j *Job) RetriesOn(status schemas.Status) bool {
	if j.Task.Retry == nil {
		return false
	}
	j.r.mu.Lock()
	defer j.r.mu.Unlock()
	return j.r.retriesOn(status)
}

// retriesOn reports whether the task asks for another attempt after a result of this status, and has one left.
func (r *run) retriesOn(status schemas.Status) bool {
	return r.task.Retry != nil && slices.Contains(r.task.Retry.On, string(status)) && r.attempts() < r.maxAttempts()
}
