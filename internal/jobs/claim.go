package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

const (
	requeueDelay = time.Second // delay before a message that cannot be handled now is delivered again
	maxRuns      = 150         // runs, in Attempts, that a record keeps
)

// process handles a message. It runs, completes or delays the task; or refuses, requeues or acknowledges the message,
// or leaves it for redelivery. If the message is requeued with a delay, wakeAfter makes the dispatcher look for
// messages of the lane again after the delay. process reports whether a run began.
func (w *Worker) process(
	work, late context.Context, m *message, wakeAfter func(lane, time.Duration),
) (began bool) {
	ctx, cancel := detached(work, late, w.opts.AckWait)
	defer cancel()
	_ = contain(ctx, w.log, func() error { // after a panic, the queue delivers the message again
		began = w.tryMessage(ctx, work, late, m, wakeAfter)
		return nil
	}, "subject", m.subject(), "seq", m.seq)
	return began
}

// tryMessage does the work of process. ctx ends AckWait after process began, or when late ends.
func (w *Worker) tryMessage(
	ctx, work, late context.Context, m *message, wakeAfter func(lane, time.Duration),
) (began bool) {
	r, err := w.claim(ctx, m, wakeAfter)
	switch {
	case err != nil:
		w.log.WarnContext(ctx, "task not claimed", "subject", m.subject(), "seq", m.seq, "error", err)
		if time.Since(m.requested) < w.opts.AckWait/2 { // the server has not redelivered it yet
			w.logError(ctx, "message not requeued", m.requeue(w.c, requeueDelay))
			wakeAfter(m.lane, requeueDelay)
		}
	case r != nil:
		defer r.release()
		r.execute(work, late)
	}
	return r != nil
}

// claim decides what to do with a message. If the task is to run here and now, claim returns the run, with the
// record changed to running. It returns nil without an error when nothing is left to do.
func (w *Worker) claim(ctx context.Context, m *message, wakeAfter func(lane, time.Duration)) (claimed *run, err error) {
	ev, err := decodeNATS(m.msg.Header, m.msg.Data)
	if err != nil {
		return nil, w.refuseMessage(ctx, m, refuse(errcode.BadEvent, "", "%s", err))
	}
	r := &run{w: w, m: m, wakeAfter: wakeAfter, submission: submission{lane: m.lane, event: ev, data: ev.Data()}}
	defer func() {
		if claimed == nil {
			r.release()
		}
	}()
	refused, err := w.c.checkMessage(ctx, &r.submission, w.opts.Policy)
	if err != nil {
		return nil, err
	}
	if refused == nil {
		refused = w.c.checkRoom(m.msg)
	}
	if refused == nil && w.opts.Policy != nil {
		// Any worker fetches messages of unknown tenants, to refuse them. If an operator has created the tenant since,
		// the message is left to the workers that run the tenant's tasks.
		if _, inSettings := w.opts.Policy(m.tenant); !inSettings && !w.runs(m.lane, true) {
			return nil, m.requeue(w.c, requeueDelay)
		}
	}
	for try := range swapTries {
		if err := awaitReplication(ctx, try); err != nil {
			return nil, err
		}
		owned, err := r.read(ctx)
		if err != nil || !owned {
			return nil, err
		}
		done, err := r.skip(ctx, refused)
		if !done {
			err = r.begin(ctx)
		}
		switch {
		case errors.Is(err, errStale): // read the record again
		case isUnstorable(err): // a further try would fail, too
			return nil, w.refuseMessage(ctx, m, refuse(errcode.BadEvent, "", "the task cannot be stored: %s", err))
		case err != nil || done:
			return nil, err
		default:
			return r, nil
		}
	}
	return nil, fmt.Errorf("claim task %s: another process changed its record first, %d times", r.id, swapTries)
}

