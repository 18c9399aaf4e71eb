// Package engine runs workflows. A run is one record in the queue, which is advanced by compare-and-swap: by the worker
// that ends the task of a step, before it acknowledges the task's message, so that a redelivery repeats the advance; by
// the process that accepts an answer or an event; and by any process when a wait is due. There is no coordinator.
//
// The order of effects of an advance is: the alarm if it must ring more often, values, record, tasks, the alarm if it
// may ring less often. The tasks' ids follow from the run and the place of the step, so a process that finds an
// incomplete advance begins them again: they are the same tasks.
package engine

import (
	"bytes"
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

	"golang.org/x/sync/errgroup"

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
	tenantsKnown  = 1000
	atOnce        = 8       // writes, and tasks of one advance that are submitted
	maxResults    = 4 << 20 // bytes of results that Get adds to a run
)

// Engine runs the workflows of all tenants. It is safe for concurrent use.
type Engine struct {
	// Keep keeps a version of a workspace until a time. It may be repeated. Processes that end tasks set it, so that a
	// run can be repeated from a step; nil keeps nothing.
	Keep func(ctx context.Context, tenant, workspace string, generation int64, until time.Time) error

	MaxRuns  int              // of a tenant that have not ended; 0 means 10,000
	HostTime func() time.Time // nil means time.Now

	queue *jobs.Client
	log   *slog.Logger

	mu     sync.Mutex
	plans  map[string]*workflow.Plan // by tenant and run; a run keeps its definition
	active map[string]active         // by tenant
	store  *jobs.Workflows
	alarms *jobs.Automations
	ahead  time.Duration // the queue's time minus this host's
	asked  time.Time     // when the queue was asked for its time, by this host's
}

