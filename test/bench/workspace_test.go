package main

import (
	"context"
	"os"
	"testing"

	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/embedded"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	engineMain()
	m.Run()
}

// TestWorkspace runs the scenario with small trees, without yardsticks.
func TestWorkspace(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("PATH", temp)
	small := bench.Scenario{Name: "workspace", NoSandbox: true, Measure: func(b *bench.Bench,
		ctx context.Context,
	) error {
		return (&run{Bench: b, sizes: sizes{small: 200, large: 12 << 20, many: 1000}}).workspace(ctx)
	}}
	reports, err := bench.Run(t.Context(), bench.Options{Program: self, Runs: 2}, []bench.Scenario{small})
	if err != nil {
		t.Fatal(err)
	}
	b := reports[0]
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, what := range []string{
		firstPush, samePush, onePush, coldPull, samePull, largePush, largeEdit, largePull, firstPush + slowly,
		samePull + slowly,
	} {
		if n := len(b.Samples[what+": codefleet"]); n != 2 {
			t.Errorf("%d samples of %q, want 2", n, what)
		}
	}
	// GET HEAD, PUT pack and manifest side by side, PUT HEAD.
	if got, least := b.Median(onePush+slowly+": codefleet"), 3*float64(addedDelay.Milliseconds()); got < least {
		t.Errorf("a push of three requests one after the other took %v ms, with %v added to each", got, addedDelay)
	}
	for _, id := range []string{"N9s", "N9t", "N9u", "N9v"} {
		if b.Numbers[id].Value <= 0 {
			t.Errorf("%s = %+v, want a number", id, b.Numbers[id])
		}
	}
	if _, ok := b.Numbers["N9a"]; ok || len(b.Notes) < 2 {
		t.Errorf("without yardsticks: N9a is there: %v; notes %q, want two that say what is missing", ok, b.Notes)
	}
}
