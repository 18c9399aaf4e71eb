package jobs

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSchedulerTurns(t *testing.T) {
	r := newScheduler()
	for _, tenant := range []string{"a", "b", "c"} {
		r.expect(lane{"p", "normal", tenant}, 3)
	}
	r.expect(lane{"p", "high", "h"}, 100)
	r.expect(lane{"p", "low", "l"}, 100)
	var turns []string
	for range 32 {
		l, ok, _ := r.next(time.Time{}, nil)
		if !ok {
			t.Fatal("next returned no lane")
		}
		turns = append(turns, l.tenant)
	}
	if got, want := strings.Join(turns, ""), "hhhahhhbhhhchhhlhhhahhhbhhhchhhl"; got != want {
		t.Errorf("turns = %s, want %s", got, want)
	}
}

// Every lane with messages gets its turn, whatever the outcome of fetches.
func TestSchedulerDoesNotStarve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newScheduler()
		lanes := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) lane {
			return lane{
				"p", rapid.SampledFrom(priorities).Draw(t, "priority"),
				rapid.StringMatching(`[a-e]`).Draw(t, "tenant"),
			}
		}), 1, 10, rapid.ID[lane]).Draw(t, "lanes")
		picked := map[lane]bool{}
		for range 16 * len(lanes) {
			for _, l := range lanes {
				r.expect(l, 1)
			}
			l, ok, _ := r.next(time.Time{}, nil)
			if !ok {
				t.Fatal("next returned no lane")
			}
			picked[l] = true
			switch rapid.IntRange(0, 2).Draw(t, "outcome") {
			case 0:
				r.empty(l, time.Millisecond)
			case 1:
				r.started(l, rapid.IntRange(0, 5).Draw(t, "pending"))
				r.done(l, time.Time{}, time.Millisecond)
			}
		}
		if len(picked) != len(lanes) {
			t.Errorf("%d of %d lanes were picked, want all", len(picked), len(lanes))
		}
	})
}

// Tenants with a warm box overtake others for 250 ms. After a run, the scheduler waits 5 ms for the tenant's next
// task.
func TestSchedulerWarmTenants(t *testing.T) {
	r := newScheduler()
	start := time.Now()
	at := func(ms int, warm map[string]bool) string {
		t.Helper()
		l, ok, wait := r.next(start.Add(time.Duration(ms)*time.Millisecond), warm)
		if ok {
			return l.tenant
		}
		return wait.String()
	}
	expect := func(tenants ...string) {
		for _, tenant := range tenants {
			r.expect(lane{"p", "normal", tenant}, 2)
		}
	}
	expect("a", "b", "c")
	c := map[string]bool{"c": true}
	for _, step := range []struct {
		ms   int
		warm map[string]bool
		want string
	}{
		{0, c, "c"},
		{100, c, "c"},
		{101, map[string]bool{"a": true, "b": true}, "a"}, // it is a's turn
		{102, c, "b"}, // c has no message, and no run has ended
	} {
		if got := at(step.ms, step.warm); got != step.want {
			t.Errorf("after %d ms: next = %s, want %s", step.ms, got, step.want)
		}
	}
	r = newScheduler()
	expect("a", "b")
	l := lane{"p", "normal", "c"}
	r.started(l, 0)
	r.done(l, start, time.Millisecond)
	if got := at(2, c); got != "3ms" {
		t.Errorf("2 ms after a run: next = %s, want to wait 3ms", got)
	}
	var turns []string
	for ms := 3; ms < 600; ms += 50 {
		expect("c")
		turns = append(turns, at(ms, c))
	}
	if got, want := strings.Join(turns, ""), "cccccacccccb"; got != want {
		t.Errorf("turns = %s, want %s", got, want)
	}
	if got := at(600, nil); got != "c" { // its run took 1 ms, so its runs are charged least
		t.Errorf("without warm tenants, next = %s, want c", got)
	}
}

// A lane whose message another worker got is forgotten, and so is what tenants have used once no lane is left.
func TestSchedulerForgetsEmptyLanes(t *testing.T) {
	r := newScheduler()
	for _, tenant := range []string{"a", "b"} {
		r.wake(lane{"p", "normal", tenant})
	}
	for range 2 {
		l, _, _ := r.next(time.Time{}, nil)
		r.empty(l, time.Second)
	}
	if len(r.lanes) != 0 || len(r.turns[1].tenants) != 0 || r.turns[1].level != 0 {
		t.Errorf("%d lanes, %d accounts and level %g are left, want none", len(r.lanes), len(r.turns[1].tenants),
			r.turns[1].level)
	}
}
