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
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range list {
		if rec.Status != schemas.Cancelled {
			t.Errorf("task %s is %s, want cancelled", rec.EventID, rec.Status)
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
