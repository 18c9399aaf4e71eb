package automation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/logtest"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

// story has a branch, a loop, a retry, a question, a wait, a workflow within it, and an event for the step wait.
const story = `{"name":"story","inputs":{"n":{"type":"integer"}},"steps":[
	{"id":"list","code":"result = inputs","with":["${ inputs.n }","${ inputs.n + 1 }","${ inputs.n + 2 }"]},
	{"id":"each","needs":["list"],"for_each":{"in":"steps.list.result","max":10,"parallel":2},
		"code":"x","with":"${ item }"},
	{"id":"flaky","needs":["list"],"code":"flaky","with":"${ inputs.n }","retry":{"attempts":3,"backoff":"20ms"}},
	{"id":"ask","needs":["list"],"ask":{"form":{"type":"object","required":["ok"],
		"properties":{"ok":{"type":"boolean"}}}}},
	{"id":"yes","needs":["ask"],"when":"steps.ask.result.ok","code":"x","with":"yes"},
	{"id":"no","needs":["ask"],"when":"!steps.ask.result.ok","code":"x","with":"no"},
	{"id":"heard","needs":["list"],"wait":{"event":{"type":"was told","filter":"data.n == inputs.n"}}},
	{"id":"tell","needs":["yes","no"],"emit":{"type":"was told"},"with":{"n":"${ inputs.n }"}},
	{"id":"inner","needs":["tell","heard","flaky","each"],"with":{"v":"${ steps.each.result }"},
		"workflow":{"name":"inner",
		"inputs":{"v":{"type":"array"}},"steps":[
			{"id":"sum","code":"x","with":"${ inputs.v[0] + inputs.v[1] + inputs.v[2] }"}],
		"outputs":{"sum":{"value":"${ steps.sum.result }"}}}},
	{"id":"pause","wait":{"for":"50ms"}}],
	"finally":[{"id":"clean","code":"x","with":"${ run.status }"}],
	"outputs":{"sum":{"type":"integer","value":"${ steps.inner.result.sum }"},
		"answer":{"value":"${ steps.yes.status } ${ steps.no.status }"},"heard":{"value":"${ steps.heard.result.n }"}}}`

// effects counts which steps' tasks have had an effect, by run.
type effects struct {
	mu    sync.Mutex
	count map[string]map[string]int
}

// handle runs the program of a step: it returns the inputs, except that the first attempt of flaky fails.
func (e *effects) handle(_ context.Context, j *jobs.Job) (*schemas.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	run := j.Task.Labels["workflow_run"]
	if e.count[run] == nil {
		e.count[run] = map[string]int{}
	}
	e.count[run][j.Record.EventID]++
	if j.Task.Code == "flaky" && strings.HasSuffix(j.Record.EventID, "/1") {
		return &schemas.Result{
			Status: schemas.Failed, Error: &schemas.Error{Code: "exception", Message: "not yet"},
		}, nil
	}
	return &schemas.Result{Status: schemas.Succeeded, Result: j.Task.Inputs}, nil
}

// runWorkers starts workers whose advances are lost at random, before or after they took place, as if the worker had
// been killed, and services that fire waits.
func (w *world) runWorkers(t *testing.T, n int, handler jobs.Handler, lost func() (before, after bool)) *engine.Engine {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range n {
		queue := w.connect(t)
		e := engine.New(queue, quiet)
		worker := jobs.NewWorker(queue, jobs.WorkerOptions{
			Name: fmt.Sprint("w", i), Slots: 4, Handler: handler, Log: quiet,
			Hooks: jobs.Hooks{Ended: func(ctx context.Context, rec schemas.Record) error {
				before, after := lost()
				if before {
					return errors.New("lost before the advance")
				}
				if err := e.TaskEnded(ctx, rec); err != nil || !after {
					return err
				}
				return errors.New("lost after the advance")
			}},
		})
		running.Go(func() {
			if err := worker.Run(ctx, ctx); err != nil {
				t.Errorf("Run of the worker = %v, want nil", err)
			}
		})
		s := newService(queue, nil)
		running.Go(func() { s.Run(ctx) })
	}
	return engine.New(w.queue, quiet)
}

