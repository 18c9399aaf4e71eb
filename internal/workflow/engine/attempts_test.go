package engine

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

// TestGetNamesAttempts checks that Get names the tasks and the runs of the attempts that run, also those of items.
func TestGetNamesAttempts(t *testing.T) {
	e := newEngine(t)
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(`{"name":"w","steps":[
		{"id":"task","needs":[],"code":"1","with":"task"},
		{"id":"loop","needs":[],"for_each":{"in":["i0","i1"],"parallel":2},"code":"1","with":"${ item }"},
		{"id":"workflow","needs":[],"workflow":{"name":"x","steps":[{"id":"inner","code":"1","with":"inner"}]}},
		{"id":"event","needs":[],"wait":{"event":{"type":"never"}}},
		{"id":"later","code":"1"}]}`)})
	if err == nil {
		run, err = e.Get(t.Context(), "acme", run.RunID)
	}
	if err != nil {
		t.Fatal(err)
	}
	child, err := e.Get(t.Context(), "acme", run.Steps[2].RunID)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, s := range slices.Concat(run.Steps, run.Steps[1].Items, child.Steps) {
		if s.TaskID == "" {
			continue
		}
		_, ev, err := e.queue.Submitted(t.Context(), "acme", s.TaskID)
		var task schemas.Task
		if err == nil {
			err = ev.DataAs(&task)
		}
		if err != nil {
			t.Fatal(err)
		}
		ids[string(task.Inputs)] = ev.ID()
	}
	want := map[string]string{
		`"task"`: "task/-1/1", `"i0"`: "loop/0/1", `"i1"`: "loop/1/1", `"inner"`: "inner/-1/1",
	}
	if d := cmp.Diff(want, ids); d != "" {
		t.Errorf("tasks that Get names, by their inputs (-want +got):\n%s", d)
	}
	// After the end of the step, its run is still known.
	place := workflow.Place{Step: "inner", Item: -1, Attempt: 1}
	_, err = e.advance(t.Context(), "acme", child.RunID, workflow.Event{Ended: &workflow.Ended{
		Place: place, Status: schemas.WorkflowSucceeded,
	}})
	if err == nil {
		run, err = e.Get(t.Context(), "acme", run.RunID)
	}
	if s := run.Steps[2]; err != nil || s.Status != schemas.WorkflowSucceeded || s.RunID != child.RunID {
		t.Errorf("step workflow is %s, of the run %s, %v, want succeeded, of %s", s.Status, s.RunID, err, child.RunID)
	}
}

// TestRepeatAfterNarrowing checks that a repeated advance does not fail a step whose task or run exists already, if
// the tenant's policy would now refuse it.
func TestRepeatAfterNarrowing(t *testing.T) {
	var narrow atomic.Bool
	e := newEngineFor(t, func(string) (jobs.TenantPolicy, bool) {
		if narrow.Load() {
			return jobs.TenantPolicy{Pools: []string{"other"}}, true
		}
		return jobs.TenantPolicy{}, true
	})
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(`{"name":"w","steps":[
		{"id":"a","needs":[],"code":"1"},
		{"id":"b","needs":[],"workflow":{"name":"x","steps":[{"id":"c","code":"1"}]}}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	narrow.Store(true)
	request := schemas.WorkflowRequest{Workflow: json.RawMessage(`{"name":"w","steps":[{"id":"a","code":"1"}]}`)}
	if _, err := e.Start(t.Context(), "acme", request); err == nil {
		t.Error("the policy does not refuse a new run")
	}
	if err := e.Tick(t.Context(), "acme", run.RunID, time.Now()); err != nil {
		t.Fatal(err)
	}
	if run, err = e.Get(t.Context(), "acme", run.RunID); err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Steps {
		if s.Status != schemas.WorkflowRunning {
			t.Errorf("step %s is %s, %v, want running", s.ID, s.Status, s.Error)
		}
	}
}

// TestGetRefused checks that a run can be read whose definition this version refuses.
func TestGetRefused(t *testing.T) {
	e := newEngine(t)
	definition := json.RawMessage(`{"name":"w","steps":[{"id":"a","code":"1"}]}`)
	plan, err := Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	run := schemas.WorkflowRun{
		RunID: jobs.TaskID("acme", jobs.WorkflowSource, "r"), Tenant: "acme", Workspace: "main",
	}
	refused := json.RawMessage(`{"name":"w","steps":[{"id":"a","poem":"1"}]}`)
	values := map[string]json.RawMessage{definitionKey: refused, workflow.InputsKey: json.RawMessage("{}")}
	if _, err := e.putNew(t.Context(), "acme", run.RunID, values); err != nil {
		t.Fatal(err)
	}
	store, err := e.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(plan.New(run, e.Now(t.Context())))
	if err == nil {
		_, err = store.Swap(t.Context(), "acme", run.RunID, record, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	run, err = e.Get(t.Context(), "acme", run.RunID)
	if err != nil || run.Status.Ended() || string(run.Workflow) != string(refused) {
		t.Errorf("Get = %s, %s, %v, want an active run with its definition", run.Status, run.Workflow, err)
	}
}

// TestListAsking checks that ListAsking returns only runs with a step, or an item of a step, that waits for an answer.
func TestListAsking(t *testing.T) {
	e := newEngine(t)
	const form = `"form":{"type":"object","properties":{"ok":{"type":"boolean"}}}`
	begun := map[string]string{}
	for _, name := range []string{"step", "loop", "event", "task", "cancelled"} {
		step := map[string]string{
			"step":      `"ask":{` + form + `}`,
			"cancelled": `"ask":{` + form + `}`,
			"loop":      `"for_each":{"in":["a","b"]},"ask":{"message":"${ item }?",` + form + `}`,
			"event":     `"wait":{"event":{"type":"never"}}`,
			"task":      `"code":"1"`,
		}[name]
		run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(
			`{"name":"w","steps":[{"id":"a",` + step + `}]}`,
		)})
		if err != nil {
			t.Fatal(err)
		}
		begun[run.RunID] = name
		if name == "cancelled" {
			if _, err := e.Cancel(t.Context(), "acme", run.RunID); err != nil {
				t.Fatal(err)
			}
		}
	}
	for limit, want := range map[int][]string{1: {"loop"}, 10: {"loop", "step"}} {
		runs, err := e.ListAsking(t.Context(), "acme", limit)
		var got []string
		for _, r := range runs {
			got = append(got, begun[r.RunID])
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("ListAsking(%d) = %q, %v, want %q", limit, got, err, want)
		}
	}
}
