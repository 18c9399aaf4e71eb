package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
			t.Errorf("the SVG lacks %q:\n%s", want, svg.String())
		}
	}
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		for range pace(t.Context(), 10*time.Millisecond, 105*time.Millisecond) {
			n++
		}
		if n != 11 { // the last one is sent after the end
			t.Errorf("%d arrivals in 105 ms at an interval of 10 ms, want 11", n)
		}
	})
}
