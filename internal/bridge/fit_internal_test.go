package bridge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
)

// Results that are too long for the limit are shortened, and say so.
func TestTruncatedResults(t *testing.T) {
	const limit = 2000
	check := func(name string, out any, truncated, want bool) {
		t.Helper()
		if size := jsonSize(out); size > limit || truncated != want {
			t.Errorf("%s: %d bytes, truncated %t; want at most %d, %t", name, size, truncated, limit, want)
		}
	}
	var run runOut
	for i := range 100 {
		run.Steps = append(run.Steps, runStepOut{ID: fmt.Sprintf("step_%d", i), Status: "succeeded", TaskID: "t"})
	}
	run.Steps[99].Status, run.Steps[99].Message = "waiting", "Which one?"
	run.Outputs = json.RawMessage(`"` + strings.Repeat("x", limit) + `"`)
	got := fitRun(run, limit)
	check("run", got, got.Truncated, true)
	if len(got.Steps) != 1 || got.Steps[0].ID != "step_99" || got.Outputs != nil {
		t.Errorf("fitRun = %+v, want the waiting step only", got)
	}
	for i := range run.Steps {
		run.Steps[i].Status = "waiting"
	}
	got = fitRun(run, limit)
	check("waiting run", got, got.Truncated, true)
	got = fitRun(runOut{Outputs: json.RawMessage("1"), Steps: run.Steps[:2]}, limit)
	check("short run", got, got.Truncated, false)
	if len(got.Steps) != 2 || string(got.Outputs) != "1" {
		t.Errorf("fitRun = %+v, want the whole run", got)
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
