package client

import (
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// The shapes that the fleet speaks; package schemas documents their fields.
type (
	// Task says what to do: exactly one of Description, Code, Skill and Workflow, and what goes with it.
	Task = schemas.Task
	// File is a file placed in the workspace before the program runs.
	File = schemas.File
	// ToolChoice narrows the tools a task may use.
	ToolChoice = schemas.ToolChoice
	// Limits bound one run of a program. Zero means the fleet's default.
	Limits = schemas.Limits
	// Network asks for outgoing connections to the named hosts.
	Network = schemas.Network
	// EgressAttempt is one host that the program tried to reach, and what became of it.
	EgressAttempt = schemas.EgressAttempt
	// Retry says how often, after what, and with which pause a task is run again.
	Retry = schemas.Retry
	// Record is the single truth about a task: where it stands, and its result once it has ended.
	Record = schemas.Record
	// Result is how a task ended.
	Result = schemas.Result
	// Progress is one step or one piece of output of a running task.
	Progress = schemas.Progress
	// Artifact is one file that a task hands back.
	Artifact = schemas.Artifact
	// Status is where a task stands.
	Status = schemas.Status
)

// The states of a task; see [Status.Terminal].
const (
	Queued    = schemas.Queued
	Running   = schemas.Running
	RetryWait = schemas.RetryWait
	Succeeded = schemas.Succeeded
	Failed    = schemas.Failed
	Blocked   = schemas.Blocked
	Timeout   = schemas.Timeout
	Cancelled = schemas.Cancelled
	Expired   = schemas.Expired
	Dead      = schemas.Dead
)

// Submission is a task and what is written on its envelope. Its JSON is the body of POST /v1/tasks:
// the fields of the task and those of the envelope side by side.
type Submission struct {
	Task

	// Workspace and Session are where the task runs; empty are the tenant's main workspace and no
	// session.
	Workspace string `json:"workspace,omitempty"`
	Session   string `json:"session,omitempty"`
	// Priority is high, normal (the default) or low.
	Priority string `json:"priority,omitempty"`
	// ReplyTo is a NATS subject to which the result is published as a CloudEvent:
	// notify.<tenant>.reply.> or _INBOX.<tenant>.>
	ReplyTo string `json:"replyto,omitempty"`
	// ExpiresAt is when the task is no longer worth running. Zero is never.
	ExpiresAt time.Time `json:"expirytime,omitzero"`
	// Source is the CloudEvents source; empty is the client's.
	Source string `json:"source,omitempty"`
	// IdempotencyKey makes the submission repeatable: the same tenant, source and key are one task.
	// Empty is a key that is used once.
	IdempotencyKey string `json:"idempotencykey,omitempty"`
}

// Event is one step or one piece of output of a task, with its place in the stream. Sequence numbers
// grow, with gaps.
type Event struct {
	Seq uint64
	Progress
}

// ListOptions narrows a list of tasks.
type ListOptions struct {
	Status []Status // any of these; empty is all
	Limit  int      // at most this many; 0 is 100, the most is 1000
}

// DeadTask is a task that the fleet gave up, or an event that could not become one, and why.
type DeadTask struct {
	Seq     uint64            `json:"seq"` // its place in the dead letter queue
	Time    time.Time         `json:"time"`
	Tenant  string            `json:"tenant"`
	TaskID  string            `json:"task_id,omitempty"` // empty when the event told none
	Subject string            `json:"subject"`           // on which it came
	Error   schemas.Error     `json:"error"`
	Event   map[string]string `json:"event,omitempty"` // attributes of the event, without its data
}

// Fleet is what an operator, or an autoscaler, wants to know.
type Fleet struct {
	Workers []Worker  `json:"workers"`
	Backlog []Backlog `json:"backlog"`
}

// Worker is one worker as it last reported itself.
type Worker struct {
	Name    string         `json:"name"`
	Host    string         `json:"host"`
	Version string         `json:"version,omitempty"`
	Started time.Time      `json:"started"`
	Seen    time.Time      `json:"seen"`
	Pools   []string       `json:"pools"`
	Slots   int            `json:"slots"`
	Busy    int            `json:"busy"`
	State   string         `json:"state"`             // running | draining
	Sandbox map[string]any `json:"sandbox,omitempty"` // driver, engine_version, tier, limits
	Boxes   map[string]int `json:"boxes,omitempty"`   // warming, ready, bound, leased, max
	Extra   map[string]any `json:"extra,omitempty"`

	Environments []Environment `json:"environments,omitempty"`
}

// Environment is what programs of a worker's pools can import: each pool has the one of its name, or
// the worker's first.
type Environment struct {
	Name     string         `json:"name"`
	What     string         `json:"what,omitempty"`     // empty until it was prepared
	Packages []string       `json:"packages,omitempty"` // with versions, beside Python's own modules
	Boxes    map[string]int `json:"boxes,omitempty"`    // warming, ready, bound, leased, waiting
	Error    string         `json:"error,omitempty"`    // why it has no boxes
	Reason   string         `json:"reason,omitempty"`   // the same in a word
}

// Backlog is the load of one pool.
type Backlog struct {
	Pool       string  `json:"pool"`
	Queued     int     `json:"queued"`       // waiting for a worker
	Running    int     `json:"running"`      // handed to one
	OldestAgeS float64 `json:"oldest_age_s"` // of the oldest queued task; 0 when none is queued
}
