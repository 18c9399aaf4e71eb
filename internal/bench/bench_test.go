package bench

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/executor/executortest"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	serveTools()
	m.Run()
}

// options returns options for a run that writes its files to temp.
func options(t *testing.T) (o Options, temp string) {
	t.Helper()
	runsc := executortest.Runsc(t)
	temp, err := os.MkdirTemp("", "cf") //nolint:usetesting // a short path, because it contains sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) })
	t.Setenv("TMPDIR", temp)
	return Options{
		Settings: func(data string) (*config.Config, error) {
			return config.Load(config.Source{Flags: []config.Flag{
				{Key: "data", Value: data},
				{Key: "execution.runsc", Value: runsc},
				{Key: "logging.level", Value: "ERROR"},
			}})
		},
		Program: filepath.Join(temp, "codefleet"),
	}, temp
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("files in the temporary directory: %v, %v, want none", files, err)
	}
}

func TestOverhead(t *testing.T) {
	o, temp := options(t)
	o.Scenario, o.Runs = "overhead", 3
	reports, err := Run(t.Context(), o, Scenarios())
	if err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, temp)
	if len(reports) != 1 || reports[0].Scenario != "overhead" {
		t.Fatalf("reports = %+v, want one of the scenario overhead", reports)
	}
	r := reports[0]
	for _, name := range []string{"task", "direct", "task · 4 run", "task · 1 queued"} {
		if n := len(r.Samples[name]); n != 3 {
			t.Errorf("%d samples of %q, want 3", n, name)
		}
	}
	n, ok := r.Numbers["N2"]
	if want := r.Median("task") - r.Median("direct"); !ok || n.Value != want || n.Met != (want <= 3) || n.Unit != "ms" {
		t.Errorf("N2 = %+v, want %v ms", n, want)
	}
	if r.Median("direct") <= 0 || r.Median("task") <= 0 { // which is smaller depends on the machine's load
		t.Errorf("task %v ms, program alone %v ms, want both above 0", r.Median("task"), r.Median("direct"))
	}
}

// TestGrowth checks that a short history has all numbers of the scenario growth.
func TestGrowth(t *testing.T) {
	o, temp := options(t)
	o.Scenario, o.Runs, o.growthStep = "growth", 1, 100
	reports, err := Run(t.Context(), o, Scenarios())
	if err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, temp)
	r := reports[0]
	if len(r.Numbers) != 6 || r.Numbers["G1"].Value != 1 || !r.Numbers["G5"].Met || !r.Numbers["G6"].Met {
		t.Errorf("numbers = %+v, want 6, G1 = 1, and G5 and G6 met", r.Numbers)
	}
	if len(r.Tables) != 1 || len(r.Tables[0].Rows) != 1 {
		t.Errorf("tables = %+v, want one with one row", r.Tables)
	}
}

// TestGrowthQueue checks that a small run has all numbers and tables of the scenario growth-queue.
func TestGrowthQueue(t *testing.T) {
	o, temp := options(t)
	o.Scenario, o.Runs = "growth-queue", 1
	reports, err := Run(t.Context(), o, Scenarios())
	if err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, temp)
	r := reports[0]
	for _, id := range []string{"G7", "G8", "G9", "G10", "G11", "G12"} {
		if _, ok := r.Numbers[id]; !ok {
			t.Errorf("no number %s: %+v", id, r.Numbers)
		}
	}
	if len(r.Tables) != 1 || len(r.Tables[0].Rows) != len(slotParts)+1 {
		t.Errorf("tables = %+v, want the parts of a slot's time and their total", r.Tables)
	}
}

// TestWorkflow checks that a small run has all numbers of the scenario workflow, and that waiting runs hold no slot.
func TestWorkflow(t *testing.T) {
	o, temp := options(t)
	o.Scenario, o.Runs = "workflow", 1
	reports, err := Run(t.Context(), o, Scenarios())
	if err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, temp)
	r := reports[0]
	for _, id := range []string{"W1", "W1q", "W2", "W3", "W4", "W5"} {
		if _, ok := r.Numbers[id]; !ok {
			t.Errorf("no number %s: %+v", id, r.Numbers)
		}
	}
	if !r.Numbers["W3"].Met {
		t.Errorf("%v slots and boxes are busy while all runs wait, want 0", r.Numbers["W3"].Value)
	}
	if got, want := len(r.Samples["answer"]), waitingPerSample; got != want {
		t.Errorf("%d runs were answered, want %d", got, want)
	}
}

// TestInterrupted checks that a cancelled run leaves no files.
func TestInterrupted(t *testing.T) {
	o, temp := options(t)
	o.Scenario = "warm"
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	o.Progress = func(what string) {
		if strings.HasPrefix(what, "warm: 10 of") {
			stop(stopped)
		}
	}
	if _, err := Run(ctx, o, Scenarios()); !errors.Is(err, stopped) {
		t.Errorf("Run = %v, want %v", err, stopped)
	}
	checkEmpty(t, temp)
}

