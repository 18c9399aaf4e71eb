package engine

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

func newEngine(t *testing.T) *Engine {
	t.Helper()
	return newEngineFor(t, nil)
}

// newEngineFor returns an engine whose queue has a policy.
func newEngineFor(t *testing.T, policy jobs.Policy) *Engine {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	user := srv.Fleet()
	queue, err := jobs.Connect(t.Context(), jobs.Options{
		Server:      jobs.Server{InProcess: srv},
		Credentials: jobs.Credentials{User: user.User, Password: user.Password}, Log: quiet, Policy: policy,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(queue.Close)
	if err := queue.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return New(queue, quiet)
}

// TestLateNarrowing checks that a process which comes late does not narrow the alarm that another process needs: A
// answers a question that has a time limit, B answers another question, after which the run waits for ten minutes, and
// only then A narrows the alarm, which rings at the time limit.
func TestLateNarrowing(t *testing.T) {
	e := newEngine(t)
	const form = `{"form":{"type":"object","properties":{"ok":{"type":"boolean"}}}}`
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(`{"name":"w","steps":[
		{"id":"a","needs":[],"ask":` + form + `,"timeout":"5m"},{"id":"b","needs":[],"ask":` + form + `},
		{"id":"c","needs":["b"],"wait":{"for":"10m"}}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := e.plan(t.Context(), "acme", run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	load := e.load(t.Context(), "acme", run.RunID, map[string]json.RawMessage{})
	answer := workflow.Event{Answered: &workflow.Answered{Step: "a", Item: -1, Values: json.RawMessage("{}")}}
	applied, err := e.apply(t.Context(), plan, "acme", run.RunID, answer, load)
	if err != nil {
		t.Fatal(err)
	}
	in := schemas.WorkflowAnswer{Step: "b", Values: json.RawMessage("{}")}
	if run, err = e.Answer(t.Context(), "acme", run.RunID, in); err != nil {
		t.Fatal(err)
	}
	if _, err := e.follow(t.Context(), plan, applied, load); err != nil {
		t.Fatal(err)
	}
	if next := alarmIn(t.Context(), t, e, run.RunID).Next; next.After(run.Steps[2].Due) {
		t.Errorf("the alarm rings at %s, want it to ring when the wait is over, at %s", next, run.Steps[2].Due)
	}
	// After the alarm has rung, it rings when the wait is over.
	if err := e.Tick(t.Context(), "acme", run.RunID, time.Now()); err != nil {
		t.Fatal(err)
	}
	if next := alarmIn(t.Context(), t, e, run.RunID).Next; !next.Equal(run.Steps[2].Due) {
		t.Errorf("the alarm rings at %s, want %s, when the wait is over", next, run.Steps[2].Due)
	}
}

// alarmIn returns the stored alarm of a run.
func alarmIn(ctx context.Context, t *testing.T, e *Engine, id string) (found alarmDocument) {
	t.Helper()
	store, err := e.automations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := store.Get(ctx, KindAlarm, "acme", id)
	if err == nil {
		err = json.Unmarshal(doc.Data, &found)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestRetainedVersions checks that the version is retained with which a workflow begins whose first step is a loop:
// the step does not know it, but its items do.
func TestRetainedVersions(t *testing.T) {
	e := &Engine{}
	var retained []int64
	e.Retain = func(_ context.Context, _, _ string, generation int64, _ time.Time) error {
		retained = append(retained, generation)
		return nil
	}
	before := schemas.WorkflowRun{Steps: []schemas.StepRun{{ID: "a", Items: make([]schemas.StepRun, 2)}}}
	after := schemas.WorkflowRun{Steps: []schemas.StepRun{
		{ID: "a", Items: []schemas.StepRun{{Before: 7, After: 8}, {Before: 8, After: 9}}}, {ID: "b", Before: 9},
	}}
	if err := e.retainVersions(t.Context(), applied{before: before, after: after, changed: true}); err != nil {
		t.Fatal(err)
	}
	if len(retained) != 2 || retained[0] != 7 || retained[1] != 9 {
		t.Errorf("retained the versions %v, want 7 and 9", retained)
	}
}

// TestEventTypes checks that an alarm keeps event types that have spaces, and that alarms which an earlier version
// stored, with spaces between the types, are understood.
func TestEventTypes(t *testing.T) {
	alarm := Alarm{Types: joinTypes([]string{"order *", "paid", "order *"})}
	for _, c := range []struct {
		alarm Alarm
		want  []string
	}{
		{Alarm{}, nil},
		{Alarm{Types: "a b"}, []string{"a", "b"}},
		{alarm, []string{"order *", "paid"}},
		{alarm.or(Alarm{Types: "a b"}), []string{"a", "b", "order *", "paid"}},
	} {
		if got := c.alarm.EventTypes(); !slices.Equal(got, c.want) {
			t.Errorf("EventTypes of %q = %q, want %q", c.alarm.Types, got, c.want)
		}
	}
}