// ended waits until a run has ended. It answers the questions of steps.
func ended(t *testing.T, e *engine.Engine, id string, answer string) schemas.WorkflowRun {
	t.Helper()
	run, err := awaitEnd(t.Context(), e, id, answer)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// awaitEnd is like ended, for any goroutine.
func awaitEnd(ctx context.Context, e *engine.Engine, id string, answer string) (schemas.WorkflowRun, error) {
	for deadline := time.Now().Add(5 * time.Minute); ; {
		run, err := e.Get(ctx, "acme", id)
		if err != nil {
			return run, err
		}
		for _, s := range run.Steps {
			if s.Message == "" || s.Status != schemas.WorkflowWaiting {
				continue
			}
			in := schemas.WorkflowAnswer{Step: s.ID, Values: json.RawMessage(answer)}
			_, err := e.Answer(ctx, "acme", id, in)
			refused, ok := errors.AsType[*jobs.RefusedError](err)
			if err != nil && (!ok || refused.Code != "not_waiting") {
				return run, err
			}
		}
		if run.Status.Ended() {
			return run, nil
		}
		if time.Now().After(deadline) {
			data, _ := json.Marshal(run)
			return run, fmt.Errorf("the run has not ended: %s", data)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// TestLostAdvances runs a workflow with branches, a loop, a retry, a question, an event and a workflow within it many
// times, on workers that are lost before or after they advance it. Each step has its effect once, and each run ends.
func TestLostAdvances(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	lost := func() (before, after bool) {
		mu.Lock()
		defer mu.Unlock()
		x := random.IntN(10)
		return x == 0, x == 1
	}
	w := newWorld(t, "2026-11-23T08:30:00Z")
	seen := &effects{count: map[string]map[string]int{}}
	e := w.runWorkers(t, 2, seen.handle, lost)
	var group sync.WaitGroup
	for n := range 25 {
		group.Go(func() {
			run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{
				Workflow: json.RawMessage(story), Inputs: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)), Key: strconv.Itoa(n),
			})
			if err != nil {
				t.Error(err)
				return
			}
			again, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{
				Workflow: json.RawMessage(story), Inputs: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)), Key: strconv.Itoa(n),
			})
			if err != nil || again.RunID != run.RunID {
				t.Errorf("Start with the same key = %s, %v, want the run %s", again.RunID, err, run.RunID)
			}
			if run, err = awaitEnd(t.Context(), e, run.RunID, fmt.Sprintf(`{"ok":%v}`, n%2 == 0)); err != nil {
				t.Error(err)
				return
			}
			answer, branch := "succeeded skipped", "yes"
			if n%2 == 1 {
				answer, branch = "skipped succeeded", "no"
			}
			want := fmt.Sprintf(`{"answer":%q,"heard":%d,"sum":%d}`, answer, n, 3*n+3)
			if run.Status != schemas.WorkflowSucceeded || string(run.Outputs) != want {
				t.Errorf("run %d is %s with %s, %v, want %s", n, run.Status, run.Outputs, run.Error, want)
			}
			seen.mu.Lock()
			got := maps.Clone(seen.count[run.RunID])
			seen.mu.Unlock()
			if d := cmp.Diff(map[string]int{
				"list/-1/1": 1, "each/0/1": 1, "each/1/1": 1, "each/2/1": 1, "flaky/-1/1": 1, "flaky/-1/2": 1,
				branch + "/-1/1": 1, "clean/-1/1": 1,
			}, got); d != "" {
				t.Errorf("effects of run %d (-want +got):\n%s", n, d)
			}
		})
	}
	group.Wait()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		// An advance that was lost after it had ended the run removes the alarm when it is repeated.
		alarms, err := w.store.List(t.Context(), engine.KindAlarm, "acme")
		if err == nil && len(alarms) == 0 {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%d alarms are left after the runs, %v, want none", len(alarms), err)
		}
	}
	runs, err := e.List(t.Context(), "acme", 10)
	if err != nil || len(runs) != 10 {
		t.Errorf("List(10) = %d runs, %v, want 10 of the runs", len(runs), err)
	}
}

// purge removes the messages of streams, or the streams.
func (w *world) purge(t *testing.T, streamsToo bool, names ...string) {
	t.Helper()
	user := w.srv.Fleet()
	nc, err := nats.Connect(w.srv.URL(), nats.UserInfo(user.User, user.Password))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		stream, err := js.Stream(t.Context(), name)
		if err == nil && streamsToo {
			err = js.DeleteStream(t.Context(), name)
		} else if err == nil {
			err = stream.Purge(t.Context())
		}
		if err != nil {
			t.Fatalf("purge %s: %v", name, err)
		}
	}
}

func neverLost() (before, after bool) { return false, false }