func TestUnknownScenario(t *testing.T) {
	_, err := Run(t.Context(), Options{Scenario: "lukewarm"}, Scenarios())
	if err == nil || !strings.Contains(err.Error(), `"lukewarm"`) || !strings.Contains(err.Error(), `"warm"`) {
		t.Errorf("Run = %v, want an error with the name and the valid ones", err)
	}
}

func TestSideBySide(t *testing.T) {
	b := &Bench{Options: Options{Progress: func(string) {}}, Report: newReport("x", "")}
	var order []string
	count := func(name string) Series {
		n := 0.0
		return Series{name, "ms", func(context.Context) (Sample, error) {
			order = append(order, name)
			n++
			return Sample{n, map[string]float64{"half": n / 2}}, nil
		}}
	}
	if err := b.SideBySide(t.Context(), Plan{Samples: 3, PerTurn: 2}, count("a"), count("b")); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, ""), "aabb"+"aabb"+"ab"; got != want {
		t.Errorf("measured in the order %s, want %s", got, want)
	}
	want := map[string][]float64{
		"a": {3, 4, 5}, "b": {3, 4, 5}, // the first two samples are dropped
		"a · half": {1.5, 2, 2.5}, "b · half": {1.5, 2, 2.5},
	}
	if d := cmp.Diff(want, b.Samples); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	if q := b.Yardsticks["a"]; q != (Quantiles{P50: 4, P99: 5, Mean: 4, Unit: "ms"}) {
		t.Errorf("quantiles of a = %+v, want p50 4, p99 5, mean 4 ms", q)
	}
	broken := Series{"c", "ms", func(context.Context) (Sample, error) { return Sample{}, errors.ErrUnsupported }}
	if err := b.SideBySide(t.Context(), Plan{Samples: 1, PerTurn: 1}, broken); !errors.Is(err, errors.ErrUnsupported) ||
		!strings.HasPrefix(err.Error(), "c: ") {
		t.Errorf("a series that fails: %v, want its error after its name", err)
	}
}

func TestRate(t *testing.T) {
	const callers = 3
	var calls, arrived atomic.Int64
	begun := make(chan int, callers)
	all := make(chan struct{})
	s := Rate("r", callers, 100, func(ctx context.Context, caller int) error {
		if calls.Add(1) <= callers { // the first calls wait for one another
			if begun <- caller; arrived.Add(1) == callers {
				close(all)
			}
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v, err := s.Measure(ctx)
	if err != nil || v.Value <= 0 || calls.Load() != 100 {
		t.Fatalf("%d calls, %v per second, %v; want 100 calls", calls.Load(), v.Value, err)
	}
	if sum := <-begun + <-begun + <-begun; sum != 0+1+2 {
		t.Errorf("the sum of the callers' numbers is %d, want 3", sum)
	}
	s = Rate("r", 2, 10, func(context.Context, int) error { return errors.ErrUnsupported })
	if _, err := s.Measure(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("callers that fail: %v, want their error", err)
	}
}

func TestRunnerImports(t *testing.T) {
	code, err := runnerImports()
	if err != nil {
		t.Fatal(err)
	}
	list, ok := strings.CutPrefix(code, "import ")
	modules := strings.Split(list, ", ")
	if !ok || !slices.IsSorted(modules) {
		t.Errorf("runnerImports() = %q, want one import of sorted modules", code)
	}
	for _, name := range []string{"ast", "json", "resource", "socket", "traceback"} {
		if !slices.Contains(modules, name) {
			t.Errorf("runnerImports() = %q, want %s in it", code, name)
		}
	}
	if slices.Contains(modules, "codefleet") {
		t.Errorf("runnerImports() = %q, want only modules of the standard library", code)
	}
	if out, err := exec.CommandContext(t.Context(), Python(), "-c", code).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", code, err, out)
	}
}

func TestReportShape(t *testing.T) {
	r := newReport("warm", "")
	r.Add("task", "ms", 1, 2, 3)
	r.Summarise()
	r.AtMost("N1", "what", 0.5, 0.8, "×")
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "commit")
	delete(got, "machine")
	want := map[string]any{
		"scenario": "warm",
		"numbers": map[string]any{
			"N1": map[string]any{"value": 0.5, "target": 0.8, "unit": "×", "met": true, "what": "what"},
		},
		"yardsticks": map[string]any{"task": map[string]any{"p50": 2.0, "p99": 3.0, "mean": 2.0, "unit": "ms"}},
		"samples":    map[string]any{"task": []any{1.0, 2.0, 3.0}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("report (-want +got):\n%s", d)
	}
}
