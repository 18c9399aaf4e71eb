package jobs

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/schemas"
)

// run is one entry in this worker's hands: first to decide about, then to run.
type run struct {
	order
	w     *Worker
	d     *delivery
	later func(lane, time.Duration)

	mu      sync.Mutex // SaveProgram is called from the handler, on any goroutine
	rec     entry
	claimed bool    // the record says that this worker runs it
	handler Handler // of Prepare; nil: the worker's
	stop    func()  // ends what Prepare began; nil: nothing was begun
}

// Job is one run of one task, for its Handler.
type Job struct {
	Task       schemas.Task
	Record     schemas.Record // as claimed
	Event      event.Event    // as it came; large data are in Task only
	FirstClaim time.Time      // of the first run: no effect of this task is older

	r       *run
	emitted bool
	emit    sync.Mutex
}

// prepare calls Prepare before the first claim of a task, once however often the claim is tried.
func (r *run) prepare(ctx context.Context) {
	if r.w.opts.Prepare != nil && r.stop == nil && r.rec.Run == 0 {
		r.handler, r.stop = r.w.opts.Prepare(ctx, r.rec.Record)
	}
}

// release ends what Prepare began.
func (r *run) release() {
	if r.stop != nil {
		r.stop()
	}
}

// execute calls the handler under a lease and settles what comes of it.
func (r *run) execute(work context.Context) {
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
		tel.queued.Record(ctx, r.rec.StartedAt.Sub(r.rec.SubmittedAt).Seconds(), pool)
	}
	tel.running.Add(ctx, 1, pool)
	defer tel.running.Add(ctx, -1, pool)

	l := r.w.hold(r, cancel)
	job := &Job{Task: r.task, Record: r.rec.Record, Event: r.ev, FirstClaim: r.rec.StartedAt, r: r}
	began := time.Now()
	result, err := r.handle(ctx, job)
	tel.run.Record(ctx, time.Since(began).Seconds(), pool)
	cause := context.Cause(ctx)
	if l.overdue() {
		cause = ErrLeaseLost
	}
	settle, done := context.WithTimeout(context.WithoutCancel(ctx), r.w.opts.AckWait)
	defer done()
	err = r.settle(settle, job, l, cause, result, err)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		r.w.log.WarnContext(ctx, "task not settled here", "task", r.id, "run", r.rec.Run, "error", err)
	}
	span.SetAttributes(attribute.String("codefleet.status", string(r.rec.Status)))
}

// startSpan begins task.run below the publisher's span, with a span for the time in the queue
// beside it.
func (r *run) startSpan(ctx context.Context) (context.Context, trace.Span) {
	ctx = extract(ctx, r.d.msg.Header, r.ev)
	about := trace.WithAttributes(
		attribute.String("codefleet.task", r.id), attribute.String("codefleet.tenant", r.tenant),
		attribute.String("codefleet.pool", r.pool), attribute.Int("codefleet.run", r.rec.Run))
	attempt := r.rec.Attempts[len(r.rec.Attempts)-1]
	_, queue := r.w.c.tel.Start(ctx, "task.queue", about, trace.WithTimestamp(r.d.stored))
	queue.End(trace.WithTimestamp(attempt.StartedAt))
	return r.w.c.tel.Start(ctx, "task.run", trace.WithSpanKind(trace.SpanKindConsumer), about) //nolint:spancheck // the caller ends it
}

// handle calls the handler. A panic is an error of the fleet.
func (r *run) handle(ctx context.Context, j *Job) (result *schemas.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.w.log.ErrorContext(ctx, "handler panicked",
				"task", r.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result, err = nil, fmt.Errorf("handler panicked: %v", p)
		}
	}()
	handler := r.handler
	if handler == nil {
		handler = r.w.opts.Handler
	}
	result, err = handler(ctx, j)
	if err == nil && result == nil {
		err = errors.New("handler returned neither a result nor an error")
	}
	return result, err
}

// update changes the record of this run and writes it, however often others change it meanwhile, as
// long as the run is this one. When it is not, nothing is written, and the error is ErrLeaseLost, or
// errStale before the claim.
func (r *run) update(ctx context.Context, change func(*entry)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		e := r.rec
		change(&e)
		err := r.w.c.swap(ctx, &e)
		if err == nil {
			r.rec = e
			return nil
		}
		if !errors.Is(err, errStale) && !errors.Is(err, errAmbiguous) {
			return err
		}
		fresh, readErr := r.reread(ctx)
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		ours := sameAttempt(fresh, e)
		switch {
		case ours && fresh.Status == e.Status && e.Status != schemas.Running: // it had been written
			e.rev = fresh.rev
			r.rec = e
			return nil
		case ours && fresh.Status == schemas.Running:
			r.rec = fresh
		case !r.claimed:
			return errStale
		case r.w.unfenced:
			r.rec.rev = fresh.rev
		default:
			return ErrLeaseLost
		}
	}
}

// reread reads the record until it can or ctx ends.
func (r *run) reread(ctx context.Context) (entry, error) {
	for {
		e, err := r.w.c.loadLeader(ctx, r.tenant, r.id)
		if err == nil || errors.Is(err, ErrUnknownTask) {
			return e, err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return entry{}, err
		}
	}
}

// SaveProgram writes the program (by: caller, llm, rules or skill) into the record before its first
// run, so that a retry runs the same. It must fit the record: at most 256 KiB. ErrLeaseLost when the
// task is no longer this worker's.
func (j *Job) SaveProgram(ctx context.Context, code, by string) error {
	if len(code) > inlineMax {
		return Permanent(fmt.Errorf("save program: %d bytes are more than %d", len(code), inlineMax))
	}
	if err := j.r.update(ctx, func(e *entry) { e.Code, e.GeneratedBy = code, by }); err != nil {
		return fmt.Errorf("save program: %w", err)
	}
	return nil
}

// SetWaitsFor writes into the record what the task waits for, for people to see; empty: it goes on. The
// task's end empties it. ErrLeaseLost when the task is no longer this worker's.
func (j *Job) SetWaitsFor(ctx context.Context, what string) error {
	if err := j.r.update(ctx, func(e *entry) { e.WaitsFor = what }); err != nil {
		return fmt.Errorf("say what the task waits for: %w", err)
	}
	return nil
}

// Emit publishes progress or output of the task. It is not durable, keeps order, and does not wait
// for the server. TaskID, Run and Time are filled in.
func (j *Job) Emit(ctx context.Context, p schemas.Progress) {
	j.emit.Lock()
	defer j.emit.Unlock()
	j.emitted = true
	p.TaskID, p.Run = j.r.id, j.Record.Run
	if p.Time.IsZero() {
		p.Time = time.Now().UTC()
	}
	if err := j.r.w.c.log(j.r.tenant, p); err != nil {
		j.r.w.log.DebugContext(ctx, "progress lost", "task", j.r.id, "error", err)
	}
}

func attrStatus(pool string, s schemas.Status) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("pool", pool), attribute.String("status", string(s)))
}
