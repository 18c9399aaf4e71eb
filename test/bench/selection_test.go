package main

import (
	"testing"

	"github.com/codefleet/codefleet/internal/bench"
)

// TestSelectionWithoutDataSets checks that the tools in a prompt have at most 2 % of the tokens of tools/list, which
// does not depend on the machine.
func TestSelectionWithoutDataSets(t *testing.T) {
	reports, err := bench.Run(t.Context(), bench.Options{Scenario: "selection", Runs: 2}, options{}.scenarios())
	if err != nil {
		t.Fatal(err)
	}
	r := reports[0]
	if n := r.Numbers["context"]; n.Value <= 0 || n.Value > 2 {
		t.Errorf("context = %+v, want at most 2 %%", n)
	}
	if len(r.Tables) != 1 || len(r.Tables[0].Rows) != len(contextTasks) {
		t.Errorf("tables = %+v, want one with a row for each task", r.Tables)
	}
	if len(r.Samples["prepare with 560 tools"]) != 2 {
		t.Errorf("samples = %v, want two of the preparation", r.Samples)
	}
	if _, ok := r.Numbers["N11 10k"]; ok || len(r.Notes) == 0 {
		t.Errorf("without --data: numbers %v, notes %v, want N11 missing and a note", r.Numbers, r.Notes)
	}
}
