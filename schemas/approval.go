package schemas

import (
	"encoding/json"
	"time"
)

// Approval is a tool call that needs a person's approval, with the answer once there is one. It is part of the
// task's record, so that a later run of the task finds the answer.
type Approval struct {
	Call       string          `json:"call"` // identifies the call within its task, the same in every run
	Server     string          `json:"server"`
	Tool       string          `json:"tool"`
	Signature  string          `json:"signature,omitempty"` // of the tool, in Python
	Arguments  json.RawMessage `json:"arguments,omitempty"` // while pending; redacted and truncated
	ArgsHash   string          `json:"args_hash"`           // SHA-256 of the arguments, as the program passed them
	ArgsBytes  int             `json:"args_bytes"`
	State      string          `json:"state"` // one of the constants below
	AskedAt    time.Time       `json:"asked_at"`
	ExpiresAt  time.Time       `json:"expires_at"`
	AnsweredAt time.Time       `json:"answered_at,omitzero"`
	By         string          `json:"by,omitempty"` // the name of the token that answered, or nats/NAME
	Reason     string          `json:"reason,omitempty"`
	AllOfTool  bool            `json:"all_of_tool,omitempty"` // also for later calls of the tool in this task
}

// The states of an approval. An approval that is not pending cannot be answered. If a later run makes an
// expired or withdrawn call again, it is pending again.
const (
	ApprovalPending   = "pending"
	ApprovalApproved  = "approved"
	ApprovalDenied    = "denied"
	ApprovalExpired   = "expired"   // not answered in time
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

// Answer approves or denies pending calls of a task.
type Answer struct {
	Call      string `json:"call,omitempty"`        // empty: every pending call of the task
	Approve   bool   `json:"approve"`               // false: the program gets an error instead of the tool's result
	AllOfTool bool   `json:"all_of_tool,omitempty"` // with Approve: also later calls of the tool in this task
	Reason    string `json:"reason,omitempty"`      // for the program and the record; at most 500 bytes
}

// MaxReason is the limit of an Answer's reason in bytes.
const MaxReason = 500