// TestInterruptedStart checks that a run goes on although its start has stored its record, but submitted no task.
func TestInterruptedStart(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	seen := &effects{count: map[string]map[string]int{}}
	e := engine.New(w.queue, quiet)
	const one = `{"name":"one","steps":[{"id":"a","code":"x","with":1},{"id":"b","code":"x","with":2}]}`
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(one)})
	if err != nil {
		t.Fatal(err)
	}
	w.purge(t, false, "TASKS", "KV_TASKSTATE") // as if the task of step a had not been submitted
	w.runWorkers(t, 1, seen.handle, neverLost)
	if err := e.Tick(t.Context(), "acme", run.RunID, time.Now()); err != nil {
		t.Fatal(err)
	}
	if run = ended(t, e, run.RunID, ""); run.Status != schemas.WorkflowSucceeded {
		t.Errorf("run is %s, want succeeded", run.Status)
	}
}

// TestTwoAnswers checks that of answers at the same time one counts, and the others are refused.
func TestTwoAnswers(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	e := engine.New(w.queue, quiet)
	const asks = `{"name":"asks","steps":[{"id":"a","ask":{"form":{"type":"object",
		"properties":{"who":{"type":"integer"},"why":{"type":"string"}}}}}],
		"outputs":{"who":{"value":"${ steps.a.result.who }"}}}`
	large := strings.Repeat("x", 1000) // the answer is kept apart from the record
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(asks)})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var accepted []int
	var group sync.WaitGroup
	for who := range 8 {
		group.Go(func() {
			_, err := e.Answer(t.Context(), "acme", run.RunID, schemas.WorkflowAnswer{
				Step: "a", Values: json.RawMessage(fmt.Sprintf(`{"who":%d,"why":%q}`, who, large)),
			})
			refused, ok := errors.AsType[*jobs.RefusedError](err)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				accepted = append(accepted, who)
			case !ok || refused.Code != "not_waiting":
				t.Errorf("answer %d = %v, want not_waiting", who, err)
			}
		})
	}
	group.Wait()
	run, err = e.Get(t.Context(), "acme", run.RunID)
	if err != nil || len(accepted) != 1 || string(run.Outputs) != fmt.Sprintf(`{"who":%d}`, accepted[0]) {
		t.Fatalf("accepted answers %v, outputs %s, %v, want one, which counts", accepted, run.Outputs, err)
	}
	want := fmt.Sprintf(`{"who":%d,"why":%q}`, accepted[0], large)
	if got := string(run.Steps[0].Result); got != want {
		t.Errorf("result of the step = %.20s, want the accepted answer %.20s", got, want)
	}
}

