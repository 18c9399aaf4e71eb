package faulttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	workflows "github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

var workflowRuns = flag.Int(
	"faults.runs", 8, "number of runs of a workflow in TestWorkflowFaults, each with about ten tasks",
)

// once is the program of a step: it books its number, and creates its file, which must not exist yet.
const once = `
from client.mcp_client import ToolError
from servers.ledger import book
try:
    book(inputs["n"])
except ToolError as error:
    open(inputs["file"] + ".doubt", "x").close()
with open(inputs["file"], "x") as f:
    f.write("x")
result = inputs.get("item")
`

// secondTry is the program of a step whose first attempt fails. Each attempt creates its file, and books its number.
const secondTry = `
import os
attempt = 2 if os.path.exists(inputs["file"] + ".1") else 1
inputs["file"] += "." + str(attempt)
inputs["n"] += attempt
` + once + `
if attempt == 1:
    raise ValueError("not yet")
`

// storyRun is a run of a workflow with a branch, a loop, a retry, a question, an event, a workflow within it, and a
// wait.
type storyRun struct {
	number int
	ref    state.Ref
	id     string
}

// storyNumbers has the effects of each run: the name of each file, and the last digit of its number in the ledger.
var storyNumbers = map[string]int{
	"list": 0, "each-0": 1, "each-1": 2, "each-2": 3, "flaky.1": 5, "flaky.2": 6, "yes": 7, "no": 7,
	"sum": 8, "clean": 9,
}

