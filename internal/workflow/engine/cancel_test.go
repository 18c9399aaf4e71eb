package engine

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

// TestCancelBeforeBegin checks that an attempt which one process has recorded, and another process cancels before the
// first one begins it, does not run.
func TestCancelBeforeBegin(t *testing.T) {
	e := newEngine(t)
	run := schemas.WorkflowRun{RunID: jobs.TaskID("acme", jobs.WorkflowSource, "r"), Tenant: "acme", Workspace: "main"}
	inner := json.RawMessage(`{"name":"inner","steps":[{"id":"a","code":"1"}],"finally":[{"id":"b","code":"2"}]}`)
	for _, effect := range []workflow.Effect{
		{Place: workflow.Place{Step: "task", Item: -1, Attempt: 1}, Task: &schemas.Task{Code: "1"}},
		{
			Place:    workflow.Place{Step: "workflow", Item: -1, Attempt: 1},
			Workflow: &schemas.WorkflowRequest{Workflow: inner, Workspace: "main"}, Due: time.Now().Add(time.Hour),
		},
	} {
		cancelled := effect
		cancelled.Cancel = true
		for i, effect := range []workflow.Effect{cancelled, cancelled, effect, cancelled} {
			end, err := e.do(t.Context(), run, effect, i == 2)
			if err != nil || end == nil || end.Status != schemas.WorkflowCancelled {
				t.Errorf("%s, call %d: %+v, %v; want a cancelled attempt", effect.Place.Step, i, end, err)
			}
		}
	}
	list, err := e.queue.List(t.Context(), "acme", jobs.ListOptions{})
	if err != nil || len(list) != 1 || list[0].Status != schemas.Cancelled {
		t.Errorf("tasks: %+v, %v, want one, which is cancelled", list, err)
	}
}

// TestParentCancelled checks that the cancellation of a run, however often it is repeated, does not cancel the steps
// under finally of a run that one of its steps has started: whether that run has failed before, or has only these left.
// If the step is itself under finally, the cancellation also cancels them.
func TestParentCancelled(t *testing.T) {
	const inner = `{"name":"inner","steps":[{"id":"a","needs":[],"code":"1"},{"id":"b","needs":[],"code":"1"}],
		"finally":[{"id":"z","code":"1"}]}`
	ended := func(step string, status schemas.WorkflowStatus) workflow.Event {
		place := workflow.Place{Step: step, Item: -1, Attempt: 1}
		return workflow.Event{Ended: &workflow.Ended{Place: place, Status: status}}
	}
	const outer = `{"name":"outer","steps":[{"id":"s","workflow":` + inner + `}]}`
	both := []workflow.Event{ended("a", schemas.WorkflowSucceeded), ended("b", schemas.WorkflowSucceeded)}
	for _, c := range []struct {
		name, outer string
		events      []workflow.Event
		cancelled   bool // whether z is cancelled
	}{
		{"failed", outer, []workflow.Event{ended("a", schemas.WorkflowFailed)}, false},
		{"finishing", outer, both, false},
		{
			"both", outer,
			[]workflow.Event{ended("a", schemas.WorkflowFailed), ended("b", schemas.WorkflowFailed)},
			false,
		},
		{
			"under finally", `{"name":"outer","steps":[{"id":"e","emit":{"type":"t"}}],"finally":[{"id":"s","workflow":` +
				inner + `}]}`, both, true,
		},
	} {
		e := newEngine(t)
		run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(c.outer)})
		if err == nil {
			run, err = e.Get(t.Context(), "acme", run.RunID)
		}
		if err != nil {
			t.Fatal(err)
		}
		inner := run.Steps[len(run.Steps)-1].RunID
		for _, ev := range c.events {
			if _, err := e.advance(t.Context(), "acme", inner, ev); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Cancel(t.Context(), "acme", run.RunID); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := e.Tick(t.Context(), "acme", run.RunID, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		child, _, err := e.read(t.Context(), "acme", inner)
		if err != nil {
			t.Fatal(err)
		}
		b, z := child.Steps[1].Status, child.Steps[2]
		if !b.Ended() || z.Status.Ended() != c.cancelled || z.Cancelled != c.cancelled {
			t.Errorf("%s: b is %s, and z is %s, cancelled: %v; want b ended, and z cancelled: %v",
				c.name, b, z.Status, z.Cancelled, c.cancelled)
		}
	}
}

// TestCancelUnwanted checks that an attempt which the queue refuses can be cancelled, and that the event of a cancelled
// step is not published.
func TestCancelUnwanted(t *testing.T) {
	e := newEngine(t)
	run := schemas.WorkflowRun{RunID: jobs.TaskID("acme", jobs.WorkflowSource, "r"), Tenant: "acme", Workspace: "main"}
	place := workflow.Place{Step: "a", Item: -1, Attempt: 1}
	for _, effect := range []workflow.Effect{
		{Place: place, Task: &schemas.Task{}, Cancel: true},
		{Place: place, Workflow: &schemas.WorkflowRequest{Workflow: json.RawMessage(`{}`)}, Cancel: true},
		{Place: place, Event: &workflow.EmittedEvent{Type: "done"}, Cancel: true},
	} {
		end, err := e.do(t.Context(), run, effect, false)
		if err != nil || end == nil || end.Status != schemas.WorkflowCancelled {
			t.Errorf("%+v, %v; want a cancelled attempt", end, err)
		}
	}
}

