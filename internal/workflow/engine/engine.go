// Package engine runs workflows. A run is one record in the queue, which is advanced by compare-and-swap: by the worker
// that ends the task of a step, before it acknowledges the task's message, so that a redelivery repeats the advance; by
// the process that accepts an answer or an event; and by any process when a wait is due. There is no coordinator.
//
// The order of effects of an advance is: values, record, alarm, tasks. The tasks' ids follow from the run and the place
// of the step, so whoever finds an advance that was not completed can begin them again: each is the same task.
package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

const (
	definitionKey = "definition"
	swapTries     = 100
	swapPause     = 20 * time.Millisecond // at most, on average half of it, after a conflict
	plansKept     = 200
	maxResults    = 4 << 20 // bytes of results that Get adds to a run
	triggerSource = "/codefleet/triggers/"
)

// Engine runs the workflows of all tenants. It is safe for concurrent use.
type Engine struct {
	queue *jobs.Client
	log   *slog.Logger

	mu    sync.Mutex
	plans map[string]*workflow.Plan // by tenant and run; a run keeps its definition
	store *jobs.Workflows
}

// New returns an engine on a queue.
func New(queue *jobs.Client, log *slog.Logger) *Engine {
	return &Engine{queue: queue, log: log, plans: map[string]*workflow.Plan{}}
}

func refuse(code, path, format string, args ...any) *jobs.RefusedError {
	return &jobs.RefusedError{Code: code, Path: path, Message: fmt.Sprintf(format, args...)}
}

// Compile checks a definition. The error is a *jobs.RefusedError that names the first place, and lists all.
func Compile(definition json.RawMessage) (*workflow.Plan, error) {
	if len(definition) == 0 {
		return nil, refuse(errcode.BadWorkflow, "/workflow", "the request has no workflow")
	}
	p, err := workflow.Compile(definition)
	invalid, ok := errors.AsType[*schemas.InvalidError](err)
	if !ok {
		return p, err
	}
	lines := make([]string, len(invalid.At))
	for i, at := range invalid.At {
		lines[i] = strings.TrimPrefix(at.Path+": ", ": ") + at.Message
	}
	return nil, refuse(errcode.BadWorkflow, "/workflow"+invalid.At[0].Path, "the workflow is not valid: %s",
		strings.Join(lines, "; "))
}

// origin is where a run comes from.
type origin struct {
	id     string // of the run
	depth  int
	parent *schemas.WorkflowParent
	due    time.Time // by which it must end; may be zero
	rerun  *rerun
}

// rerun is what a run takes over from an earlier one.
type rerun struct {
	of     string
	values map[string]json.RawMessage
	plan   workflow.Rerun
}

// Start starts a run. A second request with the same key returns the same run.
func (e *Engine) Start(ctx context.Context, tenant string, in schemas.WorkflowRequest) (schemas.WorkflowRun, error) {
	key := in.Key
	if key == "" {
		key = rand.Text()
	}
	return e.start(ctx, tenant, in, origin{id: jobs.TaskID(tenant, jobs.WorkflowSource, key)})
}

// StartTask starts the run of a task whose data has a workflow. The run has the task's id.
func (e *Engine) StartTask(ctx context.Context, rec schemas.Record, task schemas.Task) (schemas.WorkflowRun, error) {
	return e.start(ctx, rec.Tenant, schemas.WorkflowRequest{
		Workflow: task.Workflow, Inputs: task.Inputs,
		Workspace: rec.Workspace, Session: rec.Session, Priority: rec.Priority,
	}, origin{id: rec.TaskID, depth: Depth(rec)})
}

// Depth returns how many triggers led to a task.
func Depth(rec schemas.Record) int {
	if _, depth, ok := jobs.WorkflowOf(rec); ok {
		return depth
	}
	if !strings.HasPrefix(rec.Source, triggerSource) {
		return 0
	}
	text, _, _ := strings.Cut(rec.EventID, "-")
	depth, err := strconv.Atoi(text)
	if err != nil {
		return 1
	}
	return depth
}

