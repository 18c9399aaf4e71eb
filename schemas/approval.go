package schemas

import (
	"encoding/json"
	"time"
)

// Approval is a tool call of a task that waits for somebody's word, or had it. It is a part of the
// task's record, so that the answer is there for whichever run of the task makes the call.
type Approval struct {
	Call       string          `json:"call"` // names the call within its task, the same in every run
	Server     string          `json:"server"`
	Tool       string          `json:"tool"`
	Signature  string          `json:"signature,omitempty"` // of the tool, in Python
	Arguments  json.RawMessage `json:"arguments,omitempty"` // while pending, to be read by a person: without secrets, long values cut
	ArgsHash   string          `json:"args_hash"`           // SHA-256 of the arguments as the program gave them
	ArgsBytes  int             `json:"args_bytes"`
	State      string          `json:"state"` // one of the constants below
	AskedAt    time.Time       `json:"asked_at"`
	ExpiresAt  time.Time       `json:"expires_at"`
	AnsweredAt time.Time       `json:"answered_at,omitzero"`
	By         string          `json:"by,omitempty"` // who answered: the name of a token, or nats/NAME
	Reason     string          `json:"reason,omitempty"`
	AllOfTool  bool            `json:"all_of_tool,omitempty"` // approved, with every further call of the tool in this task
}

// The states of an approval. All but pending are final for the answer; a call that is asked for again
// after it expired, or after another run withdrew it, is pending again.
const (
	ApprovalPending   = "pending"
	ApprovalApproved  = "approved"
	ApprovalDenied    = "denied"
	ApprovalExpired   = "expired"   // nobody answered in time
	ApprovalWithdrawn = "withdrawn" // the task ended first
)

// Pending are the calls of the task that wait for somebody's word at the given time.
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

// PendingApproval is a call that waits for somebody's word, and whose it is.
type PendingApproval struct {
	TaskID    string `json:"task_id"`
	Workspace string `json:"workspace"`
	Session   string `json:"session,omitempty"`
	Approval
}

// Answer is what somebody says of calls that wait.
type Answer struct {
	Call      string `json:"call,omitempty"`        // empty: every call of the task that waits now
	Approve   bool   `json:"approve"`               // false: the program gets an error instead of the tool's answer
	AllOfTool bool   `json:"all_of_tool,omitempty"` // with Approve: every further call of the same tool in this task, too
	Reason    string `json:"reason,omitempty"`      // for the program and the record; 500 bytes at most
}

// MaxReason bounds an Answer's reason, in bytes.
const MaxReason = 500
