package jobs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Approvals of tool calls are part of the task's record, which changes by compare-and-swap: the first answer
// counts, and none is lost. The functions in this file make these changes.

// Errors of AnswerApproval, besides ErrUnknownTask. An ApprovalError wraps one of them.
var (
	ErrApprovalNotFound = errors.New("no such call waits for approval")
	ErrAlreadyAnswered  = errors.New("the call is answered already")
	ErrNotPending       = errors.New("the call no longer waits for an answer")
)

// ApprovalError says why an answer to an approval was refused, in text for the person who gave it.
type ApprovalError struct {
	Message string
	Err     error // ErrApprovalNotFound, ErrAlreadyAnswered or ErrNotPending
}

func (e *ApprovalError) Error() string { return e.Message }
func (e *ApprovalError) Unwrap() error { return e.Err }

const (
	maxPending   = 32  // calls of a task that wait at once; more are refused
	maxApprovals = 200 // calls that a record keeps
)

func isPending(a schemas.Approval) bool { return a.State == schemas.ApprovalPending }

func findApproval(r *schemas.Record, call string) int {
	return slices.IndexFunc(r.Approvals, func(a schemas.Approval) bool { return a.Call == call })
}

// addApproval adds the pending call q and returns it. If the call was answered earlier, or else all calls of its tool
// were approved, it returns the earlier approval instead. full reports that too many calls of the task are pending.
func addApproval(r *schemas.Record, q schemas.Approval) (current schemas.Approval, full bool) {
	r.Approvals = slices.Clone(r.Approvals) // the record that was read must not change
	i := findApproval(r, q.Call)
	if i >= 0 && slices.Contains([]string{schemas.ApprovalApproved, schemas.ApprovalDenied}, r.Approvals[i].State) {
		return r.Approvals[i], false
	}
	for _, a := range r.Approvals {
		if a.State == schemas.ApprovalApproved && a.AllOfTool && a.Server == q.Server && a.Tool == q.Tool {
			if i >= 0 && isPending(r.Approvals[i]) { // added by a run that was lost before it was answered
				closeApproval(&r.Approvals[i], schemas.ApprovalApproved)
				r.Approvals[i].By, r.Approvals[i].Reason, r.Approvals[i].AnsweredAt = a.By, a.Reason, a.AnsweredAt
			}
			return a, false
		}
	}
	if i >= 0 {
		if isPending(r.Approvals[i]) { // added by a run that was lost
			r.Approvals[i].ExpiresAt = q.ExpiresAt
		} else {
			r.Approvals[i] = q
		}
		return r.Approvals[i], false
	}
	pending := 0
	for _, a := range r.Approvals {
		if isPending(a) {
			pending++
		}
	}
	if pending >= maxPending {
		return q, true
	}
	if len(r.Approvals) >= maxApprovals {
		droppable := func(a schemas.Approval) bool { return !isPending(a) && !a.AllOfTool }
		i := slices.IndexFunc(r.Approvals, droppable)
		if i < 0 { // drop an answer for all calls of a tool rather than a pending call
			i = slices.IndexFunc(r.Approvals, func(a schemas.Approval) bool { return !isPending(a) })
		}
		r.Approvals = slices.Delete(r.Approvals, i, i+1)
	}
	r.Approvals = append(r.Approvals, q)
	return q, false
}

// expireApproval expires a pending call. It returns the call, which may have been answered just before.
func expireApproval(r *schemas.Record, call string) schemas.Approval {
	r.Approvals = slices.Clone(r.Approvals)
	i := findApproval(r, call)
	if i < 0 {
		return schemas.Approval{Call: call, State: schemas.ApprovalExpired}
	}
	if isPending(r.Approvals[i]) {
		closeApproval(&r.Approvals[i], schemas.ApprovalExpired)
	}
	return r.Approvals[i]
}

// withdrawApprovals withdraws all pending calls when the task has ended.
func withdrawApprovals(r *schemas.Record) {
	if !slices.ContainsFunc(r.Approvals, isPending) {
		return
	}
	r.Approvals = slices.Clone(r.Approvals)
	for i := range r.Approvals {
		if isPending(r.Approvals[i]) {
			closeApproval(&r.Approvals[i], schemas.ApprovalWithdrawn)
		}
	}
}

// closeApproval sets a call's final state. It drops what a person needed to decide, and keeps the hash of
// the arguments.
func closeApproval(a *schemas.Approval, state string) {
	a.State, a.Arguments, a.Signature, a.Effects = state, nil, "", ""
}

// answerApproval records an answer by a person, and reports whether that changed anything: the same answer to one call
// may be given twice. An answer without a call is for all pending calls; it may be given twice with the same time,
// after an error that leaves unknown whether it was stored. The error is an *ApprovalError.
func answerApproval(r *schemas.Record, a schemas.Decision, by string, now time.Time) (changed bool, err error) {
	r.Approvals = slices.Clone(r.Approvals)
	if a.Call == "" {
		if slices.ContainsFunc(r.Approvals, func(q schemas.Approval) bool {
			return q.By == by && q.AnsweredAt.Equal(now)
		}) {
			return false, nil // it was stored
		}
		for i := range r.Approvals {
			if q := &r.Approvals[i]; isPending(*q) && now.Before(q.ExpiresAt) && !r.Status.Terminal() {
				decide(q, a, by, now)
				changed = true
			}
		}
		if !changed {
			return false, &ApprovalError{"no call of this task waits for approval", ErrApprovalNotFound}
		}
		return true, nil
	}
	i := findApproval(r, a.Call)
	if i < 0 {
		return false, &ApprovalError{"no call of this task waits for approval under that name", ErrApprovalNotFound}
	}
	switch q := &r.Approvals[i]; {
	case q.State == schemas.ApprovalApproved || q.State == schemas.ApprovalDenied:
		approved := q.State == schemas.ApprovalApproved
		if approved == a.Approve && q.AllOfTool == (a.AllOfTool && a.Approve) && q.By == by {
			return false, nil
		}
		at := q.AnsweredAt.Format(time.RFC3339)
		text := fmt.Sprintf("the call was already %s, by %s at %s", q.State, q.By, at)
		return false, &ApprovalError{text, ErrAlreadyAnswered}
	case q.State == schemas.ApprovalWithdrawn || r.Status.Terminal():
		return false, &ApprovalError{fmt.Sprintf("the call no longer waits: its task is %s", r.Status), ErrNotPending}
	case q.State == schemas.ApprovalExpired || !now.Before(q.ExpiresAt):
		at := q.ExpiresAt.Format(time.RFC3339)
		return false, &ApprovalError{"the call no longer waits: it expired without an answer at " + at, ErrNotPending}
	default:
		decide(q, a, by, now)
		return true, nil
	}
}

func decide(q *schemas.Approval, a schemas.Decision, by string, now time.Time) {
	state := schemas.ApprovalDenied
	if a.Approve {
		state = schemas.ApprovalApproved
	}
	closeApproval(q, state)
	q.AllOfTool = a.Approve && a.AllOfTool
	q.AnsweredAt, q.By, q.Reason = now, by, validPrefix(a.Reason, schemas.MaxReason)
}

// validPrefix returns the first n bytes of s as valid UTF-8. It does not mark the cut.
func validPrefix(s string, n int) string { return strings.ToValidUTF8(s[:min(n, len(s))], "") }
