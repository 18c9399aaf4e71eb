package jobs

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRingTurns(t *testing.T) {
	r := newRing()
	for _, tenant := range []string{"a", "b", "c"} {
		r.ask(lane{"p", "normal", tenant}, 3)
	}
	r.ask(lane{"p", "high", "h"}, 100)
	r.ask(lane{"p", "low", "l"}, 100)
	var turns []string
	for range 32 {
		l, ok := r.next()
		if !ok {
			t.Fatal("next = nothing")
		}
		turns = append(turns, l.tenant)
	}
	if got, want := strings.Join(turns, ""), "hhhahhhbhhhchhhlhhhahhhbhhhchhhl"; got != want {
		t.Errorf("turns = %s, want %s", got, want)
	}
}

// Whatever happens, a lane that was asked for comes up, and nobody starves.
func TestRingStarvesNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRing()
		lanes := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) lane {
			return lane{"p", rapid.SampledFrom(priorities).Draw(t, "priority"), rapid.StringMatching(`[a-e]`).Draw(t, "tenant")}
		}), 1, 10, rapid.ID[lane]).Draw(t, "lanes")
		seen := map[lane]bool{}
		for range 16 * len(lanes) {
			for _, l := range lanes {
				r.ask(l, 1)
			}
			l, ok := r.next()
			if !ok {
				t.Fatal("next = nothing")
			}
			seen[l] = true
			switch rapid.IntRange(0, 2).Draw(t, "outcome") {
			case 0:
				r.empty(l)
			case 1:
				r.took(l, rapid.IntRange(0, 5).Draw(t, "pending"))
				r.ended(l)
			}
		}
		if len(seen) != len(lanes) {
			t.Errorf("%d of %d lanes came up", len(seen), len(lanes))
		}
	})
}
