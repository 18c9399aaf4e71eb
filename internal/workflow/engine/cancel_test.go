package engine

import (
	"encoding/json"
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
// finally at their deadline, and all tasks if the record gets too large.
func TestEndCancelsTasks(t *testing.T) {
	const tasks = `{"id":"b","needs":[],"code":"1"},{"id":"c","needs":[],"for_each":{"in":[1]},"code":"1"}`
	const form = `"form":{"type":"object","properties":{"ok":{"type":"boolean"}}}`
	for _, c := range []struct {
		definition string
		end        func(e *Engine, id string) error
		code       string
	}{
		{
			`{"name":"w","steps":[{"id":"a","when":"false","code":"1"}],"finally":[` + tasks + `]}`,
			func(e *Engine, id string) error {
				e.mu.Lock()
				e.ahead += 48 * time.Hour
				e.mu.Unlock()
				return e.Tick(t.Context(), "acme", id, time.Now())
			}, "",
		},
		{
			`{"name":"w","steps":[` + tasks + `,{"id":"q","needs":[],"ask":{` + form + `}},
				{"id":"l","for_each":{"in":[1` + strings.Repeat(",1", 99) + `],"parallel":100},
				"ask":{"message":"` + strings.Repeat("x", 4000) + `",` + form + `}}]}`,
			func(e *Engine, id string) error {
				in := schemas.WorkflowAnswer{Step: "q", Values: json.RawMessage("{}")}
				_, err := e.Answer(t.Context(), "acme", id, in)
				return err
			}, errcode.WorkflowTooLarge,
		},
	} {
		e := newEngine(t)
		run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(c.definition)})
		if err == nil {
			err = c.end(e, run.RunID)
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
		if err != nil || len(list) != 2 || list[0].Status != schemas.Cancelled || list[1].Status != schemas.Cancelled {
			t.Errorf("tasks after the end of the run with %.70s: %+v, %v, want two cancelled tasks", c.definition, list,
				err)
		}
	}
}
