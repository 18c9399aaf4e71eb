package schemas

import "time"

// AuditRecord says who called which tool, when, and how the call ended. It contains neither arguments nor results, only
// their sizes and the hash of the arguments.
type AuditRecord struct {
	Time        time.Time `json:"time"`  // when the event occurred, not when it was written
	Event       string    `json:"event"` // one of the constants below
	TaskID      string    `json:"task_id"`
	Run         int       `json:"run"` // number of the task's run, from 1
	Tenant      string    `json:"tenant"`
	Session     string    `json:"session,omitempty"`
	Server      string    `json:"server"`
	Tool        string    `json:"tool"`
	ArgsHash    string    `json:"args_hash"` // SHA-256 of the arguments, as the program passed them
	ArgsBytes   int       `json:"args_bytes"`
	ResultBytes int       `json:"result_bytes"`
	MS          float64   `json:"ms"` // duration of the call in milliseconds
	OK          bool      `json:"ok"`
	Code        string    `json:"code,omitempty"` // error code
	Replayed    bool      `json:"replayed"`       // whether the result came from the journal of an earlier run

	Call       string `json:"call,omitempty"`     // id within the task, if the call needed approval
	Approval   string `json:"approval,omitempty"` // approved, denied or expired
	ApprovedBy string `json:"approved_by,omitempty"`
}

// The events of a call, in order.
const (
	AuditBegin   = "begin"   // recorded before a call that may change something
	AuditDecided = "decided" // recorded if the call needed approval
	AuditEnd     = "end"     // recorded for every call
)
