package bench

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/codefleet/codefleet/internal/tools/builtin"
)

// serveTools makes the test binary a tool server if it is started with the arguments of one.
func serveTools() {
	if len(os.Args) == 3 && os.Args[1] == "tool-server" {
		if err := builtin.Serve(context.Background(), os.Args[2], builtin.Options{}, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(0)
	}
}

// TestTools checks that the scenario measures 100 calls of each tool, in a box and by the bare client.
func TestTools(t *testing.T) {
	o, temp := options(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Scenario, o.Runs, o.Program = "tools", 1, self
	reports, err := Run(t.Context(), o, Scenarios())
	if err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, temp)
	r := reports[0]
	for name, want := range map[string]int{
		"sums.add in a sandbox": 100, "sums.add bare": 100, "slow.wait in a sandbox": 100, "slow.wait bare": 100,
		"100 × sums.add in a sandbox": 1, "100 × slow.wait bare": 1,
	} {
		if n := len(r.Samples[name]); n != want {
			t.Errorf("%d samples of %q, want %d", n, name, want)
		}
	}
	if got := r.Median("slow.wait bare"); got < 10 {
		t.Errorf("a tool that takes 10 ms took %v ms, want at least 10", got)
	}
	if n := r.Numbers["T1"]; n.Value != r.Median("sums.add in a sandbox")-r.Median("sums.add bare") || n.Unit != "ms" {
		t.Errorf("T1 = %+v, want the difference of the medians in ms", n)
	}
	if n := r.Numbers["T3"]; n.Value < 90 || n.Value >= 100 {
		t.Errorf("T3 = %+v, want most of the tokens saved", n)
	}
}
