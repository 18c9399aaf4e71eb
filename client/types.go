package client

import (
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Types for tasks and their results. Package schemas documents their fields.
type (
	// Task specifies what to do, in exactly one of Description, Code, Skill and Workflow, and the settings for it.
	// A task with a Workflow starts a run of it, whose id is the task's, and ends at once: see WorkflowRun.
	Task = schemas.Task
	// File is a file to place in the workspace before the program runs.
	File = schemas.File
	// ToolChoice restricts the tools that a task may call.
	ToolChoice = schemas.ToolChoice
	// Limits bound one execution. A zero field selects the fleet's default.
	Limits = schemas.Limits
	// Network is a request for egress to the named hosts.
	Network = schemas.Network
	// EgressAttempt describes the attempts to connect to one host and port that had the same verdict.
	EgressAttempt = schemas.EgressAttempt
	// Retry specifies how often, after which outcomes, and with which delay a task is retried.
	Retry = schemas.Retry
	// Record is the state of a task, with its result once the task has ended.
	Record = schemas.Record
	// Result is the outcome of a task.
	Result = schemas.Result
	// Progress is a stage or a piece of output of a running task.
	Progress = schemas.Progress
	// Finding is what a guardrail, a plugin or the fleet itself says about a task.
	Finding = schemas.Finding
	// Artifact is a file that a task returns.
	Artifact = schemas.Artifact
	// Status is the status of a task.
	Status = schemas.Status
)

// The statuses of a task. [Status.Terminal] reports whether the task has ended.
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

// Submission is a task and its envelope. Its JSON, one object with the fields of both, is the body of POST /v1/tasks.
type Submission struct {
	Task

	// Workspace is the workspace that the program finds at /workspace. The default is the tenant's main workspace.
	Workspace string `json:"workspace,omitempty"`
	// Session is the session that the task belongs to, if any.
	Session string `json:"session,omitempty"`
	// Priority is high, normal (the default) or low.
	Priority string `json:"priority,omitempty"`
	// ReplyTo is a NATS subject to which the result is published as a CloudEvent:
	// notify.<tenant>.reply.> or _INBOX.<tenant>.>
	ReplyTo string `json:"replyto,omitempty"`
	// ExpiresAt is the time after which the task expires unless it has ended. The zero time disables expiry.
	ExpiresAt time.Time `json:"expirytime,omitzero"`
	// Source is the CloudEvents source. The default is the client's source.
	Source string `json:"source,omitempty"`
	// IdempotencyKey makes the submission repeatable: submissions with the same tenant, source and key are one task.
	// The default is a random key.
	IdempotencyKey string `json:"idempotencykey,omitempty"`
	// PartitionKey is the key of the result's event: each webhook gets the results with one key in the order in which
	// their tasks ended.
	PartitionKey string `json:"partitionkey,omitempty"`
}

// Event is a stage or a piece of output of a task. Sequence numbers increase, with gaps.
type Event struct {
	Seq uint64
	Progress
}

// ListOptions filter a list of tasks.
type ListOptions struct {
	Status []Status // only tasks with one of these statuses; empty selects all tasks
	Limit  int      // from 1 to 1000; 0 selects 100
}

// Types for operators. Package schemas documents their fields.
type (
	// Fleet lists the workers and the backlog of each task pool.
	Fleet = schemas.Fleet
	// Worker is the presence of a worker.
	Worker = schemas.Worker
	// Environment is what the programs of task pools find in a worker's boxes.
	Environment = schemas.Environment
	// Backlog is the load of one task pool.
	Backlog = schemas.Backlog
	// DeadTask is a task or an event in the dead-letter queue, with the reason.
	DeadTask = schemas.DeadTask
	// Redriven says which dead-lettered tasks one request has redriven, and where the next request continues.
	Redriven = schemas.Redriven
	// RedrivenTask is the outcome of redriving one task: its new status, or why it was not redriven.
	RedrivenTask = schemas.RedrivenTask
)
