package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// Outcomes of an attempt beside the terminal statuses.
const (
	outcomeLost        = "lost"
	outcomeError       = "error"
	outcomeDrained     = "drained"
	outcomeUnavailable = "unavailable" // the worker has nothing to run it with
)

// uncounted tells whether an attempt with this outcome is none of the task's.
func uncounted(outcome string) bool {
	return outcome == outcomeDrained || outcome == outcomeUnavailable
}

// Unavailable marks an error that occurred before anything of the task began and that another worker, or
// this one later, may not meet. The task is requeued until a run can begin; such runs are no attempts.
func Unavailable(err error) error { return &unavailableError{err} }

type unavailableError struct{ err error }

func (e *unavailableError) Error() string { return e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

const (
	defaultBackoff      = time.Second
	maxBackoff          = 10 * time.Minute
	maxUnavailableDelay = 30 * time.Second
	shortDelay          = time.Second // up to which a retry keeps its place below the tenant's cap
)

// settle brings the end of a run on record: the result, or another attempt. It does nothing when the
// lease is lost, neither ack nor nak: the entry is another's.
func (r *run) settle(ctx context.Context, job *Job, l *lease, cause error, result *schemas.Result, err error) error {
	defer l.release()
	if errors.Is(cause, ErrLeaseLost) || errors.Is(err, ErrLeaseLost) {
		r.w.c.tel.lost.Add(ctx, 1, attrPool(r.pool))
		return ErrLeaseLost
	}
	if result == nil {
		if result = r.resultOf(cause, err); result == nil {
			return r.again(ctx, l, cause, err)
		}
	} else if r.wantsRetry(result) {
		return r.retry(ctx, l, string(result.Status), errorText(result.Error))
	}
	r.complete(result)
	if err := validResult(result); err != nil {
		result = r.blank(schemas.Dead, &schemas.Error{Code: errcode.InvalidResult, Message: "the result breaks its schema", Cause: err.Error()})
		r.complete(result)
	}
	job.emit.Lock()
	emitted := job.emitted
	job.emit.Unlock()
	err = r.finish(ctx, result, result.Status == schemas.Dead, l.release)
	if err == nil && emitted {
		job.Emit(ctx, schemas.Progress{Stage: string(result.Status)})
	}
	return err
}

// resultOf is the result of a run that ended with an error which ends the task; nil for one that is
// tried again.
func (r *run) resultOf(cause, err error) *schemas.Result {
	var permanent *permanentError
	switch {
	case errors.Is(cause, ErrCancelled):
		return r.blank(schemas.Cancelled, errorCancelled())
	case errors.Is(cause, ErrExpired):
		return r.blank(schemas.Expired, errorExpired())
	case errors.Is(cause, ErrDraining):
		return nil
	case errors.As(err, &permanent):
		return r.blank(schemas.Dead, &schemas.Error{Code: errcode.FleetError, Message: "the fleet could not run the task", Cause: err.Error()})
	case isUnavailable(err):
		return nil
	case r.attempts() >= r.maxAttempts():
		e := r.errorDead()
		if known, ok := errors.AsType[*detailedError](err); ok {
			e = &known.details
		}
		e.Cause = err.Error()
		return r.blank(schemas.Dead, e)
	}
	return nil
}

func (r *run) wantsRetry(result *schemas.Result) bool {
	return r.task.Retry != nil && slices.Contains(r.task.Retry.On, string(result.Status)) && r.attempts() < r.maxAttempts()
}

func errorText(e *schemas.Error) string {
	if e == nil {
		return ""
	}
	return e.Error()
}

// again puts a task back after an error of the fleet, or uncounted after a cut by shutdown.
func (r *run) again(ctx context.Context, l *lease, cause, err error) error {
	if isUnavailable(err) && !errors.Is(cause, ErrDraining) {
		return r.retryIn(ctx, l, r.unavailableDelay(), outcomeUnavailable, err.Error())
	}
	if !errors.Is(cause, ErrDraining) {
		return r.retry(ctx, l, outcomeError, err.Error())
	}
	if err := r.update(ctx, r.waiting(outcomeDrained, "")); err != nil {
		return err
	}
	l.release()
	if err := r.d.nak(r.w.c, 0); err != nil {
		return err
	}
	return r.w.c.nc.Publish("wake."+r.pool+"."+r.priority+"."+r.tenant, nil)
}

func (r *run) retry(ctx context.Context, l *lease, outcome, text string) error {
	return r.retryIn(ctx, l, r.backoff(), outcome, text)
}

func (r *run) retryIn(ctx context.Context, l *lease, delay time.Duration, outcome, text string) error {
	r.w.c.tel.retried.Add(ctx, 1, attrPool(r.pool))
	r.w.log.InfoContext(ctx, "task will be tried again", "task", r.id, "run", r.rec.Run, "outcome", outcome, "in", delay)
	if delay > shortDelay {
		defer l.release()
		return r.delay(ctx, time.Now().Add(delay), r.waiting(outcome, text))
	}
	if err := r.update(ctx, r.waiting(outcome, text)); err != nil {
		return err
	}
	l.release()
	r.later(r.lane, delay)
	return r.d.nak(r.w.c, delay)
}

// waiting is the change of the record to retry_wait.
func (r *run) waiting(outcome, text string) func(*entry) {
	now := time.Now().UTC()
	return func(e *entry) {
		e.Status, e.LeaseUntil = schemas.RetryWait, time.Time{}
		e.closeAttempt(now, outcome, text)
	}
}

func (e *entry) closeAttempt(now time.Time, outcome, text string) {
	n := len(e.Attempts)
	if n == 0 || e.Attempts[n-1].Outcome != "" {
		return
	}
	e.Attempts = slices.Clone(e.Attempts)
	e.Attempts[n-1].EndedAt, e.Attempts[n-1].Outcome, e.Attempts[n-1].Error = now, outcome, head(text)
}

// backoff doubles with each attempt, with a random part so that what failed together does not return
// together.
func (r *run) backoff() time.Duration {
	base := defaultBackoff
	if r.task.Retry != nil && r.task.Retry.BackoffS > 0 {
		base = time.Duration(r.task.Retry.BackoffS * float64(time.Second))
	}
	d := doubled(base, r.attempts()-1)
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads attempts, hides nothing
}

func isUnavailable(err error) bool {
	_, ok := errors.AsType[*unavailableError](err)
	return ok
}

// unavailableDelay is how long to wait for what the worker does not have: longer with each time in a row.
func (r *run) unavailableDelay() time.Duration {
	n := 0
	for _, a := range slices.Backward(r.rec.Attempts) {
		if a.Outcome != outcomeUnavailable && a.Outcome != "" { // the last one has none yet
			break
		}
		n++
	}
	d := min(maxUnavailableDelay, doubled(defaultBackoff, n))
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads attempts, hides nothing
}

// doubled is base doubled n times, up to maxBackoff or a longer base.
func doubled(base time.Duration, n int) time.Duration {
	most := max(maxBackoff, base)
	for range n {
		if base > most/2 { // and would overflow in the end
			return most
		}
		base *= 2
	}
	return base
}

// end settles a task that does not run (again): record, reply, ack.
func (r *run) end(ctx context.Context, result *schemas.Result, dead bool) error {
	r.complete(result)
	return r.finish(ctx, result, dead, func() {})
}

// finish is the order of effects: dead letter, record, reply, ack. released is called between record
// and ack, when the lease is no longer needed.
func (r *run) finish(ctx context.Context, result *schemas.Result, dead bool, released func()) error {
	if dead {
		if err := r.w.c.bury(ctx, r.lane, r.id, r.id, r.d.msg.Header, r.d.msg.Data, result.Error); err != nil {
			return err
		}
	}
	err := r.update(ctx, func(e *entry) {
		e.Status, e.EndedAt, e.Result, e.LeaseUntil = result.Status, result.EndedAt, result, time.Time{}
		e.closeAttempt(result.EndedAt, string(result.Status), errorText(result.Error))
	})
	if err != nil {
		return err
	}
	r.w.c.tel.ended.Add(ctx, 1, attrStatus(r.pool, result.Status))
	if err := r.w.c.reply(ctx, r.replyTo, r.rec, result); err != nil {
		r.w.log.WarnContext(ctx, "reply", "task", r.id, "error", err)
	}
	released()
	if err := r.d.ack(ctx, r.w.c); err != nil {
		return fmt.Errorf("acknowledge: %w", err) // delivered again, and the record says that it has ended
	}
	return nil
}

// announce sends the result of a task that has ended once more: whoever ended it may have crashed
// before it did.
func (w *Worker) announce(ctx context.Context, r *run) {
	if r.replyTo == "" || r.rec.Result == nil {
		return
	}
	rec, err := w.c.whole(ctx, r.rec)
	if err == nil {
		err = w.c.reply(ctx, r.replyTo, r.rec, rec.Result)
	}
	w.logged(ctx, "reply", err)
}

// complete fills in what the queue knows about a result.
func (r *run) complete(res *schemas.Result) {
	now := time.Now().UTC()
	rec := &r.rec
	res.TaskID, res.Tenant, res.Session = rec.TaskID, rec.Tenant, rec.Session
	res.Attempt, res.Source, res.EventID, res.TraceID = rec.Run, rec.Source, rec.EventID, rec.TraceID
	res.Labels = labels(r.task.Labels, res.Labels)
	res.Worker = cmp.Or(res.Worker, r.w.opts.Name)
	res.Code, res.GeneratedBy = cmp.Or(res.Code, rec.Code), cmp.Or(res.GeneratedBy, rec.GeneratedBy)
	res.SubmittedAt, res.StartedAt, res.EndedAt = rec.SubmittedAt, rec.StartedAt, now
	began := now
	if !rec.StartedAt.IsZero() {
		began = rec.StartedAt
	}
	res.TimingMS.Queued = milliseconds(began.Sub(rec.SubmittedAt))
	res.TimingMS.Total = milliseconds(now.Sub(rec.SubmittedAt))
	fillEmpty(res, rec.Workspace)
}

// labels are those of the task, and of the fleet's plugins, which have the last word.
func labels(task, plugins map[string]string) map[string]string {
	if len(plugins) == 0 {
		return task
	}
	all := make(map[string]string, len(task)+len(plugins))
	maps.Copy(all, task)
	maps.Copy(all, plugins)
	return all
}

func milliseconds(d time.Duration) float64 { return max(0, float64(d.Microseconds())/1000) }

// fillEmpty makes absent lists empty ones: the schema wants them.
func fillEmpty(res *schemas.Result, workspace string) {
	res.Workspace.Name = cmp.Or(res.Workspace.Name, workspace)
	if res.Artifacts == nil {
		res.Artifacts = []schemas.Artifact{}
	}
	for _, list := range []*[]string{&res.Tools.Selected, &res.Workspace.Changed, &res.Workspace.Conflicts} {
		if *list == nil {
			*list = []string{}
		}
	}
	if res.Tools.Calls == nil {
		res.Tools.Calls = []schemas.ToolCall{}
	}
}

// blank is the result of a task that its program did not decide.
func (r *run) blank(status schemas.Status, e *schemas.Error) *schemas.Result {
	return &schemas.Result{Status: status, Error: e}
}

func validResult(res *schemas.Result) error {
	if !res.Status.Terminal() {
		return fmt.Errorf("status %q is not terminal", res.Status)
	}
	data, err := json.Marshal(res)
	if err != nil {
		return err
	}
	return schemas.Validate(schemas.ResultV1, data)
}

func errorCancelled() *schemas.Error {
	return &schemas.Error{Code: errcode.Cancelled, Message: "the task was cancelled"}
}

func errorExpired() *schemas.Error {
	return &schemas.Error{Code: errcode.Expired, Message: "the task's expirytime passed before it ended"}
}

func (r *run) errorDead() *schemas.Error {
	e := &schemas.Error{
		Code: errcode.AttemptsExhausted, Message: fmt.Sprintf("the fleet gave up after %d attempts", r.attempts()),
		Hint: "see the attempts in the task's record",
	}
	if n := len(r.rec.Attempts); n > 0 && r.rec.Attempts[n-1].Outcome == outcomeLost {
		e.Code = errcode.WorkerLost
		e.Cause = "its worker was lost in each of them, the last time " + r.rec.Attempts[n-1].Worker
	}
	return e
}

func (e *RefusedError) asError() *schemas.Error {
	return &schemas.Error{Code: e.Code, Message: head(e.text()), Hint: e.Hint}
}
