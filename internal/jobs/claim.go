package jobs

import (
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
	giveBackDelay = time.Second // before an entry that could not be looked at is tried again
	claimTries    = 10          // times that others may change the record under a claim
	maxAttempts   = 150         // attempts that a record remembers
)

// handle sees a delivery through: it is run, ended, put off, dropped, or left to be delivered again.
func (w *Worker) handle(work context.Context, d *delivery, later func(lane, time.Duration)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), w.opts.AckWait)
	defer cancel()
	r, err := w.claim(ctx, d, later)
	switch {
	case err != nil:
		w.log.WarnContext(ctx, "claim", "subject", d.subject(), "seq", d.seq, "error", err)
		if time.Since(d.asked) < w.opts.AckWait/2 { // nobody else can have it yet
			w.logged(ctx, "give back", d.nak(w.c, giveBackDelay))
			later(d.lane, giveBackDelay)
		}
	case r != nil:
		defer r.release()
		r.execute(work)
	}
}

func (w *Worker) logged(ctx context.Context, what string, err error) {
	if err != nil {
		w.log.WarnContext(ctx, what, "error", err) //nolint:sloglint // what is a constant of the caller
	}
}

// claim decides about a delivery and, when it is to run here and now, returns the run with its claim
// on record. nil without an error: it is settled.
func (w *Worker) claim(ctx context.Context, d *delivery, later func(lane, time.Duration)) (claimed *run, err error) {
	ev, err := DecodeNATS(d.msg.Header, d.msg.Data)
	if err != nil {
		return nil, w.refuseMessage(ctx, d, refuse(errcode.BadEvent, "", "%s", err))
	}
	r := &run{w: w, d: d, later: later, order: order{lane: d.lane, ev: ev, data: ev.Data()}}
	defer func() {
		if claimed == nil {
			r.release()
		}
	}()
	refused, err := w.open(ctx, &r.order)
	if err != nil {
		return nil, err
	}
	for range claimTries {
		mine, err := r.read(ctx)
		if err != nil || !mine {
			return nil, err
		}
		settled, err := r.settleUnrun(ctx, refused)
		if !settled {
			err = r.begin(ctx)
		}
		switch {
		case errors.Is(err, errStale): // look again
		case err != nil || settled:
			return nil, err
		default:
			return r, nil
		}
	}
	return nil, fmt.Errorf("claim task %s: its record kept changing", r.id)
}

// open fetches the data of an event and checks it all. A refusal is for the task's record; an error
// means that it could not be looked at.
func (w *Worker) open(ctx context.Context, o *order) (*RefusedError, error) {
	err := w.fetchData(ctx, o)
	refused, isRefused := errors.AsType[*RefusedError](err)
	if err != nil && !isRefused {
		return nil, err
	}
	if err := o.fill(w.c.opts.AnyInbox, w.opts.Policy); err != nil && !isRefused {
		refused, isRefused = errors.AsType[*RefusedError](err)
		if !isRefused {
			return nil, err
		}
	}
	return refused, nil
}

// fetchData gets the data of an event that only names them.
func (w *Worker) fetchData(ctx context.Context, o *order) error {
	ref := extension(o.ev, "dataref")
	if ref == "" || len(o.data) > 0 {
		return nil
	}
	name, err := objectName(o.tenant, ref)
	if err != nil {
		return refuse(errcode.BadEvent, "dataref", "%s", err)
	}
	o.data, err = w.c.getObject(ctx, name)
	if objectMissing(err) {
		return refuse(errcode.BadData, "dataref", "the data are no longer in the store")
	}
	return err
}

// read gets the record, or makes one for an event that nobody recorded, and reports whether this
// entry is the one that owns it. One that does not is acknowledged: the task lives by another entry,
// or has ended, in which case its result is announced again.
func (r *run) read(ctx context.Context) (mine bool, err error) {
	rec, err := r.w.c.load(ctx, r.tenant, r.id)
	if err == nil && !r.owns(rec) || errors.Is(err, ErrUnknownTask) && r.w.c.opts.Storage.Replicas > 1 {
		rec, err = r.w.c.loadLeader(ctx, r.tenant, r.id) // an old record must not cost a task
	}
	switch {
	case errors.Is(err, ErrUnknownTask):
		r.rec = r.record(extract(ctx, r.d.msg.Header, r.ev), r.d.seq, r.d.stored)
		return true, nil
	case err != nil:
		return false, err
	}
	r.rec = rec
	switch {
	case r.w.holds(r.tenant, r.id): // the server forgot that it is being run here
		return false, nil
	case rec.Status.Terminal():
		r.w.announce(ctx, r) // whoever sent the event again wants to hear of it too
		return false, r.d.ack(ctx, r.w.c)
	case !r.owns(rec):
		return false, r.d.ack(ctx, r.w.c)
	}
	return true, nil
}

