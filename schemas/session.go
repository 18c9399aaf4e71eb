package schemas

import (
	"encoding/json"
	"maps"
	"time"
)

// Limits of a session's log.
const (
	MaxSessionTasks = 1000     // newest tasks that the fleet keeps per session, and as many checkpoints
	MaxCheckpoint   = 16 << 10 // bytes of a checkpoint as JSON
)

// Session is a session's log: the tasks that named the session, and its newest checkpoint. The paths are the
// program's, below /workspace.
type Session struct {
	SessionID    string           `json:"session_id"`
	CustomerUID  string           `json:"customer_uid"` // the tenant
	Workspace    string           `json:"workspace"`    // workspace of the newest task
	StartedAt    time.Time        `json:"started_at"`
	EndedAt      time.Time        `json:"ended_at,omitzero"` // end of the newest task
	Tasks        []SessionTask    `json:"tasks"`             // the oldest first
	TasksOmitted int              `json:"tasks_omitted"`     // older tasks that are not listed
	StateFiles   []string         `json:"state_files"`       // state documents that the listed tasks changed
	Checkpoint   *Checkpoint      `json:"checkpoint"`        // the newest; null if there is none
	Checkpoints  []CheckpointInfo `json:"checkpoints"`       // from which the session can be resumed, the newest last
}

// SessionTask is a task in the log of a session. Long texts are truncated.
type SessionTask struct {
	TaskID      string    `json:"task_id"`
	Description string    `json:"description"`
	Code        string    `json:"code"`
	Result      string    `json:"result"` // JSON, or the text itself if the result is a string
	Output      string    `json:"output"`
	Status      Status    `json:"status"`
	Error       string    `json:"error,omitempty"`
	Timestamp   time.Time `json:"timestamp"` // when the task ended
	StartedAt   time.Time `json:"started_at,omitzero"`
	Workspace   string    `json:"workspace"`
	Generation  int64     `json:"generation,omitempty"` // generation of the workspace
	StateFiles  []string  `json:"state_files,omitempty"`
}

// Checkpoint says how far the work of a session is. Its JSON is an object that has the fields of Data, too.
type Checkpoint struct {
	ID        uint64
	LastTask  string // the session's newest task at that time; empty if there was none
	Timestamp time.Time
	Data      map[string]json.RawMessage // what the program or the caller has set, such as step and context
}

// CheckpointInfo identifies a checkpoint.
type CheckpointInfo struct {
	ID        uint64    `json:"id"`
	LastTask  string    `json:"last_task,omitempty"`
	Timestamp time.Time `json:"timestamp"`
}

// checkpointFields are the fields that the fleet sets in a checkpoint's JSON.
type checkpointFields struct {
	ID        uint64    `json:"id,omitempty"`
	LastTask  string    `json:"last_task,omitempty"`
	Timestamp time.Time `json:"timestamp"`
}

// MarshalJSON implements json.Marshaler.
func (c Checkpoint) MarshalJSON() ([]byte, error) {
	fields, err := json.Marshal(checkpointFields{c.ID, c.LastTask, c.Timestamp})
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	maps.Copy(all, c.Data)
	if err := json.Unmarshal(fields, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Checkpoint) UnmarshalJSON(data []byte) error {
	var fields checkpointFields
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	c.ID, c.LastTask, c.Timestamp, c.Data = fields.ID, fields.LastTask, fields.Timestamp, nil
	if err := json.Unmarshal(data, &c.Data); err != nil {
		return err
	}
	for _, key := range []string{"id", "last_task", "timestamp"} {
		delete(c.Data, key)
	}
	return nil
}

// SessionSummary is a session in a list.
type SessionSummary struct {
	SessionID  string      `json:"session_id"`
	Workspace  string      `json:"workspace"`
	Tasks      int         `json:"tasks"` // number of tasks that are kept
	LastTask   string      `json:"last_task,omitempty"`
	LastStatus Status      `json:"last_status,omitempty"`
	EndedAt    time.Time   `json:"ended_at,omitzero"`
	Checkpoint *Checkpoint `json:"checkpoint"`
}
