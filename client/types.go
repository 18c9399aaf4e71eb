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

// What a fleet tells an operator; package schemas documents the fields.
type (
	// Fleet is what an operator, or an autoscaler, wants to know.
	Fleet = schemas.Fleet
	// Worker is one worker as it last reported itself.
	Worker = schemas.Worker
	// Environment is what programs of a worker's pools can import.
	Environment = schemas.Environment
	// Backlog is the load of one pool.
	Backlog = schemas.Backlog
	// DeadTask is a task that the fleet gave up, or an event that could not become one, and why.
	DeadTask = schemas.DeadTask
)
