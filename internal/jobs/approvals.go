package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// Tool calls that wait for somebody's word are a part of their task's record: whoever asks, answers,
// takes the task over or cancels it changes that, by compare-and-swap, so the first answer counts and
// none is lost. The stream ASKED only says which tasks to look at (asked.<tenant>.<task>).

// Errors of Answer, beside ErrUnknownTask. AnswerError wraps one of them.
var (
	ErrApprovalNotFound = errors.New("no such call waits for approval")
	ErrAlreadyAnswered  = errors.New("the call has its answer")                       // somebody was first
	ErrNotPending       = errors.New("the call does not wait for an answer any more") // too late
)

// AnswerError says why an answer was not taken, in words for whoever gave it.
type AnswerError struct {
	Message string
	Err     error // ErrApprovalNotFound, ErrAlreadyAnswered or ErrNotPending
}

func (e *AnswerError) Error() string { return e.Message }
func (e *AnswerError) Unwrap() error { return e.Err }

const (
	maxPending = 32  // calls of a task that wait at once; further ones are refused
	maxAsked   = 200 // calls of a task that its record remembers
	maxListed  = 500 // tasks that Waiting looks at
)

// ErrTooManyPending is returned by RequestApproval when too many calls of the task wait already.
var ErrTooManyPending = fmt.Errorf("%d calls of the task wait for approval already", maxPending)

