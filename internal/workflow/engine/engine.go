// Package engine runs workflows. A run is one record in the queue, which is advanced by compare-and-swap: by the worker
// that ends the task of a step, before it acknowledges the task's message, so that a redelivery repeats the advance; by
// the process that accepts an answer or an event; and by any process when a wait is due. There is no coordinator.
//
// An advance takes effect in this order: if necessary, the alarm is widened, so that it also rings when the new record
// needs it; the values, the record and the tasks are written; and then the alarm is narrowed, so that it only rings
// when the new record needs it. The tasks' ids follow from the run and the place of the step, so a process that finds
// an incomplete advance begins them again: they are the same tasks.
package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

const (
	definitionKey = "definition"
	swapTries     = 100
	swapDelay     = 20 * time.Millisecond // the longest delay after a conflict; the average is half of it
	plansKept     = 200                   // plans in memory
	tenantsKnown  = 1000                  // tenants whose number of active runs is in memory
	atOnce        = 8                     // parallel writes of a run, and parallel effects
	maxResults    = 4 << 20               // bytes of results that Get adds to a run
)

// Engine runs the workflows of all tenants. It is safe for concurrent use.
type Engine struct {
	// Retain keeps a version of a workspace until a time. The engine may call it again with the same arguments.
	// Processes that end tasks set it, so that a run can be rerun from a step; nil keeps nothing.
	Retain func(ctx context.Context, tenant, workspace string, generation int64, until time.Time) error

	MaxRuns  int              // the maximum number of a tenant's runs that have not ended; 0 means 10,000
	HostTime func() time.Time // nil means time.Now

	queue *jobs.Client
	log   *slog.Logger

	mu     sync.Mutex
	plans  map[string]*workflow.Plan // by tenant and run; a run keeps its definition
	active map[string]active         // by tenant
	store  *jobs.Workflows
	alarms *jobs.Automations
	ahead  time.Duration // the queue's time minus this host's
	asked  time.Time     // when the queue was asked for its time, on this host's clock
}

// New returns an engine on a queue.
func New(queue *jobs.Client, log *slog.Logger) *Engine {
	return &Engine{queue: queue, log: log, plans: map[string]*workflow.Plan{}, active: map[string]active{}}
}

func refuse(code, path, format string, args ...any) *jobs.RefusedError {
	return &jobs.RefusedError{Code: code, Path: path, Message: fmt.Sprintf(format, args...)}
}

// open opens the store of the runs, once.
func (e *Engine) open(ctx context.Context) (*jobs.Workflows, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.store == nil {
		store, err := e.queue.Workflows(ctx)
		if err != nil {
			return nil, err
		}
		e.store = store
	}
	return e.store, nil
}

// read returns the record of a run and its revision.
func (e *Engine) read(ctx context.Context, tenant, id string) (run schemas.WorkflowRun, rev uint64, err error) {
	if schemas.CheckName("tenant", tenant) != nil || !names.IsTaskID(id) { // they become part of a subject
		return run, 0, jobs.ErrRunNotFound
	}
	store, err := e.open(ctx)
	if err != nil {
		return run, 0, err
	}
	data, rev, err := store.Get(ctx, tenant, id)
	if err == nil {
		err = json.Unmarshal(data, &run)
	}
	return run, rev, err
}

// plan returns the plan of the definition with which a run was started.
func (e *Engine) plan(ctx context.Context, tenant, id string) (*workflow.Plan, error) {
	e.mu.Lock()
	p := e.plans[tenant+"."+id]
	e.mu.Unlock()
	if p != nil {
		return p, nil
	}
	store, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	definition, err := store.Value(ctx, tenant, id, definitionKey)
	if err != nil {
		return nil, err
	}
	if p, err = workflow.Compile(definition); err != nil {
		return nil, fmt.Errorf("definition of workflow run %s: %w", id, err)
	}
	e.keepPlan(tenant, id, p)
	return p, nil
}

func (e *Engine) keepPlan(tenant, id string, p *workflow.Plan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.plans) >= plansKept {
		clear(e.plans)
	}
	e.plans[tenant+"."+id] = p
}

func (e *Engine) forgetPlan(run schemas.WorkflowRun) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.plans, run.Tenant+"."+run.RunID)
}

// load returns a function that returns values of a run. It reads those that are not in known, and adds them to known.
func (e *Engine) load(
	ctx context.Context, tenant, id string, known map[string]json.RawMessage,
) workflow.Load {
	return func(key string) (json.RawMessage, error) {
		if v, ok := known[key]; ok {
			return v, nil
		}
		store, err := e.open(ctx)
		if err != nil {
			return nil, err
		}
		v, err := store.Value(ctx, tenant, id, key)
		if err == nil {
			known[key] = v
		}
		return v, err
	}
}