// checkMessage fetches the event's data, and checks the event and its data. refused says why the event is refused. err
// means that it could not be checked. An event at which the check panics is refused: otherwise it would stop each
// process of the fleet, again after each restart.
func (c *Client) checkMessage(ctx context.Context, s *submission, policy Policy) (refused *RefusedError, err error) {
	s.id = s.taskID()
	err = contain(ctx, c.opts.Log, func() error {
		err := c.fetchData(ctx, s)
		if _, isRefused := errors.AsType[*RefusedError](err); err != nil && !isRefused {
			return err
		}
		withCreated, failed := c.withCreated(ctx, policy, s.tenant)
		if failed != nil {
			return failed
		}
		return cmp.Or(err, s.check(c.opts.AnyInbox, withCreated)) // check also derives the record's fields
	}, "task_id", s.id, "tenant", s.tenant)
	if errors.Is(err, errPanicked) {
		return refuse(errcode.BadEvent, "", "%s", errPanicked), nil
	}
	if refused, isRefused := errors.AsType[*RefusedError](err); isRefused {
		return refused, nil
	}
	return nil, err
}

// fetchData fetches the data of an event that refers to the object store.
func (c *Client) fetchData(ctx context.Context, s *submission) error {
	ref := extension(s.event, "dataref")
	switch {
	case ref == "":
		return nil
	case len(s.data) > 0:
		return refuse(errcode.BadEvent, "dataref", "the event has both data and a reference to data")
	}
	name, err := objectName(s.tenant, ref)
	if err != nil {
		return refuse(errcode.BadEvent, "dataref", "%s", err)
	}
	s.data, err = c.getObject(ctx, name)
	if objectMissing(err) {
		return refuse(errcode.BadData, "dataref", "the data is no longer in the store")
	}
	return err
}

// read reads the record, or makes one for an event without a record, and reports whether this message owns it.
// After it has announced the result of a completed task again and kept its event, it acknowledges the message and
// removes its data. It acknowledges a message whose task another message carries. It requeues a message that arrives
// too early.
func (r *run) read(ctx context.Context) (owned bool, err error) {
	rec, err := r.w.c.load(ctx, r.tenant, r.id)
	if err == nil && !r.owns(rec) || errors.Is(err, ErrUnknownTask) && r.w.c.clustered() {
		rec, err = r.w.c.loadLeader(ctx, r.tenant, r.id) // acting on an outdated record could lose the task
	}
	switch {
	case errors.Is(err, ErrUnknownTask):
		r.rec = r.record(extract(ctx, r.m.msg.Header, r.event), r.m.seq, r.m.stored)
		return true, nil
	case err != nil:
		return false, err
	}
	r.rec = rec
	switch {
	case r.w.leases.holds(r.tenant, r.id): // the server redelivered a task that runs here
		return false, nil
	case rec.Status.Terminal():
		if err := r.announce(ctx); err != nil { // the event was submitted again, perhaps with another replyto
			return false, err
		}
		if rec.Status != schemas.Dead && rec.DataHash == hashOf(r.data) { // else another event, or a letter has it
			r.w.c.keepEvent(ctx, r.tenant, r.id, r.m.msg) // the process that ended the task may not have
		}
		if err := r.m.acknowledge(ctx, r.w.c); err != nil {
			return false, err
		}
		r.dropData(ctx)
		return false, nil
	case r.early(rec):
		err := r.m.requeue(r.w.c, requeueDelay)
		r.wakeAfter(r.lane, requeueDelay)
		return false, err
	case !r.owns(rec):
		return false, r.m.acknowledge(ctx, r.w.c)
	}
	return true, nil
}

// early reports whether this message came from DELAYED although the record does not say yet that the task waits there.
// The process that stored the message there has not written the record yet, or was lost.
func (r *run) early(rec storedRecord) bool {
	runs, err := strconv.Atoi(r.m.msg.Header.Get(runHeader))
	return err == nil && runs == rec.Run && !r.owns(rec)
}

// owns reports whether this message may run the record's task: the record names the message; or it names none, and the
// message came from DELAYED for the next run, or is for the first run.
func (r *run) owns(rec storedRecord) bool {
	if rec.Status.Terminal() {
		return false
	}
	if rec.QueueSeq != 0 {
		return rec.QueueSeq == r.m.seq
	}
	header := r.m.msg.Header.Get(runHeader)
	runs, err := strconv.Atoi(header)
	return (err == nil || header == "") && runs == rec.Run
}

