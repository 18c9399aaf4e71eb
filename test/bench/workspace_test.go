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
	childMain()
	m.Run()
}

// TestWorkspace runs the scenario with small trees and without yardsticks.
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
	if files, err := os.ReadDir(temp); err != nil || len(files) > 0 {
		t.Errorf("files in the temporary directory: %v, %v, want none", files, err)
	}
	for _, what := range []string{
		firstPush, samePush, onePush, coldPull, samePull, largePush, largeEdit, largePull, firstPush + delayedSuffix,
		samePull + delayedSuffix,
	} {
		if n := len(b.Samples[what+": codefleet"]); n != 2 {
			t.Errorf("%d samples of %q, want 2", n, what)
		}
	}
	// A push gets HEAD, then puts the pack and the manifest concurrently, then puts HEAD.
	if got, least := b.Median(onePush+delayedSuffix+": codefleet"), 3*float64(addedDelay.Milliseconds()); got < least {
		t.Errorf("a push of three sequential requests with %v added to each took %v ms, want at least %v", addedDelay,
			got, least)
	}
	for _, id := range []string{"N9s", "N9t", "N9u", "N9v"} {
		if b.Numbers[id].Value <= 0 {
			t.Errorf("%s = %+v, want a positive value", id, b.Numbers[id])
		}
	}
	if _, ok := b.Numbers["N9a"]; ok || len(b.Notes) < 2 {
		t.Errorf("without yardsticks: N9a exists: %v, notes %q, want false and two notes on missing tools", ok,
			b.Notes)
	}
}