// owns reports whether the record is for this entry to work on: it is the one that the record names,
// or the one that came out of DELAYED for the run to come.
func (r *run) owns(rec entry) bool {
	if rec.Status.Terminal() {
		return false
	}
	if rec.QueueSeq != 0 {
		return rec.QueueSeq == r.d.seq
	}
	begun, err := strconv.Atoi(r.d.msg.Header.Get(runHeader))
	return (err == nil || r.d.msg.Header.Get(runHeader) == "") && begun == rec.Run
}

// settleUnrun ends or puts off a task that is not to run now.
func (r *run) settleUnrun(ctx context.Context, refused *RefusedError) (settled bool, err error) {
	now := time.Now()
	r.markLost(now)
	switch {
	case refused != nil:
		r.w.c.tel.refused.Add(ctx, 1)
		return true, r.end(ctx, r.blank(schemas.Blocked, refused.asError()), true)
	case r.rec.CancelRequested:
		return true, r.end(ctx, r.blank(schemas.Cancelled, errorCancelled()), false)
	case !r.rec.ExpiresAt.IsZero() && !now.Before(r.rec.ExpiresAt):
		return true, r.end(ctx, r.blank(schemas.Expired, errorExpired()), false)
	case r.attempts() >= r.maxAttempts():
		return true, r.end(ctx, r.blank(schemas.Dead, r.errorDead()), true)
	case r.rec.Run == 0 && r.task.NotBefore != nil && now.Before(*r.task.NotBefore):
		return true, r.delay(ctx, *r.task.NotBefore, func(e *entry) {})
	}
	return false, nil
}

// markLost closes the attempt of a worker that this entry was taken from.
func (r *run) markLost(now time.Time) {
	if n := len(r.rec.Attempts); n > 0 && r.rec.Attempts[n-1].Outcome == "" {
		r.rec.Attempts = slices.Clone(r.rec.Attempts)
		r.rec.Attempts[n-1].Outcome = outcomeLost
		r.rec.Attempts[n-1].EndedAt = now.UTC()
	}
}

// attempts counts the runs that count: all but those that a shutdown cut short.
func (r *run) attempts() int {
	n := 0
	for _, a := range r.rec.Attempts {
		if !uncounted(a.Outcome) {
			n++
		}
	}
	return n
}

func (r *run) maxAttempts() int {
	if r.task.Retry != nil && r.task.Retry.Attempts > 0 {
		return r.task.Retry.Attempts
	}
	return r.w.opts.Attempts
}

// begin puts the claim on record. errStale: somebody changed it, look again.
func (r *run) begin(ctx context.Context) error {
	now := time.Now().UTC()
	e := r.rec
	e.Status, e.Run, e.Worker, e.QueueSeq, e.WaitsFor = schemas.Running, e.Run+1, r.w.opts.Name, r.d.seq, ""
	e.LeaseUntil = now.Add(r.w.opts.AckWait)
	if e.StartedAt.IsZero() {
		e.StartedAt = now
	}
	if e.Code == "" && r.task.Code != "" && len(r.task.Code) <= inlineMax {
		e.Code, e.GeneratedBy = r.task.Code, "caller" // needs no write of its own
	}
	if e.Catalogue == "" && r.w.opts.Catalogue != nil {
		e.Catalogue = r.w.opts.Catalogue(ctx, r.tenant)
	}
	e.Attempts = append(slices.Clone(e.Attempts), schemas.Attempt{Run: e.Run, Worker: e.Worker, StartedAt: now})
	if len(e.Attempts) > maxAttempts {
		i := slices.IndexFunc(e.Attempts, func(a schemas.Attempt) bool { return uncounted(a.Outcome) })
		e.Attempts = slices.Delete(e.Attempts, max(0, i), max(0, i)+1)
	}
	r.prepare(ctx)
	err := r.w.c.swap(ctx, &e)
	if errors.Is(err, errAmbiguous) {
		if fresh, readErr := r.w.c.loadLeader(ctx, r.tenant, r.id); readErr != nil {
			return errors.Join(err, readErr)
		} else if !sameAttempt(fresh, e) {
			return errStale
		} else {
			e.rev, err = fresh.rev, nil
		}
	}
	if err == nil {
		r.rec, r.claimed = e, true
	}
	return err
}

// sameAttempt reports whether the latest attempt of two records is one and the same.
func sameAttempt(a, b entry) bool {
	n, m := len(a.Attempts), len(b.Attempts)
	return a.Run == b.Run && a.Worker == b.Worker && n > 0 && m > 0 && a.Attempts[n-1].StartedAt.Equal(b.Attempts[m-1].StartedAt)
}

// refuseMessage puts a message that is no event at all among the dead letters. There is no id to
// keep a record under and no address to answer to.
func (w *Worker) refuseMessage(ctx context.Context, d *delivery, refused *RefusedError) error {
	w.c.tel.refused.Add(ctx, 1)
	seq := strconv.FormatUint(d.seq, 10)
	if err := w.c.bury(ctx, d.lane, seq, "", d.msg.Header, d.msg.Data, refused.asError()); err != nil {
		return err
	}
	return d.ack(ctx, w.c)
}