func (e *Engine) start(
	ctx context.Context, tenant string, in schemas.WorkflowRequest, from origin,
) (run schemas.WorkflowRun, err error) {
	plan, err := Compile(in.Workflow)
	if err != nil {
		return run, err
	}
	inputs, err := plan.Inputs(in.Inputs)
	if wrong, ok := errors.AsType[*workflow.InputError](err); ok {
		path := "/inputs"
		if wrong.Name != "" {
			path += "/" + wrong.Name
		}
		return run, refuse(errcode.BadWorkflow, path, "%s", strings.TrimPrefix(wrong.Error(), "input : "))
	}
	if err != nil {
		return run, err
	}
	if in.Workspace == "" {
		in.Workspace = "main"
	}
	run = schemas.WorkflowRun{
		RunID: from.id, Tenant: tenant, Workspace: in.Workspace, Session: in.Session, Priority: in.Priority,
		Parent: from.parent, Depth: from.depth,
	}
	if err := e.checkTasks(ctx, plan, run); err != nil {
		return run, err
	}
	store, err := e.open(ctx)
	if err != nil {
		return run, err
	}
	if found, _, err := e.read(ctx, tenant, from.id); !errors.Is(err, jobs.ErrRunNotFound) {
		if err == nil {
			_, err = e.advance(ctx, tenant, from.id, workflow.Event{}) // an earlier start may not have been completed
		}
		return found, err
	}
	now := timeNow()
	run = plan.New(run, now)
	if !from.due.IsZero() && from.due.Before(run.Deadline) {
		run.Deadline = from.due
	}
	values := map[string]json.RawMessage{definitionKey: in.Workflow, workflow.InputsKey: inputs}
	if r := from.rerun; r != nil {
		run.RerunOf, run.Steps, run.Generation = r.of, r.plan.Steps, r.plan.Generation
		maps.Copy(values, r.values)
	}
	for key, value := range values {
		if err := store.Put(ctx, tenant, from.id, key, value); err != nil {
			return run, err
		}
	}
	// The alarm comes first: without it, no process would notice a run whose start was interrupted.
	if err := e.setAlarm(ctx, plan, run, 0); err != nil {
		return run, err
	}
	data, err := json.Marshal(run)
	if err == nil {
		_, err = store.Swap(ctx, tenant, from.id, data, 0)
	}
	if err != nil && !errors.Is(err, jobs.ErrRunConflict) {
		return run, err
	}
	return e.advance(ctx, tenant, from.id, workflow.Event{})
}

// timeNow returns the time as records have it.
func timeNow() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// checkTasks returns the error with which the queue would refuse the tasks of a plan, such as for a task pool that the
// tenant may not use, as far as it follows from the definition.
func (e *Engine) checkTasks(ctx context.Context, plan *workflow.Plan, run schemas.WorkflowRun) error {
	for _, p := range plan.Probes() {
		ev, err := taskEvent(run, workflow.Effect{Place: workflow.Place{Step: "check"}, Task: p.Task})
		if err == nil {
			err = e.queue.Check(ctx, run.Tenant, ev)
		}
		refused, ok := errors.AsType[*jobs.RefusedError](err)
		switch {
		case ok && strings.HasPrefix(refused.Path, "/"):
			return refuse(refused.Code, "/workflow"+p.Path, "step %s: %s", p.Step, refused.Message)
		case err != nil:
			return err
		}
	}
	return ctx.Err()
}

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

// plan returns the definition with which a run was started.
func (e *Engine) plan(ctx context.Context, tenant, id string) (*workflow.Plan, error) {
	key := tenant + "." + id
	e.mu.Lock()
	p := e.plans[key]
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.plans) >= plansKept {
		clear(e.plans)
	}
	e.plans[key] = p
	return p, nil
}

