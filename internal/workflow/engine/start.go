package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

// Compile checks a definition. The error is a *jobs.RefusedError that has the path of the first problem, and
// lists all problems.
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
	id     string // id of the run
	depth  int
	parent *schemas.WorkflowParent
	due    time.Time // by which it must end; may be zero
	rerun  *rerun
	// cancelled says that the run has ended before it begins. It is cancelled, and no step runs, not even one under
	// finally.
	cancelled bool
}

// rerun is what a run inherits from an earlier one.
type rerun struct {
	of     string
	values map[string]json.RawMessage
	plan   workflow.Rerun
	fork   func(context.Context) (generation int64, err error) // creates the workspace; nil if the run needs none
}

// Start starts a run. A second request with the same key returns the same run.
func (e *Engine) Start(ctx context.Context, tenant string, in schemas.WorkflowRequest) (schemas.WorkflowRun, error) {
	key := cmp.Or(in.Key, rand.Text())
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

// start starts a run, or returns the run with this id if it was started before.
func (e *Engine) start(
	ctx context.Context, tenant string, in schemas.WorkflowRequest, from origin,
) (run schemas.WorkflowRun, err error) {
	defer e.contain(ctx, tenant, from.id, &err)
	plan, inputs, err := compile(in.Workflow, in.Inputs)
	if err != nil {
		return run, err
	}
	in.Workspace = cmp.Or(in.Workspace, "main")
	run = schemas.WorkflowRun{
		RunID: from.id, Tenant: tenant, Workspace: in.Workspace, Session: in.Session, Priority: in.Priority,
		Parent: from.parent, Depth: from.depth,
	}
	if found, _, err := e.read(ctx, tenant, from.id); !errors.Is(err, jobs.ErrRunNotFound) {
		if err == nil {
			// An earlier start may not have been completed.
			_, err = e.advance(ctx, tenant, from.id, workflow.Event{})
		}
		return found, err
	}
	if err := e.checkTasks(ctx, plan, run); err != nil {
		return run, err
	}
	if !from.cancelled {
		if err := e.admit(ctx, tenant); err != nil {
			return run, err
		}
	}
	if from.rerun != nil && from.rerun.fork != nil {
		if from.rerun.plan.Generation, err = from.rerun.fork(ctx); err != nil {
			return run, err
		}
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
	if from.cancelled {
		return e.writeCancelled(ctx, plan.Cancelled(run, e.Now(ctx)))
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
			path += "/" + text.EncodeToken(wrong.Name)
		}
		err = refuse(errcode.BadWorkflow, path, "%s", wrong.Error())
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

// writeCancelled stores the record of a run that was cancelled before it began. If the run has a record already, it
// returns that one.
func (e *Engine) writeCancelled(ctx context.Context, run schemas.WorkflowRun) (schemas.WorkflowRun, error) {
	written, _, err := e.write(ctx, run, workflow.Change{Run: run, Changed: true}, 0)
	if errors.Is(err, jobs.ErrRunConflict) {
		written, _, err = e.read(ctx, run.Tenant, run.RunID)
	}
	return written, err
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

// checkTasks returns the error with which the queue would refuse a task of a plan, for example because the tenant may
// not use the task pool. It checks what the definition determines, but no inputs, which are known only later.
func (e *Engine) checkTasks(ctx context.Context, plan *workflow.Plan, run schemas.WorkflowRun) error {
	for _, p := range plan.StepTasks() {
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
