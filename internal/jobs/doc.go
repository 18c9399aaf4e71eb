// Package jobs is the queue of the fleet on NATS JetStream: it takes task events, hands each to one
// worker at a time, and keeps one record per task that says where it stands. It knows nothing of
// what a task does; that is the Handler's business. Besides internal/embedded it is the only user
// of nats.go.
//
// The record (bucket TASKSTATE) is the single truth. Every transition replaces it by
// compare-and-swap, so a worker that has lost its lease can finish nothing:
//
//	submit    publish the event to TASKS, then create the record (queued)
//	claim     compare-and-swap to running, run + 1; the handler starts after it
//	complete  compare-and-swap to a terminal status, result included
//	then      result event to the caller's replyto, then the acknowledgement that removes the entry
//
// A crash between any two steps leaves an entry that is delivered again, and whoever gets it reads
// the record first: a terminal record is announced again and the entry removed, a running one of a
// lost worker is claimed for the next run. A task runs at least once and completes exactly once.
//
// The key types are Client (submit, read, wait, watch, cancel) and Worker (take and run).
package jobs
