package eval

import (
	"encoding/json"
	"os"
	"testing"
)

func TestRunOnData(t *testing.T) {
	dir := os.Getenv("CODEFLEET_SELECTION_DATA")
	if dir == "" {
		t.Skip("CODEFLEET_SELECTION_DATA names no directory of data sets")
	}
	report, err := Run(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range report.Sets {
		t.Logf("%-20s local R@5 %.3f R@10 %.3f history R@5 %.3f R@10 %.3f hybrid R@5 %.3f first H@3 %.3f", s.Name,
			s.Local.Recall5, s.Local.Recall10, s.History.Recall5, s.History.Recall10, s.Hybrid.Recall5, s.FirstHit3)
	}
	for i := range report.Scale {
		report.Scale[i].Samples = nil
	}
	out, _ := json.Marshal(report.Scale)
	t.Logf("%s", out)
}
