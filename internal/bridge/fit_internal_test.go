package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/client"
)

// Private values of a run are hidden before its texts are cut. A whole question fits by default.
func TestRunTexts(t *testing.T) {
	p := &principal{b: &Bridge{o: Options{
		MaxOutput: 20_000, Recheck: time.Hour,
		Privacy: func(string, string) func(context.Context, string) string { return hideAda },
	}}}
	p.identity.Store(&client.Identity{})
	p.asked.Store(time.Now().UnixNano())
	c := &call{principal: p}
	view := func(message string) runOut {
		var run client.WorkflowRun
		data := fmt.Sprintf(`{"steps":[{"id":"a","status":"waiting","message":%q}]}`, message)
		if err := json.Unmarshal([]byte(data), &run); err != nil {
			t.Fatal(err)
		}
		return c.viewRun(t.Context(), run)
	}
	question := strings.Repeat("x", 4096)
	if out := view(question); out.Truncated || out.Steps[0].Message != question {
		t.Errorf("viewRun = %+v, want the whole question", out)
	}
	out := view(strings.Repeat("x", 5000-len(`""…ada@`)) + "ada@x.org" + question)
	if !out.Truncated || strings.Contains(out.Steps[0].Message, "ada") {
		t.Errorf("viewRun = %+v, want it truncated without the address", out)
	}
}

// Results that are too long for the limit are shortened, and say so.
func TestTruncatedResults(t *testing.T) {
	const limit = 2000
	check := func(name string, out any, truncated, want bool) {
		t.Helper()
		if size := jsonSize(out); size > limit || truncated != want {
			t.Errorf("%s: %d bytes, truncated %t; want at most %d, %t", name, size, truncated, limit, want)
		}
	}
	steps := func(status string) (list []runStepOut) {
		for i := range 100 {
			list = append(list, runStepOut{ID: fmt.Sprintf("step_%d", i), Status: status, TaskID: "t"})
		}
		return list
	}
	run := runOut{Steps: steps("succeeded"), Outputs: json.RawMessage(`"` + strings.Repeat("x", limit) + `"`)}
	run.Steps[99].Status, run.Steps[99].Message = "waiting", "Which one?"
	got := fitRun(run, limit)
	check("run", got, got.Truncated, true)
	if len(got.Steps) != 1 || got.Steps[0].ID != "step_99" || got.Outputs != nil {
		t.Errorf("fitRun = %+v, want the waiting step only", got)
	}
	waiting := steps("waiting")
	got = fitRun(runOut{Steps: waiting}, limit)
	check("waiting run", got, got.Truncated, true)
	if n := len(got.Steps); n < 10 || got.Steps[n-1].ID != waiting[n-1].ID {
		t.Errorf("fitRun = %+v, want the first steps", got)
	}
	got = fitRun(runOut{Outputs: json.RawMessage("1"), Steps: waiting[:2]}, limit)
	check("short run", got, got.Truncated, false)
	if len(got.Steps) != 2 || string(got.Outputs) != "1" {
		t.Errorf("fitRun = %+v, want the whole run", got)
	}
	whole := runOut{Outputs: json.RawMessage(`"` + strings.Repeat("x", limit*3/5) + `"`), Steps: waiting[:2]}
	got = fitRun(whole, limit)
	check("run with large outputs", got, got.Truncated, false)
	if string(got.Outputs) != string(whole.Outputs) {
		t.Errorf("fitRun = %+v, want the outputs", got)
	}

	fleet := fleetOut{Workers: make([]workerOut, 100), Backlog: make([]client.Backlog, 2)}
	f := fitFleet(fleet, limit)
	check("fleet", f, f.Truncated, true)
	fleet.Workers = fleet.Workers[:2]
	f = fitFleet(fleet, limit)
	check("small fleet", f, f.Truncated, false)

	var session client.Session
	for i := range 100 {
		session.StateFiles = append(session.StateFiles, fmt.Sprintf("state/%d.json", i))
	}
	s := fitSession(session, limit)
	check("session", s, s.Truncated, true)
	session.StateFiles = session.StateFiles[:2]
	s = fitSession(session, limit)
	check("short session", s, s.Truncated, false)
}
