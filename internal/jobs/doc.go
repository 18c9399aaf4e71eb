// Package jobs is the queue of the fleet on NATS JetStream. It accepts task events, gives each task to one
// worker at a time, and keeps one record per task. It does not know what a task does: that is up to the
// Handler. Apart from tests, it is the only package of the fleet that uses nats.go.
//
// The record (bucket TASKSTATE) is the single truth about a task. Every transition replaces it by
// compare-and-swap, so a worker that has lost its lease cannot complete the task:
//
//	submit       publish the event to TASKS, then create the record (queued)
//	claim        swap the record to running with the next run number, then call the handler
//	complete     swap the record to a terminal status, with the result
//	acknowledge  send the result event to the caller's replyto, then remove the message from TASKS
//
// A crash between two steps leaves a message that is delivered again. The worker that gets it reads the record
// first. If the record is terminal, the worker publishes the result again and acknowledges; if the task's worker
// was lost, it claims the next run. A task may run more than once, but completes exactly once.
//
// A task takes four forms in turn: a submission (a checked event), a message (one delivery of the queue), a run
// (a worker's handling of one message), and a Job (a run as its Handler sees it).
//
// The key types are Client (submit, read, wait, watch, cancel) and Worker (claim and run). Each group of files
// builds on those below it:
//
//	worker     dispatch, scheduler, claim, execute, complete, requeue, job, run, worker, heartbeat, lanes, …
//	client     submit, cancel, wait, watch, approvals, deadletters, redrive, backlog, presence, journal, recorder,
//	           automations, follow, …
//	records    records, result, approvalstate, submission, publish, events, read, index, objects
//	base       client, streams, lane, telemetry, binding, policy, options, errors
package jobs