// RequestApproval puts a call of this run before whoever may approve it, and returns what they said: an Approval
// that is approved or denied, or, when nobody answered before q.ExpiresAt, expired. A call that has its
// answer, from an earlier run of the task or for all calls of its tool, is not asked for again. Of q
// everything up to ArgsBytes, and ExpiresAt, is the caller's. When ctx ends, the call goes on waiting,
// for the next run of the task. ErrLeaseLost when the task is no longer this worker's.
func (j *Job) RequestApproval(ctx context.Context, q schemas.Approval) (schemas.Approval, error) {
	r := j.r
	c, heard := r.w.c, make(chan *nats.Msg, 64)
	sub, err := c.nc.ChanSubscribe("notify."+r.tenant+"."+r.id, heard)
	if err != nil {
		return q, fmt.Errorf("ask for approval: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // of a closed connection, it has ended already
	// First, so that what waits by its record is in the list.
	if err := c.point(ctx, r.tenant, r.id, time.Until(q.ExpiresAt)); err != nil {
		r.w.log.WarnContext(ctx, "call that waits for approval is in no list", "task", r.id, "error", err)
	}
	q.State, q.AskedAt = schemas.ApprovalPending, time.Now().UTC()
	var now schemas.Approval
	var full bool
	if err := r.update(ctx, func(e *entry) { now, full = e.ask(q) }); err != nil {
		return q, fmt.Errorf("ask for approval: %w", err)
	}
	if full {
		return q, ErrTooManyPending
	}
	if now.State != schemas.ApprovalPending {
		return now, nil
	}
	j.Emit(ctx, schemas.Progress{Stage: "approval", Text: fmt.Sprintf("%s/%s waits for approval: codefleet approve %s %s", q.Server, q.Tool, r.id, q.Call)})
	return r.awaitAnswer(ctx, heard, now)
}

// awaitAnswer returns the approval once it is not pending. heard are hints: it reads the record itself.
func (r *run) awaitAnswer(ctx context.Context, heard <-chan *nats.Msg, a schemas.Approval) (schemas.Approval, error) {
	late := time.NewTimer(time.Until(a.ExpiresAt))
	defer late.Stop()
	again := time.NewTicker(reread)
	defer again.Stop()
	for {
		e, err := r.w.c.loadLeader(ctx, r.tenant, r.id)
		if err == nil {
			if i := e.call(a.Call); i >= 0 && e.Approvals[i].State != schemas.ApprovalPending {
				return e.Approvals[i], nil
			}
		}
		select {
		case <-heard:
		case <-again.C:
		case <-ctx.Done():
			return a, context.Cause(ctx)
		case <-late.C:
			err := r.update(ctx, func(e *entry) { a = e.expire(a.Call) })
			return a, err
		}
	}
}

// point makes a task be looked at by Waiting for a while.
func (c *Client) point(ctx context.Context, tenant, id string, d time.Duration) error {
	msg := nats.NewMsg(askedSubject(tenant) + id)
	msg.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(max(1, int64(d/time.Second)+1), 10)+"s")
	_, err := c.js.PublishMsg(ctx, msg)
	return err
}

func askedSubject(tenant string) string { return "asked." + tenant + "." }

// PendingApprovals returns the calls of a tenant's tasks that wait for somebody's word, those that were asked
// for first at the beginning.
func (c *Client) PendingApprovals(ctx context.Context, tenant string) ([]schemas.PendingApproval, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	if c.opts.Producer {
		return c.remoteWaiting(ctx, tenant)
	}
	var ids []string
	err := c.from(ctx, streamAsked, askedSubject(tenant)+"*", 1, func(m *nats.Msg) error {
		subject := m.Header.Get(jetstream.SubjectHeader)
		if id := subject[strings.LastIndexByte(subject, '.')+1:]; isTaskID(id) {
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list calls that wait for approval: %w", err)
	}
	var all []schemas.PendingApproval
	now := time.Now()
	for _, id := range ids[max(0, len(ids)-maxListed):] {
		e, err := c.find(ctx, tenant, id)
		if errors.Is(err, ErrUnknownTask) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list calls that wait for approval: %w", err)
		}
		for _, a := range e.Pending(now) {
			all = append(all, schemas.PendingApproval{TaskID: e.TaskID, Workspace: e.Workspace, Session: e.Session, Approval: a})
		}
	}
	slices.SortStableFunc(all, func(a, b schemas.PendingApproval) int { return a.AskedAt.Compare(b.AskedAt) })
	return all, nil
}

// AnswerApproval says yes or no to a call of a task that waits, or to all that wait, on behalf of by, and
// returns the task's record after. The first answer counts; the same one given again by the same is no
// error. ErrUnknownTask, or an *AnswerError.
func (c *Client) AnswerApproval(ctx context.Context, tenant, id, by string, a schemas.Answer) (schemas.Record, error) {
	if c.opts.Producer {
		return c.remoteAnswer(ctx, tenant, id, by, a)
	}
	for range claimTries {
		e, err := c.find(ctx, tenant, id)
		if err != nil {
			return schemas.Record{}, err
		}
		changed, err := e.answer(a, by, time.Now().UTC())
		if err == nil && changed {
			err = c.swap(ctx, &e)
		}
		if errors.Is(err, errStale) || errors.Is(err, errAmbiguous) && ctx.Err() == nil {
			continue // read and see
		}
		if err != nil {
			return schemas.Record{}, err
		}
		return c.whole(ctx, e)
	}
	return schemas.Record{}, fmt.Errorf("answer for task %s: its record kept changing", id)
}

func (e *entry) call(id string) int {
	return slices.IndexFunc(e.Approvals, func(a schemas.Approval) bool { return a.Call == id })
}

// ask enters q, unless it, or every call of its tool, has its answer: then that is returned.
func (e *entry) ask(q schemas.Approval) (now schemas.Approval, full bool) {
	e.Approvals = slices.Clone(e.Approvals) // the record as it was read stays as it is
	for _, a := range e.Approvals {
		if a.State == schemas.ApprovalApproved && a.AllOfTool && a.Server == q.Server && a.Tool == q.Tool {
			return a, false
		}
	}
	if i := e.call(q.Call); i >= 0 {
		switch e.Approvals[i].State {
		case schemas.ApprovalApproved, schemas.ApprovalDenied:
		case schemas.ApprovalPending: // of a run that was lost
			e.Approvals[i].ExpiresAt = q.ExpiresAt
		default:
			e.Approvals[i] = q
		}
		return e.Approvals[i], false
	}
	pending := 0
	for _, a := range e.Approvals {
		if a.State == schemas.ApprovalPending {
			pending++
		}
	}
	if pending >= maxPending {
		return q, true
	}
	if len(e.Approvals) >= maxAsked {
		i := slices.IndexFunc(e.Approvals, func(a schemas.Approval) bool { return a.State != schemas.ApprovalPending && !a.AllOfTool })
		e.Approvals = slices.Delete(e.Approvals, max(0, i), max(0, i)+1)
	}
	e.Approvals = append(e.Approvals, q)
	return q, false
}

// expire ends the wait for an answer that did not come; one that came after all is returned.
func (e *entry) expire(call string) schemas.Approval {
	e.Approvals = slices.Clone(e.Approvals)
	i := e.call(call)
	if i < 0 {
		return schemas.Approval{Call: call, State: schemas.ApprovalExpired}
	}
	if e.Approvals[i].State == schemas.ApprovalPending {
		settleApproval(&e.Approvals[i], schemas.ApprovalExpired)
	}
	return e.Approvals[i]
}

// withdraw ends the wait of all calls: the task has ended.
func (e *entry) withdraw() {
	if !slices.ContainsFunc(e.Approvals, func(a schemas.Approval) bool { return a.State == schemas.ApprovalPending }) {
		return
	}
	e.Approvals = slices.Clone(e.Approvals)
	for i := range e.Approvals {
		if e.Approvals[i].State == schemas.ApprovalPending {
			settleApproval(&e.Approvals[i], schemas.ApprovalWithdrawn)
		}
	}
}

// settleApproval gives an approval its last state. What was there for a person to decide by is not
// kept: the digest is.
func settleApproval(a *schemas.Approval, state string) {
	a.State, a.Arguments, a.Signature = state, nil, ""
}

// answer enters an answer, and reports whether that changes anything.
func (e *entry) answer(a schemas.Answer, by string, now time.Time) (changed bool, err error) {
	e.Approvals = slices.Clone(e.Approvals)
	if a.Call == "" {
		for i := range e.Approvals {
			if q := &e.Approvals[i]; q.State == schemas.ApprovalPending && now.Before(q.ExpiresAt) && !e.Status.Terminal() {
				decide(q, a, by, now)
				changed = true
			}
		}
		if !changed {
			return false, &AnswerError{"no call of this task waits for approval", ErrApprovalNotFound}
		}
		return true, nil
	}
	i := e.call(a.Call)
	if i < 0 {
		return false, &AnswerError{"no call of this task waits for approval under that name", ErrApprovalNotFound}
	}
	switch q := &e.Approvals[i]; {
	case q.State == schemas.ApprovalApproved || q.State == schemas.ApprovalDenied:
		same := (q.State == schemas.ApprovalApproved) == a.Approve && q.AllOfTool == (a.AllOfTool && a.Approve) && q.By == by
		if same { // sent twice
			return false, nil
		}
		return false, &AnswerError{fmt.Sprintf("the call was %s already, by %s at %s", q.State, q.By, q.AnsweredAt.Format(time.RFC3339)), ErrAlreadyAnswered}
	case q.State == schemas.ApprovalWithdrawn || e.Status.Terminal():
		return false, &AnswerError{fmt.Sprintf("the call does not wait any more: its task is %s", e.Status), ErrNotPending}
	case q.State == schemas.ApprovalExpired || !now.Before(q.ExpiresAt):
		return false, &AnswerError{"the call does not wait any more: nobody answered until " + q.ExpiresAt.Format(time.RFC3339), ErrNotPending}
	default:
		decide(q, a, by, now)
		return true, nil
	}
}

func decide(q *schemas.Approval, a schemas.Answer, by string, now time.Time) {
	settleApproval(q, schemas.ApprovalDenied)
	if a.Approve {
		q.State, q.AllOfTool = schemas.ApprovalApproved, a.AllOfTool
	}
	q.AnsweredAt, q.By, q.Reason = now, by, cutText(a.Reason, schemas.MaxReason)
}

// cutText is the beginning of s, as valid text.
func cutText(s string, n int) string { return strings.ToValidUTF8(s[:min(n, len(s))], "") }