// TestEndCancelsTasks checks that the end of a run cancels the tasks that still run or are queued: those of steps under
// finally at their deadline, and all tasks if the record gets too large. If the process that ended the run is lost
// before it cancels them, the next alarm does.
func TestEndCancelsTasks(t *testing.T) {
	const tasks = `{"id":"b","needs":[],"code":"1"},{"id":"c","needs":[],"for_each":{"in":[1]},"code":"1"}`
	const form = `"form":{"type":"object","properties":{"ok":{"type":"boolean"}}}`
	for _, c := range []struct {
		definition string
		ahead      time.Duration
		end        workflow.Event
		code       string
		lost       bool
	}{
		{
			definition: `{"name":"w","steps":[{"id":"a","when":"false","code":"1"}],"finally":[` + tasks + `]}`,
			ahead:      48 * time.Hour,
		},
		{
			definition: `{"name":"w","steps":[` + tasks + `,{"id":"q","needs":[],"ask":{` + form + `}},
				{"id":"l","for_each":{"in":[1` + strings.Repeat(",1", 99) + `],"parallel":100},
				"ask":{"message":"` + strings.Repeat("x", 4000) + `",` + form + `}}]}`,
			end:  workflow.Event{Answered: &workflow.Answered{Step: "q", Item: -1, Values: json.RawMessage("{}")}},
			code: errcode.WorkflowTooLarge,
		},
	} {
		for _, c.lost = range []bool{false, true} {
			e := newEngine(t)
			run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(c.definition)})
			if err != nil {
				t.Fatal(err)
			}
			e.mu.Lock()
			e.ahead += c.ahead
			e.mu.Unlock()
			if c.lost {
				err = loseEnd(t, e, run.RunID, c.end)
			} else {
				_, err = e.advance(t.Context(), "acme", run.RunID, c.end)
			}
			if err == nil {
				run, _, err = e.read(t.Context(), "acme", run.RunID)
			}
			if err != nil {
				t.Fatal(err)
			}
			code := ""
			if run.Error != nil {
				code = run.Error.Code
			}
			if !run.Status.Ended() || code != c.code {
				t.Errorf("run is %s, %v, want it to end with the code %q", run.Status, run.Error, c.code)
			}
			list, err := e.queue.List(t.Context(), "acme", jobs.ListOptions{})
			if err != nil || len(list) != 2 || list[0].Status != schemas.Cancelled ||
				list[1].Status != schemas.Cancelled {
				t.Errorf("tasks after the end of the run with %.70s, lost %v: %+v, %v, want two cancelled tasks",
					c.definition, c.lost, list, err)
			}
		}
	}
}

// loseEnd applies an event that ends a run, but does not do what follows from it. Then one of the run's tasks ends, and
// the run's alarm rings.
func loseEnd(t *testing.T, e *Engine, id string, ev workflow.Event) error {
	t.Helper()
	plan, err := e.plan(t.Context(), "acme", id)
	if err != nil {
		return err
	}
	load := e.load(t.Context(), "acme", id, map[string]json.RawMessage{})
	if _, err := e.apply(t.Context(), plan, "acme", id, ev, load); err != nil {
		return err
	}
	place := workflow.Place{Step: "b", Item: -1, Attempt: 1}
	cancelled := workflow.Event{Ended: &workflow.Ended{Place: place, Status: schemas.WorkflowCancelled}}
	if _, err := e.advance(t.Context(), "acme", id, cancelled); err != nil {
		return err
	}
	store, err := e.automations(t.Context())
	if err != nil {
		return err
	}
	if _, err := store.Get(t.Context(), KindAlarm, "acme", id); err != nil {
		return err
	}
	if err := e.Tick(t.Context(), "acme", id, time.Now()); err != nil {
		return err
	}
	if _, err := store.Get(t.Context(), KindAlarm, "acme", id); !errors.Is(err, jobs.ErrAutomationNotFound) {
		t.Errorf("alarm after the end: %v, want none", err)
	}
	return nil
}

