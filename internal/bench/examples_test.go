package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSequence(t *testing.T) {
	chosen, err := Sequence([]string{"01", "3", " 01", "0", "14"})
	var numbers []string
	for _, e := range chosen {
		numbers = append(numbers, e.Number)
	}
	if d := cmp.Diff([]string{"01", "03", "01", "00", "14"}, numbers); d != "" || err != nil {
		t.Errorf("Sequence (-want +got):\n%s%v", d, err)
	}
	for _, unknown := range []string{"99", "", "001"} {
		want := fmt.Sprintf("unknown example %q: want one of 00, 01, 02", unknown)
		if _, err := Sequence([]string{"01", unknown}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Sequence with %q = %v, want %q", unknown, err, want)
		}
	}
}

// TestRunExamples checks that examples work without a model, and that the report has first and next executions.
func TestRunExamples(t *testing.T) {
	o, temp := options(t)
	sequence, err := Sequence([]string{"01", "03", "05", "01"})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(Examples()); n != 15 || Examples()[n-1].Number != "14" {
		t.Errorf("%d examples, want 00 to 14", n)
	}
	r, err := RunExamples(t.Context(), o, sequence, true)
	if err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, temp)
	first, next := r.Samples["first execution"], r.Samples["next executions"]
	if len(first) != 1 || len(next) != 3 {
		t.Errorf("%d first and %d next executions, want 1 and 3", len(first), len(next))
	}
	if got, want := r.Numbers["speedup"].Value, first[0]/mean(next); got != want {
		t.Errorf("speedup = %v, want %v", got, want)
	}
	if off := r.Samples["without pooling"]; len(off) != 3 || r.Numbers["pooling"].Value != mean(off)/mean(next) {
		t.Errorf("without pooling = %v, ratio %v; want one sample for each of 3 examples, and their ratio", off,
			r.Numbers["pooling"].Value)
	}
	var rows []string
	for _, row := range r.Tables[0].Rows {
		rows = append(rows, strings.Join(row[:4], " "))
	}
	if want := []string{
		"1 01 basic tool call 1", "2 03 filtering data 1", "3 05 state over two sessions 2",
		"4 01 basic tool call 1",
	}; !slices.Equal(rows, want) {
		t.Errorf("executions: %q, want %q", rows, want)
	}
	if len(r.Tables) != 2 || len(r.Tables[1].Rows) != 5 {
		t.Errorf("tables = %+v, want a second one with 5 tasks", r.Tables)
	}
}
