package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

const (
	bucketWorkflows = "WORKFLOWS"

	// workflowsRetention is how long a key is kept after its last write. A workflow run takes 30 days at most, and is
	// kept for 30 days after its end.
	workflowsRetention = 60 * 24 * time.Hour

	runKey = "run" // the record of a run is at <tenant>.<run>.run; its values are at <tenant>.<run>.value.<key>

	// WorkflowSource begins the source of a workflow run's tasks. The id and the depth of the run follow.
	WorkflowSource = "/codefleet/workflows/"

	// TriggerSource begins the source of a trigger's tasks. The trigger's name follows.
	TriggerSource = "/codefleet/triggers/"
)

// Errors of Workflows.
var (
	ErrRunNotFound = errors.New("no such workflow run")
	ErrRunConflict = errors.New("the workflow run has a different revision")
)

// Workflows is the bucket of workflow runs: for each, a record that is changed by compare-and-swap, and values that
// never change. It is safe for concurrent use.
type Workflows struct {
	kv jetstream.KeyValue
	c  *Client
}

func (c *Client) provisionWorkflows(ctx context.Context, replicas int) error {
	return c.provisionBucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketWorkflows, Description: "workflow runs and the results of their steps", History: 1,
		Storage: jetstream.FileStorage, Replicas: replicas, TTL: workflowsRetention,
	})
}

// Workflows opens the bucket that Provision creates.
func (c *Client) Workflows(ctx context.Context) (*Workflows, error) {
	kv, err := c.js.KeyValue(ctx, bucketWorkflows)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", bucketWorkflows, err)
	}
	return &Workflows{kv, c}, nil
}

func workflowKey(tenant, run, key string) string { return tenant + "." + run + "." + key }

// Get returns the record of a run and its revision, or ErrRunNotFound.
func (b *Workflows) Get(ctx context.Context, tenant, run string) (record []byte, rev uint64, err error) {
	return b.read(ctx, workflowKey(tenant, run, runKey))
}

// Value returns a value of a run, or ErrRunNotFound.
func (b *Workflows) Value(ctx context.Context, tenant, run, key string) ([]byte, error) {
	value, _, err := b.read(ctx, workflowKey(tenant, run, "value."+key))
	return value, err
}

// read reads from the leader, which knows every acknowledged write.
func (b *Workflows) read(ctx context.Context, key string) ([]byte, uint64, error) {
	last, err := b.c.keyOfLeader(ctx, bucketWorkflows, key)
	if err == nil && last.Seq == 0 {
		err = ErrRunNotFound
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", key, err)
	}
	return last.Data, last.Seq, nil
}

// Swap writes the record of a run if it still has the revision, and returns the new one. Revision 0 means that the run
// does not exist. After ErrRunConflict nothing was written; after any other error, the record may have been written.
func (b *Workflows) Swap(ctx context.Context, tenant, run string, record []byte, rev uint64) (uint64, error) {
	next, err := swapKey(ctx, b.kv, workflowKey(tenant, run, runKey), record, rev)
	if errors.Is(err, errStale) {
		err = ErrRunConflict
	}
	if err != nil {
		return 0, fmt.Errorf("write workflow run %s: %w", run, err)
	}
	return next, nil
}

// Put writes a value of a run. The same key always has the same value.
func (b *Workflows) Put(ctx context.Context, tenant, run, key string, value []byte) error {
	if _, err := b.kv.Put(ctx, workflowKey(tenant, run, "value."+key), value); err != nil {
		return fmt.Errorf("write value %s of workflow run %s: %w", key, run, err)
	}
	return nil
}

// PutNew writes a value of a run unless it exists, and returns the value that the run has.
func (b *Workflows) PutNew(ctx context.Context, tenant, run, key string, value []byte) ([]byte, error) {
	_, err := swapKey(ctx, b.kv, workflowKey(tenant, run, "value."+key), value, 0)
	if errors.Is(err, errStale) {
		return b.Value(ctx, tenant, run, key)
	}
	if err != nil {
		return nil, fmt.Errorf("write value %s of workflow run %s: %w", key, run, err)
	}
	return value, nil
}

// List returns the records of at most limit runs of a tenant: of those that were changed last, the latest first.
func (b *Workflows) List(ctx context.Context, tenant string, limit int) (records [][]byte, err error) {
	w, err := b.kv.Watch(ctx, workflowKey(tenant, "*", runKey), jetstream.IgnoreDeletes(), jetstream.MetaOnly())
	if err != nil {
		return nil, fmt.Errorf("list workflow runs: %w", err)
	}
	defer endWatch(w)
	var runs []string
	for {
		e, err := nextUpdate(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("list workflow runs: %w", err)
		}
		if e == nil {
			break
		}
		runs = append(runs, e.Key())
	}
	runs = runs[max(0, len(runs)-limit):] // in the order of their last change
	for _, key := range slices.Backward(runs) {
		data, _, err := b.read(ctx, key)
		if errors.Is(err, ErrRunNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		records = append(records, data)
	}
	return records, nil
}

// RunSource returns the source of the tasks, events and runs that a run begins. depth is how many triggers led to it.
func RunSource(run string, depth int) string {
	return WorkflowSource + run + "/" + strconv.Itoa(depth)
}

// CheckOutside refuses an event that comes from outside of the fleet and names the source of a workflow's steps. The
// fleet would treat it as the end of a step, or as an event that a step has emitted.
func CheckOutside(ev event.Event) error {
	if !strings.HasPrefix(ev.Source(), WorkflowSource) {
		return nil
	}
	r := refuse(errcode.BadEvent, "source", "only the fleet uses sources that begin with %s", WorkflowSource)
	r.Hint = "name your own system as the source"
	return r
}

// WorkflowOf returns the run that a task belongs to, and its depth.
func WorkflowOf(rec schemas.Record) (run string, depth int, ok bool) {
	rest, ok := strings.CutPrefix(rec.Source, WorkflowSource)
	if !ok {
		return "", 0, false
	}
	run, number, ok := strings.Cut(rest, "/")
	depth, err := strconv.Atoi(number)
	return run, depth, ok && err == nil && depth >= 0
}

// callEnded calls the hook Ended if the task is one of a workflow run. result is the task's whole result, which the
// record may only refer to.
func (r *run) callEnded(ctx context.Context, result *schemas.Result) error {
	if r.w.opts.Ended == nil || result == nil || !strings.HasPrefix(r.rec.Source, WorkflowSource) {
		return nil
	}
	rec := r.rec.Record
	rec.Result = result
	err := contain(ctx, r.w.log, func() error { return r.w.opts.Ended(ctx, rec) }, "task_id", r.id)
	if err != nil {
		return fmt.Errorf("advance the workflow of task %s: %w", r.id, err)
	}
	return nil
}
