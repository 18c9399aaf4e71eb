package schemas

import (
	"encoding/json"
	"time"
)

// Approval is a tool call that needs a person's approval, and the decision, if there is one. It is part of the
// task's record, so that a later run of the task finds the decision.
type Approval struct {
	Call       string          `json:"call"` // identifies the call within its task, the same in every run
	Server     string          `json:"server"`
	Tool       string          `json:"tool"`
	Signature  string          `json:"signature,omitempty"` // the tool's Python signature, only while pending
	Effects    string          `json:"effects,omitempty"`   // as the tool's definition declares them, only while pending
	Arguments  json.RawMessage `json:"arguments,omitempty"` // redacted and truncated, only while pending
	ArgsHash   string          `json:"args_hash"`           // SHA-256 of the arguments, as the program passed them
	ArgsBytes  int             `json:"args_bytes"`
	State      string          `json:"state"` // one of the constants below
	AskedAt    time.Time       `json:"asked_at"`
	ExpiresAt  time.Time       `json:"expires_at"`
	AnsweredAt time.Time       `json:"answered_at,omitzero"`
	By         string          `json:"by,omitempty"` // the name of the token that decided, or nats/NAME
	Reason     string          `json:"reason,omitempty"`
	AllOfTool  bool            `json:"all_of_tool,omitempty"` // whether it approves later calls of the tool too
}

// The states of an approval. Only a pending approval can be decided. If a later run makes an expired or withdrawn
// call again, its approval is pending again.
const (
	ApprovalPending   = "pending"
	ApprovalApproved  = "approved"
	ApprovalDenied    = "denied"
	ApprovalExpired   = "expired"   // not decided in time
	ApprovalWithdrawn = "withdrawn" // the task ended first
)

// Pending returns the calls of the task that wait for approval at the given time.
func (r Record) Pending(now time.Time) (list []Approval) {
	if r.Status.Terminal() {
		return nil
	}
	for _, a := range r.Approvals {
		if a.State == ApprovalPending && now.Before(a.ExpiresAt) {
			list = append(list, a)
		}
	}
	return list
}

// PendingApproval is a call that waits for approval, with its task.
type PendingApproval struct {
	TaskID    string `json:"task_id"`
	Workspace string `json:"workspace"`
	Session   string `json:"session,omitempty"`
	Approval
}

// Decision approves or denies pending calls of a task.
type Decision struct {
	Call      string `json:"call,omitempty"`        // empty for all pending calls of the task
	Approve   bool   `json:"approve"`               // if false, the program gets an error instead of a result
	AllOfTool bool   `json:"all_of_tool,omitempty"` // approve later calls of the tool in this task too
	Reason    string `json:"reason,omitempty"`      // for the program and the record; at most MaxReason bytes
}

// MaxReason is the largest size of a Decision's reason, in bytes.
const MaxReason = 500
