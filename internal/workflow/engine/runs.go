package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

// explainNotFound changes ErrRunNotFound into an error for the caller, and returns other errors unchanged.
func explainNotFound(err error, id string) error {
	if !errors.Is(err, jobs.ErrRunNotFound) {
		return err
	}
	r := refuse(errcode.UnknownRun, "run", "there is no workflow run %.40q", id)
	r.Hint = "GET /v1/workflows/runs lists the runs"
	return r
}

// Get returns a run with its definition, its inputs and the results of its steps, up to 4 MiB of them.
func (e *Engine) Get(ctx context.Context, tenant, id string) (schemas.WorkflowRun, error) {
	run, _, err := e.read(ctx, tenant, id)
	if err != nil {
		return run, explainNotFound(err, id)
	}
	load := e.load(ctx, tenant, id, map[string]json.RawMessage{})
	if run.Workflow, err = load(definitionKey); err != nil {
		return run, explainNotFound(err, id)
	}
	if run.Inputs, err = load(workflow.InputsKey); err != nil {
		return run, explainNotFound(err, id)
	}
	if !run.Status.Ended() {
		e.nameRunning(ctx, &run)
	}
	room := maxResults
	for i := range run.Steps {
		s := &run.Steps[i]
		if s.ResultBytes == 0 || s.ResultBytes > workflow.MaxValue || s.ResultBytes > room {
			continue
		}
		room -= s.ResultBytes
		if s.Result, err = load(cmp.Or(s.ResultKey, workflow.ResultKey(s.ID, -1))); err != nil {
			return run, explainNotFound(err, id)
		}
	}
	return run, nil
}

// nameRunning sets the ids of the tasks and runs of a run's running attempts. It sets none if this version would refuse
// the run's definition: the run can be read all the same.
func (e *Engine) nameRunning(ctx context.Context, run *schemas.WorkflowRun) {
	plan, err := e.plan(ctx, run.Tenant, run.RunID)
	if err != nil {
		return
	}
	plan.Running(run, func(place workflow.Place, isWorkflow bool, x *schemas.StepRun) {
		if isWorkflow {
			x.RunID = attemptID(*run, place)
		} else {
			x.TaskID = attemptID(*run, place)
		}
	})
}

// List returns a tenant's runs that were changed last, the latest first, without their inputs and results. It returns
// the items of a loop only if some of them wait, and only their statuses.
func (e *Engine) List(ctx context.Context, tenant string, limit int) ([]schemas.WorkflowRun, error) {
	store, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	records, err := store.List(ctx, tenant, limit)
	if err != nil {
		return nil, err
	}
	out := []schemas.WorkflowRun{}
	for _, data := range records {
		var run schemas.WorkflowRun
		if err := json.Unmarshal(data, &run); err != nil {
			return nil, err
		}
		out = append(out, listed(run))
	}
	return out, nil
}

// listed returns what a list has of a run.
func listed(run schemas.WorkflowRun) schemas.WorkflowRun {
	for i := range run.Steps {
		s := &run.Steps[i]
		s.Result = nil
		if !slices.ContainsFunc(s.Items, func(item schemas.StepRun) bool {
			return item.Status == schemas.WorkflowWaiting
		}) {
			s.Items = nil
		}
		for k, item := range s.Items {
			s.Items[k] = schemas.StepRun{Status: item.Status}
		}
	}
	return run
}

