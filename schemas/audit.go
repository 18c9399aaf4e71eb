package schemas

import "time"

// AuditEntry is one line of a tenant's audit: a tool call of a task, as the fleet saw it. Arguments and
// answers are not in it, only their sizes, and the digest of the arguments.
type AuditEntry struct {
	Time        time.Time `json:"time"`  // when it happened, not when it was written
	Event       string    `json:"event"` // one of the constants below
	TaskID      string    `json:"task_id"`
	Run         int       `json:"run"` // of the task, from 1
	Tenant      string    `json:"tenant"`
	Session     string    `json:"session,omitempty"`
	Server      string    `json:"server"`
	Tool        string    `json:"tool"`
	ArgsHash    string    `json:"args_hash"` // SHA-256 of the arguments as the program gave them
	ArgsBytes   int       `json:"args_bytes"`
	ResultBytes int       `json:"result_bytes"`
	MS          float64   `json:"ms"` // how long the call took, in milliseconds
	OK          bool      `json:"ok"`
	Code        string    `json:"code,omitempty"` // of the error
	Replayed    bool      `json:"replayed"`       // answered from the journal of an earlier run, not made again

	Call       string `json:"call,omitempty"`     // of a call that somebody was asked about: its name within the task
	Approval   string `json:"approval,omitempty"` // what they said: approved, denied or expired
	ApprovedBy string `json:"approved_by,omitempty"`
}

// The events of a call, in their order. Begin is written, before the call is made, for one that may
// change something; decided, for one that somebody was asked about; end, for every one.
const (
	AuditBegin   = "begin"
	AuditDecided = "decided"
	AuditEnd     = "end"
)