// New returns an engine on a queue.
func New(queue *jobs.Client, log *slog.Logger) *Engine {
	return &Engine{queue: queue, log: log, plans: map[string]*workflow.Plan{}, active: map[string]active{}}
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

// rerun is what a run inherits from an earlier one.
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
	if !strings.HasPrefix(rec.Source, jobs.TriggerSource) {
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
	plan, inputs, err := compile(in.Workflow, in.Inputs)
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
	if found, _, err := e.read(ctx, tenant, from.id); !errors.Is(err, jobs.ErrRunNotFound) {
		if err == nil {
			_, err = e.advance(ctx, tenant, from.id, workflow.Event{}) // an earlier start may not have been completed
		}
		return found, err
	}
	if err := e.admit(ctx, tenant); err != nil {
		return run, err
	}
	values := map[string]json.RawMessage{definitionKey: in.Workflow, workflow.InputsKey: inputs}
	if from.rerun != nil {
		maps.Copy(values, from.rerun.values)
	}
	stored, err := e.putNew(ctx, tenant, from.id, values)
	if err != nil {
		return run, err
	}
	if !maps.EqualFunc(values, stored, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		// Another start with the same key was first: its definition and inputs count.
		plan, inputs, err = compile(stored[definitionKey], stored[workflow.InputsKey])
		if err != nil {
			return run, err
		}
		stored[workflow.InputsKey] = inputs
	}
	run = plan.New(run, e.Now(ctx))
	if !from.due.IsZero() && from.due.Before(run.Deadline) {
		run.Deadline = from.due
	}
	if r := from.rerun; r != nil {
		run.RerunOf, run.Steps, run.Generation = r.of, r.plan.Steps, r.plan.Generation
	}
	return e.begin(ctx, plan, run, e.load(ctx, tenant, from.id, stored))
}

// compile checks a definition and inputs, and returns the inputs with their defaults.
func compile(definition, given json.RawMessage) (plan *workflow.Plan, inputs json.RawMessage, err error) {
	if plan, err = Compile(definition); err != nil {
		return nil, nil, err
	}
	inputs, err = plan.Inputs(given)
	if wrong, ok := errors.AsType[*workflow.InputError](err); ok {
		path := "/inputs"
		if wrong.Name != "" {
			path += "/" + wrong.Name
		}
		err = refuse(errcode.BadWorkflow, path, "%s", strings.TrimPrefix(wrong.Error(), "input : "))
	}
	return plan, inputs, err
}

// putNew stores the values of a new run, unless another start has stored them, and returns those that are stored.
func (e *Engine) putNew(
	ctx context.Context, tenant, id string, values map[string]json.RawMessage,
) (map[string]json.RawMessage, error) {
	store, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	stored := map[string]json.RawMessage{}
	var mu sync.Mutex
	var puts errgroup.Group
	puts.SetLimit(atOnce)
	for key, value := range values {
		puts.Go(func() error {
			found, err := store.PutNew(ctx, tenant, id, key, value)
			mu.Lock()
			defer mu.Unlock()
			stored[key] = found
			return err
		})
	}
	return stored, puts.Wait()
}

// begin stores the record of a new run, and begins its first steps.
func (e *Engine) begin(
	ctx context.Context, plan *workflow.Plan, run schemas.WorkflowRun, load workflow.Load,
) (schemas.WorkflowRun, error) {
	change, err := plan.Advance(ctx, run, workflow.Event{}, e.Now(ctx), load)
	if err != nil {
		return run, err
	}
	// The alarm comes first: without it, no process would notice a run whose start was interrupted.
	if !change.Run.Status.Ended() {
		if err := e.widenAlarm(ctx, run, alarmOf(plan, change.Run), 0); err != nil {
			return run, err
		}
	}
	begun, rev, err := e.write(ctx, run, change, 0)
	if errors.Is(err, jobs.ErrRunConflict) {
		return e.advance(ctx, run.Tenant, run.RunID, workflow.Event{})
	}
	if err != nil {
		return run, err
	}
	e.keepPlan(run.Tenant, run.RunID, plan)
	a := applied{
		before: run, after: begun, rev: rev, changed: true,
		narrow: begun.Status != change.Run.Status, // write has ended the run, because its record does not fit
	}
	return e.follow(ctx, plan, a, load)
}

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

// load returns the function that reads values of a run that are not known yet. It adds them to known.
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

// advance applies an event to a run, and does what follows from it. If the event was applied before, it does again what
// followed from it, because the process that applied it may have been lost. After an error it may be called again.
func (e *Engine) advance(
	ctx context.Context, tenant, id string, ev workflow.Event,
) (run schemas.WorkflowRun, err error) {
	plan, err := e.plan(ctx, tenant, id)
	if err != nil {
		return run, err
	}
	load := e.load(ctx, tenant, id, map[string]json.RawMessage{})
	a, err := e.apply(ctx, plan, tenant, id, ev, load)
	if err != nil {
		return a.after, err
	}
	return e.follow(ctx, plan, a, load)
}

// follow does what follows from an event.
func (e *Engine) follow(
	ctx context.Context, plan *workflow.Plan, a applied, load workflow.Load,
) (run schemas.WorkflowRun, err error) {
	var queue []workflow.Event
	narrow := false
	for {
		run, narrow = a.after, narrow || a.narrow
		begun := map[workflow.Place]bool{}
		if a.changed { // else everything that runs is begun again
			begun = running(a.before)
		}
		effects, err := plan.Effects(ctx, run, func(p workflow.Place) bool { return begun[p] }, load)
		if err != nil {
			return run, err
		}
		var ends []workflow.Event
		var both errgroup.Group
		both.Go(func() error { return e.keepVersions(ctx, a) })
		both.Go(func() (err error) {
			ends, err = e.doAll(ctx, run, effects, a.changed)
			return err
		})
		if err := both.Wait(); err != nil {
			return run, err
		}
		if queue = append(queue, ends...); len(queue) == 0 {
			break
		}
		if a, err = e.apply(ctx, plan, run.Tenant, run.RunID, queue[0], load); err != nil {
			return run, err
		}
		queue = queue[1:]
	}
	if run.Status.Ended() {
		err = e.finish(ctx, run)
	}
	if err == nil && narrow {
		err = e.setAlarm(ctx, plan, run, a.rev)
	}
	return run, err
}

// running returns the places of a run whose attempts run, and whether each is not cancelled.
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

// applied is an event that was applied to the record of a run. If changed is false, it was applied earlier.
type applied struct {
	before, after schemas.WorkflowRun
	rev           uint64 // of the record
	changed       bool
	narrow        bool // the alarm may ring less often once what follows from the event has begun
}

// apply applies an event to the record of a run by compare-and-swap.
func (e *Engine) apply(
	ctx context.Context, plan *workflow.Plan, tenant, id string, ev workflow.Event, load workflow.Load,
) (a applied, err error) {
	for range swapTries {
		if a.before, a.rev, err = e.read(ctx, tenant, id); err != nil {
			return a, err
		}
		change, err := plan.Advance(ctx, a.before, ev, e.Now(ctx), load)
		if err != nil {
			a.after = a.before
			return a, err
		}
		if !change.Changed {
			a.after, a.narrow = change.Run, true
			return a, nil
		}
		old := alarmOf(plan, a.before)
		wide := old.or(alarmOf(plan, change.Run))
		if wide != old {
			if err := e.widenAlarm(ctx, change.Run, wide, a.rev); err != nil {
				return a, err
			}
		}
		a.after, a.rev, err = e.write(ctx, a.before, change, a.rev)
		if errors.Is(err, jobs.ErrRunConflict) {
			_ = clock.Sleep(ctx, mathrand.N(swapPause)) //nolint:gosec // spreads processes; the loop ends with ctx
			continue
		}
		a.changed, a.narrow = true, wide != alarmOf(plan, a.after)
		return a, err
	}
	return a, fmt.Errorf("advance workflow run %s: other processes changed it first, %d times", id, swapTries)
}

// write stores the values of a change, and then the record if it still has the revision. It returns the record and its
// new revision.
func (e *Engine) write(
	ctx context.Context, before schemas.WorkflowRun, change workflow.Change, rev uint64,
) (run schemas.WorkflowRun, next uint64, err error) {
	run = change.Run
	store, err := e.open(ctx)
	if err != nil {
		return run, 0, err
	}
	var puts errgroup.Group
	puts.SetLimit(atOnce)
	for key, value := range change.Values {
		puts.Go(func() error { return store.Put(ctx, run.Tenant, run.RunID, key, value) })
	}
	if err := puts.Wait(); err != nil {
		return run, 0, err
	}
	data, err := json.Marshal(run)
	if err == nil && len(data) > workflow.MaxRecord {
		run = tooLarge(before, len(data), e.Now(ctx))
		data, err = json.Marshal(run)
	}
	if err == nil {
		next, err = store.Swap(ctx, run.Tenant, run.RunID, data, rev)
	}
	return run, next, err
}

// tooLarge returns a run that ends because its record does not fit.
func tooLarge(run schemas.WorkflowRun, size int, now time.Time) schemas.WorkflowRun {
	run.Steps = slices.Clone(run.Steps)
	for i := range run.Steps {
		run.Steps[i].Items = nil
		if !run.Steps[i].Status.Ended() {
			run.Steps[i].Status, run.Steps[i].EndedAt = schemas.WorkflowCancelled, now
		}
	}
	run.Status, run.EndedAt, run.Stopping = schemas.WorkflowFailed, now, ""
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
