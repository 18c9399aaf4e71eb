package engine

import (
	"encoding/json"
	"testing"
	"time"

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

// TestCancelUnwanted checks that an attempt which the queue refuses can be cancelled.
func TestCancelUnwanted(t *testing.T) {
	e := newEngine(t)
	run := schemas.WorkflowRun{RunID: jobs.TaskID("acme", jobs.WorkflowSource, "r"), Tenant: "acme", Workspace: "main"}
	place := workflow.Place{Step: "a", Item: -1, Attempt: 1}
	for _, effect := range []workflow.Effect{
		{Place: place, Task: &schemas.Task{}, Cancel: true},
		{Place: place, Workflow: &schemas.WorkflowRequest{Workflow: json.RawMessage(`{}`)}, Cancel: true},
	} {
		end, err := e.do(t.Context(), run, effect, false)
		if err != nil || end == nil || end.Status != schemas.WorkflowCancelled {
			t.Errorf("%+v, %v; want a cancelled attempt", end, err)
		}
	}
}
