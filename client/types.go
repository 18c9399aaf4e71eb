package client

import (
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Types of tasks and their results; package schemas documents their fields.
type (
	// Task is what to do: exactly one of Description, Code, Skill and Workflow, and its settings.
	Task = schemas.Task
	// File is a file placed in the workspace before the program runs.
	File = schemas.File
	// ToolChoice restricts the tools that a task may call.
	ToolChoice = schemas.ToolChoice
	// Limits bound one execution of a program. Zero is the fleet's default.
	Limits = schemas.Limits
	// Network requests egress to the named hosts.
	Network = schemas.Network
	// EgressAttempt is a connection that the program attempted, and its outcome.
	EgressAttempt = schemas.EgressAttempt
	// Retry says how often, after which outcomes, and with which delay a task is retried.
	Retry = schemas.Retry
	// Record says where a task stands, with its result once it has ended.
	Record = schemas.Record
	// Result is how a task ended.
	Result = schemas.Result
	// Progress is a stage or a piece of output of a running task.
	Progress = schemas.Progress
	// Artifact is a file that a task returns.
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

// Submission is a task and its envelope. Its JSON is the body of POST /v1/tasks: the fields of both side by
// side.
type Submission struct {
	Task

	// Workspace is whose files the program finds at /workspace; default the tenant's main workspace. Session is
	// the session that the task belongs to; default none.
	Workspace string `json:"workspace,omitempty"`
	Session   string `json:"session,omitempty"`
	// Priority is high, normal (the default) or low.
	Priority string `json:"priority,omitempty"`
	// ReplyTo is a NATS subject to which the result is published as a CloudEvent:
	// notify.<tenant>.reply.> or _INBOX.<tenant>.>
	ReplyTo string `json:"replyto,omitempty"`
	// ExpiresAt is after when the task is not started any more. Zero is never.
	ExpiresAt time.Time `json:"expirytime,omitzero"`
	// Source is the CloudEvents source; empty is the client's.
	Source string `json:"source,omitempty"`
	// IdempotencyKey makes the submission repeatable: submissions with the same tenant, source and key are one
	// task. Default a random key.
	IdempotencyKey string `json:"idempotencykey,omitempty"`
}

// Event is a stage or a piece of output of a task. Sequence numbers increase, with gaps.
type Event struct {
	Seq uint64
	Progress
}

// ListOptions filter a list of tasks.
type ListOptions struct {
	Status []Status // any of these; empty is all
	Limit  int      // from 1 to 1000; 0 is 100
}

// Types for operators; package schemas documents the fields.
type (
	// Fleet is the workers and the backlog of each pool.
	Fleet = schemas.Fleet
	// Worker is the presence of a worker.
	Worker = schemas.Worker
	// Environment is what programs of a worker's pools can import.
	Environment = schemas.Environment
	// Backlog is the load of one pool.
	Backlog = schemas.Backlog
	// DeadTask is a task or an event in the dead-letter queue, with the reason.
	DeadTask = schemas.DeadTask
)