// ListAsking is like List, but returns only runs with a step that waits for an answer. It reads only the runs that have
// not ended.
func (e *Engine) ListAsking(ctx context.Context, tenant string, limit int) ([]schemas.WorkflowRun, error) {
	store, err := e.automations(ctx)
	if err != nil {
		return nil, err
	}
	alarms, err := store.List(ctx, KindAlarm, tenant) // a run has an alarm until it ends
	if err != nil {
		return nil, err
	}
	slices.Reverse(alarms)
	out := []schemas.WorkflowRun{}
	for some := range slices.Chunk(alarms, atOnce) {
		runs := make([]schemas.WorkflowRun, len(some))
		group, ctx := errgroup.WithContext(ctx)
		for i, alarm := range some {
			group.Go(func() (err error) {
				if runs[i], _, err = e.read(ctx, tenant, alarm.Name); errors.Is(err, jobs.ErrRunNotFound) {
					err = nil // the run is about to be written, or will never be
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		for _, run := range runs {
			if len(out) == limit {
				return out, nil
			}
			if slices.ContainsFunc(run.Steps, asks) {
				out = append(out, listed(run))
			}
		}
	}
	return out, nil
}

// asks reports whether a step, or an item of it, waits for an answer.
func asks(s schemas.StepRun) bool {
	return s.Status == schemas.WorkflowWaiting && s.Message != "" || slices.ContainsFunc(s.Items, asks)
}

// Cancel cancels a run: its running steps are cancelled, and then its steps under finally run. If these run already,
// Cancel cancels them.
func (e *Engine) Cancel(ctx context.Context, tenant, id string) (schemas.WorkflowRun, error) {
	run, err := e.advance(ctx, tenant, id, workflow.Event{Cancel: true})
	return run, explainNotFound(err, id)
}

// Answer answers a step that asks. The first answer counts.
func (e *Engine) Answer(
	ctx context.Context, tenant, id string, in schemas.WorkflowAnswer,
) (schemas.WorkflowRun, error) {
	item := -1
	if in.Item != nil {
		item = *in.Item
		if item < 0 { // workflow.Answered has -1 for no item
			const message = "there is no item %d: the first is item 0"
			return schemas.WorkflowRun{}, refuse(errcode.BadAnswer, "/item", message, item)
		}
	}
	run, err := e.advance(ctx, tenant, id, workflow.Event{Answered: &workflow.Answered{
		Step: in.Step, Item: item, Values: in.Values,
	}})
	if wrong, ok := errors.AsType[*workflow.AnswerError](err); ok {
		if wrong.Code == errcode.NotWaiting { // complete the advance of a process that accepted the answer and was lost
			if _, err := e.advance(ctx, tenant, id, workflow.Event{}); err != nil {
				return run, err
			}
		}
		return run, refuse(wrong.Code, wrong.Path, "%s", wrong.Message)
	}
	return run, explainNotFound(err, id)
}

// Occurred passes an event on to the steps of a run that wait for it. A run that panics misses the event, so that
// others get it.
func (e *Engine) Occurred(
	ctx context.Context, tenant, id string, attributes map[string]any, data json.RawMessage,
) error {
	err := e.occurred(ctx, tenant, id, attributes, data)
	if errors.Is(err, jobs.ErrRunNotFound) || isPanic(err) {
		return nil
	}
	return err
}

func (e *Engine) occurred(
	ctx context.Context, tenant, id string, attributes map[string]any, data json.RawMessage,
) (err error) {
	defer e.contain(ctx, tenant, id, &err)
	plan, err := e.plan(ctx, tenant, id)
	var run schemas.WorkflowRun
	if err == nil {
		run, _, err = e.read(ctx, tenant, id)
	}
	var places []workflow.Place
	if err == nil {
		var rejected []error
		load := e.load(ctx, tenant, id, map[string]json.RawMessage{})
		places, rejected, err = plan.Waiting(ctx, run, attributes, data, load)
		if len(rejected) > 0 {
			e.log.WarnContext(ctx, "filter of a step cannot be evaluated for an event, which it rejects",
				"tenant", tenant, "run", id, "error", errors.Join(rejected...))
		}
	}
	if eventType, _ := attributes["type"].(string); err == nil && !plan.AwaitsType(run, eventType) {
		// The alarm says that the run waits for the event, but the record does not: complete an interrupted advance.
		_, err = e.advance(ctx, tenant, id, workflow.Event{})
	}
	for _, p := range places {
		if err == nil {
			_, err = e.advance(ctx, tenant, id, workflow.Event{Occurred: &workflow.Occurred{Place: p, Data: data}})
		}
	}
	return err
}

// Attributes returns the attributes that an event has, as expressions see them.
func Attributes(ev event.Event) (map[string]any, error) {
	out := map[string]any{"id": ev.ID(), "source": ev.Source(), "type": ev.Type()}
	if s := ev.Subject(); s != "" {
		out["subject"] = s
	}
	if at := ev.Time(); !at.IsZero() {
		out["time"] = at
	}
	for name, value := range ev.Extensions() {
		text, err := types.Format(value)
		if err != nil {
			return nil, err
		}
		out[name] = text
	}
	return out, nil
}

// Forker creates a workspace with the files of a generation of another one, the newest if generation is 0, and returns
// its generation. If an earlier call has created the workspace, it returns the newest generation.
type Forker func(ctx context.Context, tenant, from string, generation int64, to string) (int64, error)

// Rerun starts a new run of the same workflow that keeps the results of the steps before a step. Its workspace is a
// fork of the run's, with the files that the step began with (the newest, if the run recorded no version). in.Set
// replaces inputs.
func (e *Engine) Rerun(
	ctx context.Context, tenant, id string, in schemas.WorkflowRerun, fork Forker,
) (schemas.WorkflowRun, error) {
	old, err := e.Get(ctx, tenant, id)
	if err != nil {
		return old, err
	}
	plan, err := e.plan(ctx, tenant, id)
	if err != nil {
		return old, explainNotFound(err, id)
	}
	var inputs map[string]json.RawMessage
	if err := json.Unmarshal(old.Inputs, &inputs); err != nil {
		return old, err
	}
	maps.Copy(inputs, in.Set)
	merged, err := json.Marshal(inputs)
	if err != nil {
		return old, refuse(errcode.BadData, "/set", "it is not JSON")
	}
	again, err := plan.Rerun(old, in.From)
	if refused, ok := errors.AsType[*workflow.RerunError](err); ok {
		return old, refuse(refused.Code, "/from", "%s", refused.Message)
	}
	if err != nil {
		return old, err
	}
	load := e.load(ctx, tenant, id, map[string]json.RawMessage{})
	values := map[string]json.RawMessage{}
	for _, key := range again.Keep {
		if values[key], err = load(key); err != nil {
			return old, explainNotFound(err, id)
		}
	}
	newID := jobs.TaskID(tenant, jobs.WorkflowSource+id, cmp.Or(in.Key, rand.Text()))
	inherited := &rerun{of: id, values: values, plan: again}
	workspace := old.Workspace
	if again.Forks {
		workspace = forkName(old.Workspace, newID)
		// If a step has changed the workspace since generation 0, the new workspace is empty, too.
		if again.Generation > 0 || !again.Changed {
			inherited.fork = func(ctx context.Context) (int64, error) {
				return fork(ctx, tenant, old.Workspace, again.Generation, workspace)
			}
		}
	}
	run, err := e.start(ctx, tenant, schemas.WorkflowRequest{
		Workflow: old.Workflow, Inputs: merged, Workspace: workspace, Session: old.Session, Priority: old.Priority,
	}, origin{id: newID, depth: old.Depth, rerun: inherited})
	if refused, ok := errors.AsType[*jobs.RefusedError](err); ok {
		if at, ok := strings.CutPrefix(refused.Path, "/inputs"); ok { // only those that are set can be wrong
			refused.Path = "/set" + at
		}
	}
	return run, err
}

// forkName returns the name of the workspace of a repeated run.
func forkName(workspace, id string) string {
	base, _, _ := strings.Cut(workspace, "-rerun-")
	return base[:min(len(base), 40)] + "-rerun-" + id[:10]
}