// TestLargeAnswer checks that an answer which is refused does not replace the accepted one, and that a rerun keeps the
// accepted one.
func TestLargeAnswer(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	e := engine.New(w.queue, quiet)
	const asks = `{"name":"asks","steps":[
		{"id":"a","ask":{"form":{"type":"object","properties":{"v":{"type":"string"}}}}},
		{"id":"b","emit":{"type":"told"}}],
		"outputs":{"n":{"value":"${ size(steps.a.result.v) }"}}}`
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(asks)})
	if err != nil {
		t.Fatal(err)
	}
	run, err = e.Answer(t.Context(), "acme", run.RunID, schemas.WorkflowAnswer{
		Step: "a", Values: json.RawMessage(fmt.Sprintf(`{"v":%q}`, strings.Repeat("x", 1000))),
	})
	if err != nil || string(run.Outputs) != `{"n":1000}` {
		t.Fatalf("run is %s with %s, %v, want succeeded with 1000", run.Status, run.Outputs, err)
	}
	store, err := w.queue.Workflows(t.Context())
	if err == nil { // as a process does that learns only then that another answer was accepted
		err = store.Put(t.Context(), "acme", run.RunID, "result.a", []byte(`{"v":"another"}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	if run, err = e.Get(t.Context(), "acme", run.RunID); err != nil || len(run.Steps[0].Result) != 1008 {
		t.Errorf("result of the step is %d bytes, %v, want the accepted answer of 1008", len(run.Steps[0].Result), err)
	}
	run, err = e.Rerun(t.Context(), "acme", run.RunID, schemas.WorkflowRerun{From: "b"}, nil)
	if err != nil || string(run.Outputs) != `{"n":1000}` {
		t.Errorf("rerun is %s with %s, %v, want succeeded with the accepted answer", run.Status, run.Outputs, err)
	}
}

// TestRerunOfRerun runs a workflow again from a question, and the second run again: the third run begins with the
// version with which the second one began. The numbers of a fork's versions begin anew.
func TestRerunOfRerun(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	versions := map[string]int64{"main": 7}
	var mu sync.Mutex
	e := w.runWorkers(t, 1, func(_ context.Context, j *jobs.Job) (*schemas.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		versions[j.Record.Workspace]++
		res := &schemas.Result{Status: schemas.Succeeded}
		res.Workspace.Generation, res.Workspace.Changed = versions[j.Record.Workspace], []string{"n.txt"}
		return res, nil
	}, neverLost)
	var forked []string
	fork := func(_ context.Context, _, from string, generation int64, to string) (int64, error) {
		mu.Lock()
		defer mu.Unlock()
		forked = append(forked, fmt.Sprintf("%s@%d", from, generation))
		versions[to] = 1
		return 1, nil
	}
	const asks = `{"name":"asks","steps":[{"id":"first","code":"x"},
		{"id":"ask","ask":{"form":{"type":"object","properties":{"ok":{"type":"boolean"}}}}},
		{"id":"write","code":"x"}]}`
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(asks)})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, generation := range []int64{8, 1, 1} {
		run = ended(t, e, run.RunID, `{"ok":true}`)
		want = append(want, fmt.Sprintf("%s@%d", run.Workspace, generation))
		if run, err = e.Rerun(t.Context(), "acme", run.RunID, schemas.WorkflowRerun{From: "ask"}, fork); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(want, forked); d != "" {
		t.Errorf("versions with which the reruns began (-want +got):\n%s", d)
	}
	run = ended(t, e, run.RunID, `{"ok":true}`)
	_, err = e.Rerun(t.Context(), "acme", run.RunID, schemas.WorkflowRerun{From: "first"}, fork)
	if !strings.HasPrefix(code(err), "unknown_step") || !strings.Contains(fmt.Sprint(err), "instead") {
		t.Errorf("rerun from a step that is kept = %v, want unknown_step and what to run again", err)
	}
}

// TestRerunWithoutVersion checks that a run whose steps recorded no version of the workspace is run again in a fork of
// the newest one, and that a rerun that is refused creates no workspace.
func TestRerunWithoutVersion(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	e := w.runWorkers(t, 1, func(context.Context, *jobs.Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Blocked, Error: &schemas.Error{Code: "guardrail"}}, nil
	}, neverLost)
	var forked []string
	fork := func(_ context.Context, _, from string, generation int64, _ string) (int64, error) {
		forked = append(forked, fmt.Sprintf("%s@%d", from, generation))
		return 1, nil
	}
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{
		Workflow: json.RawMessage(
			`{"name":"one","inputs":{"n":{"type":"integer","default":1}},"steps":[{"id":"a","code":"x"}]}`),
		Workspace: "w",
	})
	if err != nil {
		t.Fatal(err)
	}
	run = ended(t, e, run.RunID, "")
	in := schemas.WorkflowRerun{From: "a", Set: map[string]json.RawMessage{"n": json.RawMessage(`"many"`)}}
	_, err = e.Rerun(t.Context(), "acme", run.RunID, in, fork)
	refused, ok := errors.AsType[*jobs.RefusedError](err)
	if !ok || refused.Code != "bad_workflow" || refused.Path != "/set/n" || len(forked) > 0 {
		t.Errorf("Rerun with a wrong input = %+v, forked %q, want bad_workflow at /set/n, and no fork", err, forked)
	}
	run, err = e.Rerun(t.Context(), "acme", run.RunID, schemas.WorkflowRerun{From: "a"}, fork)
	if err != nil || !strings.HasPrefix(run.Workspace, "w-rerun-") || !slices.Equal(forked, []string{"w@0"}) {
		t.Errorf("Rerun works in %s, forked %q, %v, want a fork of the newest version of w", run.Workspace, forked, err)
	}
}

// TestStepTimesOut checks that a step whose time has passed does not end while its task is queued, and that it ends
// with step_timeout, and is tried again, if its task was not submitted in time.
func TestStepTimesOut(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	e := engine.New(w.queue, quiet)
	const slow = `{"name":"slow","steps":[{"id":"a","code":"x","timeout":"2s","retry":{"attempts":2,"backoff":"1ms"}}]}`
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(slow)})
	if err != nil {
		t.Fatal(err)
	}
	tick := func() schemas.StepRun {
		t.Helper()
		if err := e.Tick(t.Context(), "acme", run.RunID, time.Now()); err != nil {
			t.Fatal(err)
		}
		if run, err = e.Get(t.Context(), "acme", run.RunID); err != nil {
			t.Fatal(err)
		}
		return run.Steps[0]
	}
	<-time.After(time.Until(run.Steps[0].Due)) // the queue compares the time of a task with the clock
	if s := tick(); s.Status != schemas.WorkflowRunning || s.Error != nil {
		t.Errorf("step is %s, %v, want running until its task expires", s.Status, s.Error)
	}
	w.purge(t, false, "TASKS", "KV_TASKSTATE") // as if the task of the step had not been submitted
	if s := tick(); s.Status != schemas.WorkflowWaiting || s.Error == nil || s.Error.Code != "step_timeout" {
		t.Errorf("step is %s, %v, want it to wait for the next attempt after step_timeout", s.Status, s.Error)
	}
}

// TestAlarmComesFirst checks that a record changes only after its alarm was written: if a process is lost between the
// two writes, the run must not be left without an alarm, because no process would advance it again.
func TestAlarmComesFirst(t *testing.T) {
	const ask = `{"id":"ask","ask":{"form":{"type":"object","properties":{"ok":{"type":"boolean"}}}}},`
	for name, then := range map[string]string{
		"a task":    `{"id":"b","code":"x"}`,
		"a time":    `{"id":"b","wait":{"for":"1h"}}`,
		"an event":  `{"id":"b","wait":{"event":{"type":"told"}}}`,
		"a timeout": `{"id":"b","ask":{"form":{"type":"object","properties":{"ok":{"type":"boolean"}}}},"timeout":"1h"}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "2026-11-23T08:30:00Z")
			e := engine.New(w.queue, quiet)
			run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{
				Workflow: json.RawMessage(`{"name":"w","steps":[` + ask + then + `]}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			w.purge(t, true, "KV_AUTOMATIONS")
			in := schemas.WorkflowAnswer{Step: "ask", Values: json.RawMessage(`{"ok":true}`)}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := e.Answer(ctx, "acme", run.RunID, in); err == nil {
				t.Error("the answer was accepted without an alarm")
			}
			if run, err = e.Get(t.Context(), "acme", run.RunID); err != nil || run.Steps[0].Status != "waiting" {
				t.Errorf("step ask is %s, %v, want waiting", run.Steps[0].Status, err)
			}
		})
	}
}

// TestRunLimit checks that a tenant with as many runs as it may have gets no more until one has ended, also for the
// workflow of a step, and that another tenant's runs do not count.
func TestRunLimit(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	const asks = `{"name":"asks","steps":[
		{"id":"a","ask":{"form":{"type":"object","properties":{"ok":{"type":"boolean"}}}}}]}`
	start := func(e *engine.Engine, tenant, definition string) (schemas.WorkflowRun, error) {
		return e.Start(t.Context(), tenant, schemas.WorkflowRequest{Workflow: json.RawMessage(definition)})
	}
	e := engine.New(w.queue, quiet)
	e.MaxRuns = 3
	var run schemas.WorkflowRun
	for range 3 {
		var err error
		if run, err = start(e, "acme", asks); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := start(e, "acme", asks); code(err) != "automation_limit" {
			t.Errorf("start of a fourth run = %v, want automation_limit", err)
		}
	}
	if _, err := start(e, "globex", asks); err != nil {
		t.Errorf("start of another tenant's run = %v, want nil", err)
	}
	if _, err := e.Cancel(t.Context(), "acme", run.RunID); err != nil {
		t.Fatal(err)
	}
	later := engine.New(w.queue, quiet) // which has counted nothing yet
	later.MaxRuns = 3
	inner, err := start(later, "acme", `{"name":"outer","steps":[{"id":"in","workflow":`+asks+`}]}`)
	if err != nil {
		t.Fatal(err)
	}
	inner = ended(t, later, inner.RunID, "")
	if s := inner.Steps[0]; s.Status != "failed" || s.Error == nil || s.Error.Code != "automation_limit" {
		t.Errorf("step in is %s with %v, want failed with automation_limit", s.Status, s.Error)
	}
}

// TestChangedWorkflow checks that a run keeps the workflow with which it began: a request with its key and another
// workflow is the same run, whose question keeps its form. A run that has not ended is not run again.
func TestChangedWorkflow(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	asks := func(field string) schemas.WorkflowRequest {
		return schemas.WorkflowRequest{Key: "k", Workflow: json.RawMessage(`{"name":"asks","steps":[{"id":"a","ask":{"form":
			{"type":"object","required":["` + field + `"],"properties":{"` + field + `":{"type":"integer"}}}}}],
			"outputs":{"v":{"value":"${ steps.a.result.` + field + ` }"}}}`)}
	}
	first, err := engine.New(w.queue, quiet).Start(t.Context(), "acme", asks("old"))
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(w.queue, quiet)
	second, err := e.Start(t.Context(), "acme", asks("new"))
	if err != nil || second.RunID != first.RunID {
		t.Fatalf("Start with the key of a run = %s, %v, want %s", second.RunID, err, first.RunID)
	}
	_, err = e.Rerun(t.Context(), "acme", first.RunID, schemas.WorkflowRerun{From: "a"}, nil)
	if !strings.HasPrefix(code(err), "run_active") {
		t.Errorf("rerun of a step that waits = %v, want run_active", err)
	}
	answer := func(values string) (schemas.WorkflowRun, error) {
		in := schemas.WorkflowAnswer{Step: "a", Values: json.RawMessage(values)}
		return e.Answer(t.Context(), "acme", first.RunID, in)
	}
	if _, err := answer(`{"new":1}`); !strings.HasPrefix(code(err), "bad_answer") {
		t.Errorf("answer to the changed form = %v, want bad_answer", err)
	}
	if run, err := answer(`{"old":1}`); err != nil || string(run.Outputs) != `{"v":1}` {
		t.Errorf("answer to the form of the run = %s, %v, want 1", run.Outputs, err)
	}
}

// TestSkewedClocks checks that waits follow the queue's time: processes whose clocks are hours ahead or behind neither
// end a wait early, nor let a run time out.
func TestSkewedClocks(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	at := func(skew time.Duration) *engine.Engine {
		e := engine.New(w.queue, quiet)
		e.HostTime = func() time.Time { return time.Now().Add(skew) }
		return e
	}
	run, err := at(-5*time.Hour).Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(
		`{"name":"w","timeout":"3h","steps":[{"id":"a","wait":{"for":"1h"}}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	if off := time.Since(run.CreatedAt).Abs(); off > time.Minute {
		t.Errorf("the run was created at %s, %s from now, want now", run.CreatedAt, off)
	}
	for _, skew := range []time.Duration{5 * time.Hour, 0, -5 * time.Hour} {
		if err := at(skew).Tick(t.Context(), "acme", run.RunID, time.Now()); err != nil {
			t.Fatal(err)
		}
		if run, err = at(skew).Get(t.Context(), "acme", run.RunID); err != nil || run.Steps[0].Status != "waiting" {
			t.Errorf("with a clock that is %s ahead, the step is %s, %v, want waiting", skew, run.Steps[0].Status, err)
		}
	}
}

// TestTwoStarts checks that starts at the same time with the same key are one run, although their workflows and inputs
// differ: the run has the definition and the inputs that were stored first.
func TestTwoStarts(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	e := engine.New(w.queue, quiet)
	ids := make([]string, 8)
	var group sync.WaitGroup
	for n := range ids {
		group.Go(func() {
			definition := `{"name":"two","inputs":{"n":{"type":"integer"}},"steps":[` +
				strings.TrimSuffix(strings.Repeat(`{"id":"N","emit":{"type":"t"}},`, n+1), ",") +
				`],"outputs":{"n":{"value":"${ inputs.n }"}}}`
			for i := range n + 1 {
				definition = strings.Replace(definition, `"N"`, fmt.Sprintf(`"s%d"`, i), 1)
			}
			run, err := engine.New(w.queue, quiet).Start(t.Context(), "acme", schemas.WorkflowRequest{
				Workflow: json.RawMessage(definition), Inputs: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)), Key: "two",
			})
			if err != nil {
				t.Errorf("start %d: %v", n, err)
			}
			ids[n] = run.RunID
		})
	}
	group.Wait()
	run := ended(t, e, ids[0], "")
	var definition schemas.Workflow
	if err := json.Unmarshal(run.Workflow, &definition); err != nil {
		t.Fatal(err)
	}
	if run.Status != schemas.WorkflowSucceeded || len(run.Steps) != len(definition.Steps) ||
		string(run.Outputs) != string(run.Inputs) {
		t.Errorf("run is %s with %d steps and %s, want those of its workflow with %d steps and its inputs %s",
			run.Status, len(run.Steps), run.Outputs, len(definition.Steps), run.Inputs)
	}
	if slices.ContainsFunc(ids, func(id string) bool { return id != ids[0] }) {
		t.Errorf("the starts returned the runs %v, want one", ids)
	}
}

// TestCancelRun cancels a run whose tasks are queued: no worker has them yet.
func TestCancelRun(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	seen := &effects{count: map[string]map[string]int{}}
	e := engine.New(w.queue, quiet)
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(
		`{"name":"c","steps":[{"id":"a","code":"x"},{"id":"b","code":"x"}],"finally":[{"id":"z","code":"x","with":"${ run.status }"}]}`,
	)})
	if err == nil {
		_, err = e.Cancel(t.Context(), "acme", run.RunID)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.runWorkers(t, 1, seen.handle, neverLost)
	run = ended(t, e, run.RunID, "")
	if run.Status != schemas.WorkflowCancelled || string(run.Steps[2].Result) != `"cancelled"` {
		t.Errorf("run is %s, finally returned %s, want cancelled", run.Status, run.Steps[2].Result)
	}
	if d := cmp.Diff(map[string]int{"z/-1/1": 1}, seen.count[run.RunID]); d != "" {
		t.Errorf("effects (-want +got):\n%s", d)
	}
}

// TestBadRuns checks the errors with which requests for runs are refused.
func TestBadRuns(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	e := engine.New(w.queue, quiet)
	for _, c := range []struct{ workflow, inputs, code, path string }{
		{``, ``, "bad_workflow", "/workflow"},
		{`{"name":"x","steps":[{"id":"a","code":"1","needs":["a"]}]}`, ``, "bad_workflow", "/workflow/steps/0/needs"},
		{`{"name":"x","inputs":{"n":{}},"steps":[{"id":"a","code":"1"}]}`, `{}`, "bad_workflow", "/inputs/n"},
		{`{"name":"x","steps":[{"id":"a","code":"1"}]}`, `{"a/b":1}`, "bad_workflow", "/inputs/a~1b"},
		{
			`{"name":"x","steps":[{"id":"a","code":"1","options":{"network":{"allow":["exa mple"]}}}]}`, ``, "bad_data",
			"/workflow/steps/0",
		},
	} {
		_, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{
			Workflow: json.RawMessage(c.workflow), Inputs: json.RawMessage(c.inputs),
		})
		refused, ok := errors.AsType[*jobs.RefusedError](err)
		if !ok || refused.Code != c.code || refused.Path != c.path {
			t.Errorf("Start(%s) = %+v, want %s at %s", c.workflow, err, c.code, c.path)
		}
	}
	if _, err := e.Get(t.Context(), "acme", "x.y"); err == nil {
		t.Error("Get of an invalid id = nil, want an error")
	}
	runs, err := e.List(t.Context(), "acme", 10)
	if err != nil || len(runs) > 0 {
		t.Errorf("List = %d runs, %v, want none", len(runs), err)
	}
}

// TestTriggeredRun checks that an event starts the workflow of a trigger's task, once, and that its depth is kept.
func TestTriggeredRun(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	e := engine.New(w.queue, quiet)
	seen := &effects{count: map[string]map[string]int{}}
	w.runWorkers(t, 1, func(ctx context.Context, j *jobs.Job) (*schemas.Result, error) {
		if len(j.Task.Workflow) == 0 {
			return seen.handle(ctx, j)
		}
		run, err := e.StartTask(ctx, j.Record, j.Task)
		return &schemas.Result{Status: schemas.Succeeded, Result: json.RawMessage(fmt.Sprintf("%q", run.RunID))}, err
	}, neverLost)
	_, err := w.AddTrigger(t.Context(), "acme", schemas.TriggerSpec{
		Name: "t", Type: "order.created",
		Task: json.RawMessage(`{"workflow":{"name":"o","inputs":{"total":{}},"steps":[{"id":"a","code":"x","with":"${ inputs.total }"}],
			"outputs":{"v":{"value":"${ steps.a.result }"}}}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	ev := order("1", `{"total":7}`)
	for range 2 {
		if err := w.queue.PublishEvent(t.Context(), "acme", ev); err != nil {
			t.Fatal(err)
		}
	}
	var runs []schemas.WorkflowRun
	for deadline := time.Now().Add(20 * time.Second); len(runs) == 0; {
		if runs, err = e.List(t.Context(), "acme", 10); err != nil || time.Now().After(deadline) {
			t.Fatalf("the event started no run: %v", err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	run := ended(t, e, runs[0].RunID, "")
	if string(run.Outputs) != `{"v":7}` || run.Depth != 1 {
		t.Errorf("run of depth %d has the outputs %s, want depth 1 and the event's total", run.Depth, run.Outputs)
	}
	if runs, err = e.List(t.Context(), "acme", 10); err != nil || len(runs) != 1 {
		t.Errorf("the event started %d runs, %v, want 1", len(runs), err)
	}
}

// TestWaitForResult checks that a step can wait for the result of a task while a trigger matches results.
func TestWaitForResult(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	e := w.runWorkers(t, 1, (&effects{count: map[string]map[string]int{}}).handle, neverLost)
	_, err := w.AddTrigger(t.Context(), "acme", schemas.TriggerSpec{
		Name: "t", Type: schemas.TypeResult, Filter: "false", Task: json.RawMessage(`{"code":"x"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(`{"name":"w","steps":[
		{"id":"a","wait":{"event":{"type":"codefleet.task.result.v1","filter":"data.result == 7"}}}],
		"outputs":{"status":{"value":"${ steps.a.result.status }"}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	task := event.New()
	task.SetID("1")
	task.SetSource("/test")
	task.SetType(schemas.TypeTask)
	if err := task.SetData(event.ApplicationJSON, json.RawMessage(`{"code":"x","inputs":7}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.queue.Submit(t.Context(), "acme", task); err != nil {
		t.Fatal(err)
	}
	if run = ended(t, e, run.RunID, ""); string(run.Outputs) != `{"status":"succeeded"}` {
		t.Errorf("%s run has the outputs %s, want the status of the task's result", run.Status, run.Outputs)
	}
}

// TestPanicAtARun checks that a run at which an advance panics is logged, and neither ends the process nor keeps an
// event from another run.
func TestPanicAtARun(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	var log logtest.Log
	e := engine.New(w.queue, slog.New(slog.NewTextHandler(&log, nil)))
	w.runs = e
	begin := func(definition string) string {
		t.Helper()
		run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(definition)})
		if err != nil {
			t.Fatal(err)
		}
		return run.RunID
	}
	const waits = `{"name":"waits","steps":[` +
		`{"id":"a","wait":{"event":{"type":"told"}}},{"id":"b","emit":{"type":"x"}}]}`
	broken, whole := begin(waits), begin(waits)
	store, err := w.queue.Workflows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, rev, err := store.Get(t.Context(), "acme", broken)
	if err != nil {
		t.Fatal(err)
	}
	var record schemas.WorkflowRun
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	record.Steps = record.Steps[:1] // the step b is missing
	if data, err = json.Marshal(record); err == nil {
		_, err = store.Swap(t.Context(), "acme", broken, data, rev)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = e.Tick(t.Context(), "acme", broken, time.Now())
	if err == nil || !strings.Contains(err.Error(), "makes the fleet panic") {
		t.Errorf("Tick of the broken run = %v, want that it panicked", err)
	}
	text := log.String()
	if !strings.Contains(text, broken) || !strings.Contains(text, "workflow.(*machine)") {
		t.Errorf("log does not have the run %s and the stack:\n%s", broken, text)
	}

	c := newCache()
	for _, id := range []string{broken, whole} {
		doc, err := w.store.Get(t.Context(), engine.KindAlarm, "acme", id)
		if err != nil {
			t.Fatal(err)
		}
		c.learnRun(doc)
	}
	if err := w.wakeRuns(t.Context(), c, "acme", told(t, "{}")); err != nil {
		t.Errorf("wakeRuns = %v, want nil: the event cannot be handled better later", err)
	}
	if run, err := e.Get(t.Context(), "acme", whole); err != nil || run.Status != schemas.WorkflowSucceeded {
		t.Errorf("the other run is %s, %v, want succeeded", run.Status, err)
	}
}

// TestPanicBesideAnAdvance checks that a panic in what follows from an advance does not end the process: it takes place
// in another goroutine.
func TestPanicBesideAnAdvance(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	e := engine.New(w.queue, quiet)
	e.Retain = func(context.Context, string, string, int64, time.Time) error { panic("no versions") }
	const emits = `{"name":"emits","steps":[{"id":"a","code":"pass"},{"id":"b","needs":["a"],"emit":{"type":"x"}}]}`
	run, err := e.Start(t.Context(), "acme", schemas.WorkflowRequest{Workflow: json.RawMessage(emits)})
	if err != nil {
		t.Fatal(err)
	}
	err = e.TaskEnded(t.Context(), schemas.Record{
		Tenant: "acme", Source: jobs.RunSource(run.RunID, 0), EventID: "a/-1/1", Status: schemas.Succeeded,
		Result: &schemas.Result{Status: schemas.Succeeded, Workspace: schemas.WorkspaceChange{Generation: 3}},
	})
	if err == nil || !strings.Contains(err.Error(), "no versions") {
		t.Errorf("TaskEnded = %v, want an error that names the panic", err)
	}
}