func (s storyRun) workflow(t *testing.T) json.RawMessage {
	t.Helper()
	step := func(id, code string, fields map[string]any) map[string]any {
		with := map[string]any{"file": fmt.Sprintf("r%d-%s", s.number, id), "n": s.number*10 + storyNumbers[id]}
		if id == "flaky" {
			with["n"] = s.number*10 + 4
		}
		out := map[string]any{"id": id, "code": code, "with": with}
		if more, ok := fields["with"].(map[string]any); ok {
			maps.Copy(with, more)
			delete(fields, "with")
		}
		maps.Copy(out, fields)
		return out
	}
	file := fmt.Sprintf("r%d-", s.number)
	data, err := json.Marshal(map[string]any{
		"name": "story",
		"steps": []any{
			step("list", once+"result = [1, 2, 3]\n", map[string]any{}),
			step("each", once, map[string]any{
				"needs":    []string{"list"},
				"for_each": map[string]any{"in": "steps.list.result", "max": 10, "parallel": 2},
				"with": map[string]any{
					"file": file + "each-${ index }", "n": fmt.Sprintf("${ %d + index }", s.number*10+1),
					"item": "${ item * 2 }",
				},
			}),
			step("flaky", secondTry, map[string]any{
				"needs": []string{"list"}, "retry": map[string]any{"attempts": 2, "backoff": "20ms"},
				"options": map[string]any{"commit": "always"},
			}),
			map[string]any{"id": "ask", "needs": []string{"list"}, "ask": json.RawMessage(
				`{"message":"go on?","form":{"type":"object","required":["ok"],"properties":{"ok":{"type":"boolean"}}}}`)},
			step("yes", once, map[string]any{"needs": []string{"ask"}, "when": "steps.ask.result.ok"}),
			step("no", once, map[string]any{"needs": []string{"ask"}, "when": "!steps.ask.result.ok"}),
			map[string]any{"id": "heard", "needs": []string{"list"}, "wait": map[string]any{
				"event": map[string]any{"type": "told", "filter": fmt.Sprintf("data.n == %d", s.number)},
			}},
			map[string]any{
				"id": "tell", "needs": []string{"yes", "no"}, "emit": map[string]any{"type": "told"},
				"with": map[string]any{"n": s.number},
			},
			map[string]any{"id": "inner", "needs": []string{
				"tell", "heard", "flaky", "each",
			}, "workflow": map[string]any{
				"name": "inner", "inputs": map[string]any{"list": map[string]any{"type": "array"}},
				"steps": []any{step("sum", once, map[string]any{
					"with": map[string]any{"item": "${ inputs.list[0] + inputs.list[1] + inputs.list[2] }"},
				})},
				"outputs": map[string]any{"sum": map[string]any{"value": "${ steps.sum.result }"}},
			}, "with": map[string]any{"list": "${ steps.each.result }"}},
			map[string]any{"id": "pause", "wait": map[string]any{"for": "50ms"}},
		},
		"finally": []any{step("clean", once, map[string]any{})},
		"outputs": map[string]any{"sum": map[string]any{"type": "integer", "value": "${ steps.inner.result.sum }"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestWorkflowFaults kills workers, the queue and the object store while workflows run. Each step of each run has its
// effect once, in the workspace and in a tool, and each run ends. With more -faults.runs it takes longer.
func TestWorkflowFaults(t *testing.T) {
	t.Setenv("ATTEMPTS", "100")
	f := newFleet(t)
	f.generate(t)
	ledger := filepath.Join(f.dir, "ledger")
	var kills []faulttest.Fault
	for range 3 {
		w := f.work(t, 2, "SERVERS="+filepath.Join(f.dir, "servers"), "LEDGER="+ledger)
		kills = append(kills, faulttest.Fault{Name: "kill -9 of a worker", Weight: 2, Do: w.KillAndRestart})
	}
	kills = append(kills,
		faulttest.Fault{Name: "kill -9 of NATS", Weight: 3, Do: f.nats.KillAndRestart},
		faulttest.Fault{Name: "kill -9 of S3", Weight: 3, Do: f.s3.KillAndRestart})
	began := time.Now()
	faulty, endFaults := context.WithCancel(t.Context())
	defer endFaults()
	var injecting sync.WaitGroup
	defer injecting.Wait()
	defer endFaults()
	faults := map[string]int{}
	injecting.Go(func() { faults = faulttest.InjectRandomly(faulty, t, f.seed, *chaosEvery, kills...) })
	runs := f.stories(t)
	endFaults()
	injecting.Wait()
	if len(faults) == 0 {
		t.Error("no fault was injected")
	}
	f.auditStories(t, runs, ledger)
	t.Logf("seed %d: %d runs in %s, faults %v", f.seed, len(runs), time.Since(began).Round(time.Second), faults)
}

// stories runs the workflow many times, a few at once, and answers its questions.
func (f *fleet) stories(t *testing.T) []storyRun {
	t.Helper()
	const atOnce = 10
	runs := make([]storyRun, *workflowRuns)
	rng := rand.New(rand.NewPCG(f.seed, 2))
	e := workflows.New(f.queue, roleLog())
	slots := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for i := range runs {
		runs[i] = storyRun{number: i, ref: state.Ref{Tenant: "acme", Workspace: "w" + strconv.Itoa(rng.IntN(8))}}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			runs[i].id = f.story(t, e, runs[i])
		})
	}
	running.Wait()
	return runs
}

// story runs the workflow once, and returns the id of the run.
func (f *fleet) story(t *testing.T, e *workflows.Engine, s storyRun) string {
	t.Helper()
	var run schemas.WorkflowRun
	definition := s.workflow(t)
	f.retry(t, "start of run "+strconv.Itoa(s.number), func(ctx context.Context) (err error) {
		run, err = e.Start(ctx, s.ref.Tenant, schemas.WorkflowRequest{
			Workflow: definition, Workspace: s.ref.Workspace, Key: strconv.Itoa(s.number),
		})
		return err
	})
	answered, id := false, run.RunID
	f.retry(t, "end of run "+id, func(ctx context.Context) (err error) {
		if run, err = e.Get(ctx, s.ref.Tenant, id); err != nil || run.Status.Ended() {
			return err
		}
		i := slices.IndexFunc(run.Steps, func(x schemas.StepRun) bool { return x.ID == "ask" })
		if run.Steps[i].Status == schemas.WorkflowWaiting && !answered {
			_, err = e.Answer(ctx, s.ref.Tenant, id, schemas.WorkflowAnswer{
				Step: "ask", Values: json.RawMessage(fmt.Sprintf(`{"ok":%v}`, s.number%2 == 0)),
			})
			refused, ok := errors.AsType[*jobs.RefusedError](err)
			if answered = err == nil || ok && refused.Code == "not_waiting"; !answered {
				return err
			}
		}
		return fmt.Errorf("the run is %s: %s", run.Status, stepStatuses(run))
	})
	if want := `{"sum":12}`; run.Status != schemas.WorkflowSucceeded || string(run.Outputs) != want {
		t.Errorf("run %d (%s) is %s with %s, %v, want %s: %s", s.number, run.RunID, run.Status, run.Outputs, run.Error,
			want, stepStatuses(run))
	}
	return id
}

// stepStatuses describes the status of each step of a run.
func stepStatuses(run schemas.WorkflowRun) string {
	var b strings.Builder
	for _, x := range run.Steps {
		fmt.Fprintf(&b, "%s %s %d, ", x.ID, x.Status, x.Attempt)
	}
	return b.String()
}

// retry calls fn until it returns nil, for at most five minutes. That is longer than it takes until the engine looks at
// every run again.
func (f *fleet) retry(t *testing.T, name string, fn func(context.Context) error) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := fn(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: %v", name, err)
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			return
		}
	}
}

// auditStories compares the files and the commits of the workspaces, the ledger and the records with the runs.
func (f *fleet) auditStories(t *testing.T, runs []storyRun, ledger string) {
	t.Helper()
	byRef := map[state.Ref][]storyRun{}
	for _, s := range runs {
		byRef[s.ref] = append(byRef[s.ref], s)
	}
	booked := map[int]int{}
	text, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		booked[n]++
	}
	doubts := 0
	for ref, in := range byRef {
		want, files := map[string]int{}, f.files(t, ref)
		for _, s := range in {
			for id, n := range storyNumbers {
				if id == "yes" && s.number%2 == 1 || id == "no" && s.number%2 == 0 {
					continue
				}
				name := fmt.Sprintf("r%d-%s", s.number, id)
				want[name] = 1
				_, doubt := files[name+".doubt"]
				if doubt {
					doubts++
					want[name+".doubt"] = 1
				}
				if got := booked[s.number*10+n]; got > 1 || got == 0 && !doubt {
					t.Errorf("step %s has booked its number %d times, want once (in doubt: %v)", name, got, doubt)
				}
			}
		}
		got := map[string]int{}
		for name := range files {
			got[name] = 1
		}
		for name := range want {
			if got[name] != 1 {
				t.Errorf("file %s is missing in %s", name, ref)
			}
		}
		for name := range got {
			if want[name] != 1 {
				t.Errorf("there is a file %s in %s, which no step creates", name, ref)
			}
		}
		f.auditStepCommits(t, ref)
	}
	t.Logf("%d numbers booked, %d calls in doubt", len(booked), doubts)
	store, err := f.queue.Automations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	alarms, err := store.List(t.Context(), workflows.KindAlarm, "acme")
	if err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		f.logEvents(t, alarms)
	}
	for _, a := range alarms { // those of runs that have ended are removed when they ring
		if err := workflows.New(f.queue, roleLog()).Tick(t.Context(), a.Tenant, a.Name, time.Now()); err != nil {
			t.Error(err)
		}
	}
	if alarms, err = store.List(t.Context(), workflows.KindAlarm, "acme"); err != nil || len(alarms) > 0 {
		t.Errorf("%d alarms are left after the runs, %v, want none", len(alarms), err)
	}
}

// logEvents logs what is known about events that a run has not received.
func (f *fleet) logEvents(t *testing.T, alarms []jobs.Automation) {
	t.Helper()
	for _, a := range alarms {
		t.Logf("alarm of run %s: %s", a.Name, a.Data)
	}
	stream := f.stream(t, "EVENTS")
	for info := range stream.ListConsumers(t.Context()).Info() {
		t.Logf("stream EVENTS %+v, consumer %+v", stream.CachedInfo().State, info)
	}
}

// auditStepCommits checks that each task has one commit, and changed its own files.
func (f *fleet) auditStepCommits(t *testing.T, ref state.Ref) {
	t.Helper()
	log, err := history.Log(t.Context(), f.store.Repo(), ref, 0)
	if err != nil {
		t.Fatal(err)
	}
	commits := map[string]int{}
	for _, c := range log {
		commits[c.TaskID]++
		if len(c.Conflicts) > 0 {
			t.Errorf("commit %d of %s has conflicts: %v", c.Generation, ref, c.Conflicts)
		}
	}
	for id, n := range commits {
		if n != 1 {
			t.Errorf("task %s has %d commits in %s, want 1", id, n, ref)
		}
	}
}