// load returns the function that reads values of a run.
func (e *Engine) load(ctx context.Context, tenant, id string) workflow.Load {
	known := map[string]json.RawMessage{}
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

// advance applies an event to a run, and does what follows from it. If the event was applied before, it does again what
// followed from it, because the process that applied it may have been lost. After an error it may be called again.
func (e *Engine) advance(
	ctx context.Context, tenant, id string, ev workflow.Event,
) (run schemas.WorkflowRun, err error) {
	plan, err := e.plan(ctx, tenant, id)
	if err != nil {
		return run, err
	}
	load := e.load(ctx, tenant, id)
	for queue := []workflow.Event{ev}; len(queue) > 0; queue = queue[1:] {
		var before schemas.WorkflowRun
		var applied bool
		before, run, applied, err = e.apply(ctx, plan, tenant, id, queue[0], load)
		if err != nil {
			return run, err
		}
		begun := map[workflow.Place]bool{}
		if applied { // else everything that runs is begun again
			begun = running(before)
		}
		effects, err := plan.Effects(ctx, run, func(p workflow.Place) bool { return begun[p] }, load)
		if err != nil {
			return run, err
		}
		for _, effect := range effects {
			ended, err := e.do(ctx, run, effect)
			if err != nil {
				return run, err
			}
			if ended != nil {
				queue = append(queue, workflow.Event{Ended: ended})
			}
		}
	}
	if run.Status.Ended() {
		return run, e.finish(ctx, run)
	}
	return run, nil
}

// running returns the places of a run that run.
func running(run schemas.WorkflowRun) map[workflow.Place]bool {
	out := map[workflow.Place]bool{}
	for _, s := range run.Steps {
		if s.Status == schemas.WorkflowRunning && s.Items == nil {
			out[workflow.Place{Step: s.ID, Item: -1, Attempt: s.Attempt}] = !s.Cancelled
		}
		for i, item := range s.Items {
			if item.Status == schemas.WorkflowRunning {
				out[workflow.Place{Step: s.ID, Item: i, Attempt: item.Attempt}] = !item.Cancelled
			}
		}
	}
	return out
}

// apply applies an event to the record of a run by compare-and-swap, and sets the run's alarm.
func (e *Engine) apply(
	ctx context.Context, plan *workflow.Plan, tenant, id string, ev workflow.Event, load workflow.Load,
) (before, after schemas.WorkflowRun, applied bool, err error) {
	store, err := e.open(ctx)
	if err != nil {
		return before, after, false, err
	}
	for range swapTries {
		var rev uint64
		if before, rev, err = e.read(ctx, tenant, id); err != nil {
			return before, after, false, err
		}
		change, err := plan.Advance(ctx, before, ev, timeNow(), load)
		if err != nil {
			return before, before, false, err
		}
		if !change.Changed {
			return before, change.Run, false, e.setAlarm(ctx, plan, change.Run, rev)
		}
		for key, value := range change.Values {
			if err := store.Put(ctx, tenant, id, key, value); err != nil {
				return before, after, false, err
			}
		}
		data, err := json.Marshal(change.Run)
		if err == nil && len(data) > workflow.MaxRecord {
			change.Run = tooLarge(before, len(data))
			data, err = json.Marshal(change.Run)
		}
		var next uint64
		if err == nil {
			next, err = store.Swap(ctx, tenant, id, data, rev)
		}
		if errors.Is(err, jobs.ErrRunConflict) {
			_ = clock.Sleep(ctx, mathrand.N(swapPause)) //nolint:gosec // spreads processes; the loop ends with ctx
			continue
		}
		if err == nil && alarmOf(plan, before) != alarmOf(plan, change.Run) {
			err = e.setAlarm(ctx, plan, change.Run, next)
		}
		return before, change.Run, true, err
	}
	return before, after, false, fmt.Errorf("advance workflow run %s: other processes changed it first, %d times", id,
		swapTries)
}

// tooLarge returns a run that ends because its record does not fit.
func tooLarge(run schemas.WorkflowRun, size int) schemas.WorkflowRun {
	run.Steps = slices.Clone(run.Steps)
	for i := range run.Steps {
		run.Steps[i].Items = nil
		if !run.Steps[i].Status.Ended() {
			run.Steps[i].Status, run.Steps[i].EndedAt = schemas.WorkflowCancelled, timeNow()
		}
	}
	run.Status, run.EndedAt, run.Stopping = schemas.WorkflowFailed, timeNow(), ""
	run.Error = &schemas.WorkflowError{
		Code:    errcode.WorkflowTooLarge,
		Message: fmt.Sprintf("the record of the run would be %d bytes; the limit is %d", size, workflow.MaxRecord),
	}
	return run
}

// finish tells the run that waits for this one that it has ended.
func (e *Engine) finish(ctx context.Context, run schemas.WorkflowRun) error {
	e.mu.Lock()
	delete(e.plans, run.Tenant+"."+run.RunID)
	e.mu.Unlock()
	if run.Parent == nil {
		return nil
	}
	_, err := e.advance(ctx, run.Tenant, run.Parent.RunID, workflow.Event{Ended: endOfRun(run)})
	if errors.Is(err, jobs.ErrRunNotFound) {
		return nil
	}
	return err
}

// endOfRun returns the end of the step whose workflow has ended.
func endOfRun(run schemas.WorkflowRun) *workflow.Ended {
	p := run.Parent
	return &workflow.Ended{
		Place:  workflow.Place{Step: p.Step, Item: p.Item, Attempt: p.Attempt},
		Status: run.Status, Result: run.Outputs, Error: run.Error, Generation: run.Generation,
		Changed: slices.ContainsFunc(run.Steps, func(s schemas.StepRun) bool {
			return s.After > 0 && !s.Kept ||
				slices.ContainsFunc(s.Items, func(x schemas.StepRun) bool { return x.After > 0 })
		}),
	}
}