// skip completes or delays a task that must not run now, and reports whether it did. Before that, it marks the latest
// run as lost if that run has no outcome.
func (r *run) skip(ctx context.Context, refused *RefusedError) (done bool, err error) {
	now := time.Now()
	endRun(&r.rec, now.UTC(), outcomeLost, "")
	switch {
	case refused != nil:
		r.w.c.tel.refused.Add(ctx, 1)
		return true, r.completeUnrun(ctx, resultWith(schemas.Blocked, refused.asError()), true)
	case r.rec.CancelRequested:
		return true, r.completeUnrun(ctx, resultWith(schemas.Cancelled, errorCancelled()), false)
	case !r.rec.ExpiresAt.IsZero() && !now.Before(r.rec.ExpiresAt):
		return true, r.completeUnrun(ctx, resultWith(schemas.Expired, errorExpired()), false)
	case r.attempts() >= r.maxAttempts():
		return true, r.completeUnrun(ctx, resultWith(schemas.Dead, r.errorExhausted()), true)
	case r.rec.Run == 0 && r.task.NotBefore != nil && now.Before(*r.task.NotBefore):
		return true, r.delayUntil(ctx, *r.task.NotBefore, func(*storedRecord) {})
	case r.task.Description != "" && r.rec.Code == "":
		return r.skipWithoutTokens(ctx)
	}
	return false, nil
}

// skipWithoutTokens delays a task that needs a model if the tenant's rate of tokens is used up, and reports whether it
// did.
func (r *run) skipWithoutTokens(ctx context.Context) (done bool, err error) {
	until, err := r.w.c.usedUpUntil(ctx, r.tenant, rateTokens, r.w.limitsOf(r.tenant).TokenRate)
	if err != nil || until.IsZero() {
		return false, err
	}
	return true, r.delayUntil(ctx, until, func(*storedRecord) {})
}

// begin changes the record to running. It returns errStale if another process has changed the record since it was read.
func (r *run) begin(ctx context.Context) error {
	now := time.Now().UTC()
	rec := r.rec
	rec.Status, rec.Run, rec.Worker, rec.QueueSeq = schemas.Running, rec.Run+1, r.w.opts.Name, r.m.seq
	rec.LeaseUntil, rec.WaitsFor = now.Add(r.w.opts.AckWait), ""
	if rec.StartedAt.IsZero() {
		rec.StartedAt = now
	}
	if rec.Code == "" && r.task.Code != "" && len(r.task.Code) <= inlineMax {
		rec.Code, rec.GeneratedBy = r.task.Code, "caller" // so SaveProgram need not write it
	}
	if rec.Catalogue == "" && r.w.opts.Catalogue != nil {
		rec.Catalogue = r.w.opts.Catalogue(ctx, r.tenant)
	}
	rec.Attempts = append(slices.Clone(rec.Attempts), schemas.Attempt{Run: rec.Run, Worker: rec.Worker, StartedAt: now})
	if len(rec.Attempts) > maxRuns {
		// Drop the oldest run that is no attempt, so that the count of attempts stays right; else the oldest.
		i := max(0, slices.IndexFunc(rec.Attempts, func(a schemas.Attempt) bool { return !isAttempt(a) }))
		rec.Attempts = slices.Delete(rec.Attempts, i, i+1)
	}
	r.prepare(ctx)
	err := r.w.c.swap(ctx, &rec)
	if errors.Is(err, errAmbiguous) {
		fresh, readErr := r.w.c.loadLeader(ctx, r.tenant, r.id)
		switch {
		case readErr != nil:
			return errors.Join(err, readErr)
		case !sameRun(fresh, rec):
			return errStale
		}
		rec.rev, err = fresh.rev, nil
	}
	if err == nil {
		r.rec, r.claimed = rec, true
	}
	return err
}

// refuseMessage dead-letters a message that is not an event, or whose task cannot be stored. The letter has no task id,
// and no result is published.
func (w *Worker) refuseMessage(ctx context.Context, m *message, refused *RefusedError) error {
	w.c.tel.refused.Add(ctx, 1)
	key := strconv.FormatUint(m.seq, 10)
	if err := w.c.deadLetter(ctx, m.lane, key, "", "", m.msg, refused.asError()); err != nil {
		return err
	}
	return m.acknowledge(ctx, w.c)
}
