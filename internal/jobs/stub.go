package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/schemas"
)

// Client talks to the queue. It is safe for use by several goroutines.
type Client struct{ opts Options }

// Connect reaches the server and checks its version. It does not create streams: see Provision.
func Connect(ctx context.Context, opts Options) (*Client, error) { return nil, errors.ErrUnsupported }

// Close drains the connection: what was published is sent, subscriptions end.
func (c *Client) Close() {}

// Provision creates the streams and buckets, or updates them to this version's settings. It may be
// called by several processes at once and again at any time; nothing stored is lost.
func (c *Client) Provision(ctx context.Context) error { return errors.ErrUnsupported }

// Submit queues the task that ev describes for tenant and returns its record. The pool, when the
// data names none, is "default"; the priority, when the attribute is absent, "normal".
//
// It is idempotent for the life of the record: the same tenant, source and key (idempotencykey, or
// else id) is the same task, whatever has become of it. When the data differ the record of the first
// is returned with ErrOtherData. Other errors: *RefusedError, ErrBacklogFull, or the connection's;
// after the latter the task may or may not be queued, and Submit may be called again.
// Data above 256 KiB travels through the object store, up to MaxData.
func (c *Client) Submit(ctx context.Context, tenant string, ev event.Event) (schemas.Record, error) {
	return schemas.Record{}, errors.ErrUnsupported
}

// Check says whether Submit would refuse ev, without a word to the server: nil or *RefusedError.
func (c *Client) Check(tenant string, ev event.Event) error { return errors.ErrUnsupported }

// Record returns the task's record, its result made whole. ErrUnknownTask when there is none.
func (c *Client) Record(ctx context.Context, tenant, id string) (schemas.Record, error) {
	return schemas.Record{}, errors.ErrUnsupported
}

// Wait returns the record once it is terminal. When ctx ends first it returns the latest record
// seen and ctx's error.
func (c *Client) Wait(ctx context.Context, tenant, id string) (schemas.Record, error) {
	return schemas.Record{}, errors.ErrUnsupported
}

// Watch calls fn with the task's progress and output in order, starting after sequence from (0: from
// the start of what is kept), until the task has ended and everything is delivered, fn fails, or ctx
// ends. Progress is not durable: pieces may be missing, never repeated. ErrUnknownTask.
func (c *Client) Watch(ctx context.Context, tenant, id string, from uint64, fn func(seq uint64, p schemas.Progress) error) error {
	return errors.ErrUnsupported
}

// Cancel asks for the end of a task. A queued one is cancelled when Cancel returns; a running one
// ends as soon as its worker hears of it; a terminal one stays as it is. It returns the record after.
func (c *Client) Cancel(ctx context.Context, tenant, id string) (schemas.Record, error) {
	return schemas.Record{}, errors.ErrUnsupported
}

// ListOptions narrow List.
type ListOptions struct {
	Status []schemas.Status // empty: all
	Limit  int              // default 100
}

// List returns the tenant's latest tasks, newest first. Large results are left in their store
// (ResultRef says where): read the record to have them.
func (c *Client) List(ctx context.Context, tenant string, opts ListOptions) ([]schemas.Record, error) {
	return nil, errors.ErrUnsupported
}

// Dead is an entry of the dead letter queue: a task that was given up, or an event that could not
// become one.
type Dead struct {
	Seq    uint64         `json:"seq"`
	Time   time.Time      `json:"time"`
	Tenant string         `json:"tenant"`
	TaskID string         `json:"task_id,omitempty"` // empty when the event told none
	Error  schemas.Error  `json:"error"`
	Event  map[string]any `json:"event,omitempty"` // attributes of the event, without its data
}

// Dead returns the tenant's dead letters, newest first. limit 0 means 100.
func (c *Client) Dead(ctx context.Context, tenant string, limit int) ([]Dead, error) {
	return nil, errors.ErrUnsupported
}

// WorkerInfo is what a worker says about itself, every few seconds.
type WorkerInfo struct {
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
}

// Workers returns the workers that showed signs of life within the last seconds, by name.
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
	return nil, errors.ErrUnsupported
}

// PoolBacklog is the load of one pool, what an autoscaler reads.
type PoolBacklog struct {
	Pool       string  `json:"pool"`
	Queued     int     `json:"queued"`
	Running    int     `json:"running"`
	OldestAgeS float64 `json:"oldest_age_s"` // of the oldest queued task; 0 when none is queued
}

// Backlog returns the load of every pool that has a task, by name.
func (c *Client) Backlog(ctx context.Context) ([]PoolBacklog, error) {
	return nil, errors.ErrUnsupported
}

// Worker takes tasks and runs them.
type Worker struct{ opts WorkerOptions }

// NewWorker returns a worker that has not started.
func NewWorker(c *Client, opts WorkerOptions) *Worker { return &Worker{opts: opts} }

// Run takes and runs tasks until take ends, then finishes what it has. When work ends too (it should
// outlive take by the grace time), handlers are cut with ErrDraining and their tasks go back to the
// queue. Run returns when everything is settled.
func (w *Worker) Run(take, work context.Context) error { return errors.ErrUnsupported }

// Emit publishes progress or output of the task. It is not durable, keeps order, and does not wait
// for the server. TaskID, Run and Time are filled in.
func (j *Job) Emit(ctx context.Context, p schemas.Progress) {}

// SaveProgram writes the program (by: caller, llm, rules or skill) into the record before its first
// run, so that a retry runs the same. ErrLeaseLost when the task is no longer this worker's.
func (j *Job) SaveProgram(ctx context.Context, code, by string) error { return errors.ErrUnsupported }
