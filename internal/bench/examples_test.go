package bench

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSequence(t *testing.T) {
	chosen, err := Sequence([]string{"01", "3", " 01"})
	var numbers []string
	for _, e := range chosen {
		numbers = append(numbers, e.Number)
	}
	if d := cmp.Diff([]string{"01", "03", "01"}, numbers); d != "" || err != nil {
		t.Errorf("Sequence (-want +got):\n%s%v", d, err)
	}
	if _, err := Sequence([]string{"01", "99"}); err == nil || !strings.Contains(err.Error(), `"99": there are 01, 02`) {
		t.Errorf("Sequence of an unknown one: %v", err)
	}
}

// Every example does its work without a model, and the report says first and next.
func TestRunExamples(t *testing.T) {
	o, temp := options(t)
	sequence, err := Sequence([]string{"01", "03", "05", "01"})
	if err != nil {
		t.Fatal(err)
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
	if got, want := r.Numbers["speedup"].Value, first[0]/mean(next); got != want || got <= 1 {
		t.Errorf("speedup = %v, want %v, above 1", got, want)
	}
	var rows []string
	for _, row := range r.Tables[0].Rows {
		rows = append(rows, strings.Join(row[:4], " "))
	}
	if want := []string{"1 01 basic tool call 1", "2 03 filtering data 1", "3 05 state over two sessions 2", "4 01 basic tool call 1"}; !slices.Equal(rows, want) {
		t.Errorf("executions: %q, want %q", rows, want)
	}
	if len(r.Tables) != 2 || len(r.Tables[1].Rows) != 5 {
		t.Errorf("tables: %+v, want one of 5 tasks too", r.Tables)
	}
}

func TestPlot(t *testing.T) {
	var svg strings.Builder
	p := plot{Title: "a < b", X: []string{"1", "10"}, Lines: []line{
		{"one", []float64{1, 10}, []float64{2, 100}},
		{"<two>", []float64{1, 10}, []float64{1, 10}},
	}}
	if err := p.write(&svg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a &lt; b", "&lt;two&gt;", `points="60.0,370.0 590.0,205.0"`, `>100</text>`} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("no %q in %s", want, svg.String())
		}
	}
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		for range pace(t.Context(), 10*time.Millisecond, 105*time.Millisecond) {
			n++
		}
		if n != 11 { // it looks at the clock after each
			t.Errorf("%d arrivals in 105 ms, one in 10 ms", n)
		}
	})
}
