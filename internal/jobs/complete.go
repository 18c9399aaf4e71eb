package jobs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// completeUnrun completes a task that is not run (again): it is refused, cancelled, expired, or out of attempts. If an
// earlier run has committed, the task has succeeded.
func (r *run) completeUnrun(ctx context.Context, result *schemas.Result, dead bool) error {
	committed, err := r.fence(ctx)
	if err != nil {
		return err
	}
	if committed != nil {
		result, dead = committed, false
	}
	r.fill(result)
	return r.complete(ctx, result, dead, func() {})
}

// fence returns the result that a run of the task has committed. If it returns neither a result nor an error, no run
// can commit any more.
func (r *run) fence(ctx context.Context) (*schemas.Result, error) {
	if r.w.opts.Fence == nil || r.rec.Run == 0 {
		return nil, nil
	}
	return r.w.opts.Fence(ctx, r.job())
}

// complete completes the task. The order of effects is: dead letter (if dead), session's log, record, result event,
// hook Ended, acknowledgement. release is called when the lease is no longer needed, before the acknowledgement.
func (r *run) complete(ctx context.Context, result *schemas.Result, dead bool, release func()) error {
	c := r.w.c
	if dead {
		// A refused task has no run, so the message counts as well.
		end := fmt.Sprintf("%d-%d", r.rec.Run, r.m.seq)
		if err := c.deadLetter(ctx, r.lane, r.id, r.id, end, r.m.msg, result.Error); err != nil {
			return err
		}
	}
	err := r.logSession(ctx, result)
	if err == nil {
		err = r.update(ctx, func(rec *storedRecord) {
			rec.Status, rec.EndedAt, rec.Result, rec.LeaseUntil = result.Status, result.EndedAt, result, time.Time{}
			endRun(rec, result.EndedAt, string(result.Status), errorText(result.Error))
		})
	}
	if err != nil {
		if dead {
			r.withdrawLetter(ctx)
		}
		return err
	}
	r.ended = result
	if !dead && (r.rec.Run > 1 || !r.claimed && r.rec.Run > 0) { // an earlier run may have left a letter
		c.deleteLetters(ctx, r.tenant, r.id)
	}
	if !dead { // a dead letter has the event
		c.keepEvent(ctx, r.tenant, r.id, r.m.msg)
	}
	c.tel.completed.Add(ctx, 1, attrStatus(r.pool, result.Status))
	if err := c.reply(ctx, r.replyTo, r.rec, result); err != nil {
		r.w.log.WarnContext(ctx, "result event not published", "task_id", r.id, "error", err)
	}
	if err := r.callEnded(ctx, result); err != nil {
		release()
		r.w.logError(ctx, "message not requeued", r.m.requeue(c, requeueDelay)) // the next delivery calls it again
		r.wakeAfter(r.lane, requeueDelay)
		return err
	}
	release()
	if err := r.m.acknowledge(ctx, c); err != nil {
		return fmt.Errorf("acknowledge: %w", err) // the next delivery finds a terminal record
	}
	r.dropData(ctx)
	return nil
}

// dropData removes the data of a task that is completed. A dead letter has a copy.
func (r *run) dropData(ctx context.Context) {
	if ref := extension(r.event, "dataref"); ref != "" {
		r.w.c.dropData(ctx, r.tenant, ref)
	}
}

// withdrawLetter removes the dead letter of a task that another process has completed, unless that process
// dead-lettered the task too. If the task is not complete yet, the letter stays: its id prevents another letter for the
// same reason, and the worker that completes the task removes it.
func (r *run) withdrawLetter(ctx context.Context) {
	rec, err := r.w.c.loadLeader(ctx, r.tenant, r.id)
	if err == nil && rec.Status.Terminal() && rec.Status != schemas.Dead && rec.Status != schemas.Blocked {
		r.w.c.deleteLetters(ctx, r.tenant, r.id)
	}
}

// endRun records how the latest run ended, if that is not recorded yet.
func endRun(rec *storedRecord, now time.Time, outcome, errorText string) {
	n := len(rec.Attempts)
	if n == 0 || rec.Attempts[n-1].Outcome != "" {
		return
	}
	rec.Attempts = slices.Clone(rec.Attempts) // the record that was read must not change
	last := &rec.Attempts[n-1]
	last.EndedAt, last.Outcome, last.Error = now, outcome, text.Truncate(errorText, maxText)
}

// announce publishes the result of a completed task again, because its worker may have crashed before it did. It
// returns an error if the task's workflow could not be advanced.
func (r *run) announce(ctx context.Context) error {
	if r.rec.Run == 0 && r.rec.Result != nil { // it was cancelled before it ran, so no run has logged it
		r.w.logError(ctx, "session entry not added", r.logSession(ctx, r.rec.Result))
	}
	isStep := strings.HasPrefix(r.rec.Source, WorkflowSource)
	if r.replyTo == "" && !isStep || r.rec.Result == nil {
		return nil
	}
	rec, err := r.w.c.whole(ctx, r.rec)
	if err == nil {
		err = r.w.c.reply(ctx, r.replyTo, r.rec, rec.Result)
	}
	r.w.logError(ctx, "result event not published again", err)
	return r.callEnded(ctx, cmp.Or(rec.Result, r.rec.Result))
}

// fill sets the fields of a result that the queue knows.
func (r *run) fill(res *schemas.Result) {
	rec := &r.rec
	fillFromRecord(res, &rec.Record, time.Now().UTC())
	labels := map[string]string{}
	maps.Copy(labels, r.task.Labels)
	maps.Copy(labels, res.Labels) // labels of plugins replace the task's
	res.Labels = labels
	res.Worker = cmp.Or(res.Worker, r.w.opts.Name)
	res.Code, res.GeneratedBy = cmp.Or(res.Code, rec.Code), cmp.Or(res.GeneratedBy, rec.GeneratedBy)
}

// fillFromRecord sets the fields of a result that follow from the record of a task that ends now.
func fillFromRecord(res *schemas.Result, rec *schemas.Record, now time.Time) {
	res.TaskID, res.Tenant, res.Session = rec.TaskID, rec.Tenant, rec.Session
	res.Attempt, res.Source, res.EventID, res.TraceID = rec.Run, rec.Source, rec.EventID, rec.TraceID
	res.SubmittedAt, res.StartedAt, res.EndedAt = rec.SubmittedAt, rec.StartedAt, now
	res.TimingMS.Queued = milliseconds(cmp.Or(rec.StartedAt, now).Sub(rec.SubmittedAt))
	res.TimingMS.Total = milliseconds(now.Sub(rec.SubmittedAt))
	res.Workspace.Name = cmp.Or(res.Workspace.Name, rec.Workspace)
}

// resultWith returns the result of a task that ended for a reason outside its program.
func resultWith(status schemas.Status, e *schemas.Error) *schemas.Result {
	return &schemas.Result{Status: status, Error: e}
}

// errorExhausted is the error of a task without attempts left.
func (r *run) errorExhausted() *schemas.Error {
	e := &schemas.Error{
		Code: errcode.AttemptsExhausted, Message: "the fleet gave up after " + text.Count(r.attempts(), "attempt"),
		Hint: "see the attempts in the task's record",
	}
	if n := len(r.rec.Attempts); n > 0 && r.rec.Attempts[n-1].Outcome == outcomeLost {
		e.Code = errcode.WorkerLost
		e.Cause = "the last worker, " + r.rec.Attempts[n-1].Worker + ", was lost"
	}
	return e
}
