package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

// Lost reports whether an earlier run of the task was lost: its worker did not report how it ended.
func (j *Job) Lost() bool {
	return slices.ContainsFunc(j.Record.Attempts, func(a schemas.Attempt) bool {
		return a.Outcome == outcomeLost && !a.Redriven // a redriven task was fenced when it died
	})
}

// SaveProgram writes the program, and who wrote it (see Result.GeneratedBy), into the record before the first
// execution, so that every run of the task executes the same program. The limit is 256 KiB. The error is
// ErrLeaseLost if the run no longer belongs to this worker.
func (j *Job) SaveProgram(ctx context.Context, code, by string) error {
	if len(code) > inlineMax {
		return Permanent(fmt.Errorf("save program: it is %d bytes; the limit is %d", len(code), inlineMax))
	}
	if err := j.r.update(ctx, func(rec *storedRecord) { rec.Code, rec.GeneratedBy = code, by }); err != nil {
		return fmt.Errorf("save program: %w", err)
	}
	return nil
}

// SetWaitsFor writes into the record which resource the task waits for, or that it no longer waits ("").
// The end of the run clears it. The error is ErrLeaseLost if the run no longer belongs to this worker.
func (j *Job) SetWaitsFor(ctx context.Context, resource string) error {
	if err := j.r.update(ctx, func(rec *storedRecord) { rec.WaitsFor = resource }); err != nil {
		return fmt.Errorf("record what the task waits for: %w", err)
	}
	return nil
}

// Emit publishes progress or output of the task, in order. It does not wait for the server, so the progress may
// be lost. Emit sets TaskID and Run, and Time if it is zero.
func (j *Job) Emit(ctx context.Context, p schemas.Progress) {
	j.emit.Lock()
	defer j.emit.Unlock()
	j.emitted = true
	p.TaskID, p.Run = j.r.id, j.Record.Run
	if p.Time.IsZero() {
		p.Time = time.Now().UTC()
	}
	if err := j.r.w.c.publishProgress(j.r.tenant, p); err != nil {
		j.r.w.log.DebugContext(ctx, "progress not published", "task_id", j.r.id, "error", err)
	}
}

// ErrTooManyPending is returned by RequestApproval when too many calls of the task wait already.
var ErrTooManyPending = fmt.Errorf("%d calls of the task wait for approval already", maxPending)

// RequestApproval asks for approval of a tool call and returns it approved, denied, or expired if no decision
// came before q.ExpiresAt. It does not ask again if the call was decided in an earlier run of the task, or if all calls
// of its tool were approved. The caller sets the fields of q up to ArgsBytes, and ExpiresAt. When ctx ends,
// the call stays pending for the next run of the task. The error is ErrTooManyPending, or ErrLeaseLost if the
// run no longer belongs to this worker.
func (j *Job) RequestApproval(ctx context.Context, q schemas.Approval) (schemas.Approval, error) {
	r := j.r
	c, notified := r.w.c, make(chan *nats.Msg, 64)
	sub, err := c.nc.ChanSubscribe(notifySubject(r.tenant, r.id), notified)
	if err != nil {
		return q, fmt.Errorf("request approval: %w", err)
	}
	defer unsubscribe(sub)
	// The index is written before the record, so that no pending call is missing from the list.
	if err := c.indexApproval(ctx, r.tenant, r.id, time.Until(q.ExpiresAt)); err != nil {
		r.w.log.WarnContext(ctx, "pending approval not listed", "task_id", r.id, "error", err)
	}
	q.State, q.AskedAt = schemas.ApprovalPending, time.Now().UTC()
	var current schemas.Approval
	var full bool
	if err := r.update(ctx, func(rec *storedRecord) { current, full = addApproval(&rec.Record, q) }); err != nil {
		return q, fmt.Errorf("request approval: %w", err)
	}
	if full {
		return q, ErrTooManyPending
	}
	if !isPending(current) {
		return current, nil
	}
	j.Emit(ctx, schemas.Progress{Stage: "approval", Text: fmt.Sprintf(
		"%s/%s waits for approval (call %s)", q.Server, q.Tool, q.Call)})
	return r.waitForDecision(ctx, notified, current)
}

// waitForDecision returns the approval once it is no longer pending. It rereads the record on every notification,
// and at intervals, because notifications may be lost. When the approval expires, it writes that into the record.
func (r *run) waitForDecision(
	ctx context.Context, notified <-chan *nats.Msg, a schemas.Approval,
) (schemas.Approval, error) {
	expired := time.NewTimer(time.Until(a.ExpiresAt))
	defer expired.Stop()
	reread := time.NewTicker(rereadEvery)
	defer reread.Stop()
	for {
		rec, err := r.w.c.loadLeader(ctx, r.tenant, r.id)
		if err == nil {
			if i := findApproval(&rec.Record, a.Call); i >= 0 && !isPending(rec.Approvals[i]) {
				return rec.Approvals[i], nil
			}
		}
		select {
		case <-notified:
		case <-reread.C:
		case <-ctx.Done():
			return a, context.Cause(ctx)
		case <-expired.C:
			err := r.update(ctx, func(rec *storedRecord) { a = expireApproval(&rec.Record, a.Call) })
			return a, err
		}
	}
}