// TestEventsAfterEnd checks what follows from an event that comes after the end of a run, when the queue no longer has
// the run's tasks: nothing, if no alarm of the run is left. Else an event cancels the tasks and tells the run's parent,
// unless it is the end of a cancelled task.
func TestEventsAfterEnd(t *testing.T) {
	e := newEngine(t)
	definition := json.RawMessage(`{"name":"w","steps":[{"id":"a","code":"1"}]}`)
	plan, err := Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	place := workflow.Place{Step: "a", Item: -1, Attempt: 1}
	parent := ended(t, e, plan, definition, schemas.WorkflowRun{RunID: jobs.TaskID("acme", jobs.WorkflowSource, "k")})
	child := ended(t, e, plan, definition, schemas.WorkflowRun{
		RunID:  jobs.TaskID("acme", jobs.WorkflowSource, "child"),
		Parent: &schemas.WorkflowParent{RunID: parent.RunID, Step: "a", Item: -1, Attempt: 1},
	})
	check := func(what string, want int) {
		t.Helper()
		list, err := e.queue.List(t.Context(), "acme", jobs.ListOptions{})
		if err != nil || len(list) != want {
			t.Errorf("after %s, the queue has the tasks %+v, %v, want %d", what, list, err, want)
		}
	}
	late := workflow.Event{Ended: &workflow.Ended{Place: place, Status: schemas.WorkflowCancelled}}
	failed := workflow.Event{Ended: &workflow.Ended{Place: place, Status: schemas.WorkflowFailed}}
	for _, ev := range []workflow.Event{{}, {Cancel: true}, late, failed} {
		if run, err := e.advance(t.Context(), "acme", child.RunID, ev); err != nil || run.Status != child.Status {
			t.Errorf("advance(%+v) = %s, %v, want %s", ev, run.Status, err, child.Status)
		}
	}
	answer := schemas.WorkflowAnswer{Step: "a", Values: json.RawMessage("{}")}
	_, err = e.Answer(t.Context(), "acme", parent.RunID, answer)
	if refused, ok := errors.AsType[*jobs.RefusedError](err); !ok || refused.Code != errcode.NotWaiting {
		t.Errorf("Answer = %v, want the code %s", err, errcode.NotWaiting)
	}
	answer.Item = new(int)
	*answer.Item = -1
	_, err = e.Answer(t.Context(), "acme", parent.RunID, answer)
	if refused, ok := errors.AsType[*jobs.RefusedError](err); !ok || refused.Code != errcode.BadAnswer {
		t.Errorf("Answer for item -1 = %v, want the code %s", err, errcode.BadAnswer)
	}
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: definition, Key: "k"})
	if err != nil || run.RunID != parent.RunID || run.Status != parent.Status {
		t.Errorf("Start = %s, %s, %v, want the run that has ended", run.RunID, run.Status, err)
	}
	if run, err := e.Get(t.Context(), "acme", parent.RunID); err != nil || run.Status != parent.Status {
		t.Errorf("Get = %s, %v, want %s", run.Status, err, parent.Status)
	}
	check("events without an alarm", 0)
	if n := len(e.plans); n > 0 {
		t.Errorf("the engine keeps the plans of %d runs that have ended", n)
	}

	for _, run := range []schemas.WorkflowRun{parent, child} {
		if err := e.widenAlarm(t.Context(), run, Alarm{Next: time.Now()}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, ev := range []workflow.Event{late, {}} {
		if _, err := e.advance(t.Context(), "acme", child.RunID, ev); err != nil {
			t.Fatal(err)
		}
		check([]string{"the end of a cancelled task", "an alarm"}[i], 2*i)
	}
}

// ended stores the record of a run that has failed while the task of its first step ran.
func ended(
	t *testing.T, e *Engine, plan *workflow.Plan, definition json.RawMessage, run schemas.WorkflowRun,
) schemas.WorkflowRun {
	t.Helper()
	values := map[string]json.RawMessage{definitionKey: definition, workflow.InputsKey: json.RawMessage("{}")}
	if _, err := e.putNew(t.Context(), "acme", run.RunID, values); err != nil {
		t.Fatal(err)
	}
	run.Tenant, run.Workspace = "acme", "main"
	now := e.Now(t.Context())
	run = plan.Cancelled(plan.New(run, now), now)
	run.Status, run.Steps[0].Attempt = schemas.WorkflowFailed, 1
	run, err := e.writeCancelled(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestCancelWithoutInputs checks that a task is cancelled whose inputs can no longer be evaluated: the cancellation
// changes run.status.
func TestCancelWithoutInputs(t *testing.T) {
	e := newEngine(t)
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(
		`{"name":"w","steps":[{"id":"a","code":"1","with":"${ 1 / (run.status == 'running' ? 1 : 0) }"}]}`)})
	if err == nil {
		_, err = e.Cancel(t.Context(), "acme", run.RunID)
	}
	if err == nil {
		run, _, err = e.read(t.Context(), "acme", run.RunID)
	}
	if err != nil || run.Status != schemas.WorkflowCancelled {
		t.Errorf("the run is %s, %v, want cancelled", run.Status, err)
	}
	list, err := e.queue.List(t.Context(), "acme", jobs.ListOptions{})
	if err != nil || len(list) != 1 || list[0].Status != schemas.Cancelled {
		t.Errorf("tasks after Cancel: %+v, %v, want one cancelled task", list, err)
	}
}
