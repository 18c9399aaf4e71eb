package jobs

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// simulated is a tenant of simulate. It always has tasks queued between from and to.
type simulated struct {
	name     string
	weight   float64
	task     time.Duration
	from, to time.Duration
	seconds  float64 // seconds of slots that the tenant got
}

// simulate runs a scheduler with a number of slots for a simulated time.
func simulate(slots int, length time.Duration, tenants ...*simulated) {
	s := newScheduler()
	byName := map[string]*simulated{}
	for _, x := range tenants {
		byName[x.name] = x
	}
	for _, ts := range s.turns {
		ts.weight = func(tenant string) float64 { return max(byName[tenant].weight, 1) }
	}
	type run struct {
		tenant *simulated
		end    time.Duration
	}
	var running []run
	for now := time.Duration(0); now < length; {
		for len(running) < slots {
			for _, x := range tenants {
				if now >= x.from && now < x.to {
					s.expect(lane{"p", "normal", x.name}, 1)
				}
			}
			l, ok, _ := s.next(time.Time{}, nil)
			if !ok {
				break
			}
			x := byName[l.tenant]
			s.started(l, 0)
			running = append(running, run{x, now + x.task})
		}
		next := length
		for _, x := range tenants {
			if x.from > now {
				next = min(next, x.from)
			}
		}
		for _, r := range running {
			next = min(next, r.end)
		}
		now = next
		running = slices.DeleteFunc(running, func(r run) bool {
			if r.end > now {
				return false
			}
			r.tenant.seconds += r.tenant.task.Seconds()
			s.done(lane{"p", "normal", r.tenant.name}, time.Time{}, r.tenant.task)
			return true
		})
	}
}

// jain returns Jain's index of fairness: 1 if all values are equal, 1/n if only one is not zero.
func jain(values []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum, squares = sum+v, squares+v*v
	}
	return sum * sum / (float64(len(values)) * squares)
}

// Tenants with equal weights get equal seconds of slots, however long their tasks are.
func TestTurnsAreFairBySeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 8).Draw(t, "slots")
		var tenants []*simulated
		for i := range rapid.IntRange(2, 20).Draw(t, "tenants") {
			tenants = append(tenants, &simulated{
				name: fmt.Sprint("t", i), weight: 1, to: math.MaxInt64,
				task: time.Duration(rapid.IntRange(20, 1000).Draw(t, "ms")) * time.Millisecond,
			})
		}
		simulate(slots, 300*time.Second, tenants...)
		var got []float64
		for _, x := range tenants {
			got = append(got, x.seconds)
		}
		// A tenant with one lane may be short of others by a task in each slot.
		if j := jain(got); j < 0.99 {
			t.Errorf("Jain's index = %.4f of %v, want at least 0.99", j, got)
		}
	})
}

// Weights divide the seconds of slots.
func TestTurnsByWeight(t *testing.T) {
	forever := time.Duration(math.MaxInt64)
	a := &simulated{name: "a", weight: 1, task: time.Second, to: forever}
	b := &simulated{name: "b", weight: 3, task: 100 * time.Millisecond, to: forever}
	simulate(4, 1000*time.Second, a, b)
	if share := b.seconds / (a.seconds + b.seconds); math.Abs(share-0.75) > 0.01 {
		t.Errorf("b with three times the weight has %.3f of the seconds, want 0.75", share)
	}
}

// A tenant is not charged for slots that it used while no other tenant had tasks, and a tenant that returns does not
// get the slots that it did not use meanwhile.
func TestTurnsForgetThePast(t *testing.T) {
	forever := time.Duration(math.MaxInt64)
	alone := &simulated{name: "a", weight: 1, task: time.Second, to: forever}
	late := &simulated{name: "b", weight: 1, task: time.Second, from: 1000 * time.Second, to: forever}
	simulate(2, 2000*time.Second, alone, late)
	if got := late.seconds; math.Abs(got-1000) > 10 {
		t.Errorf("the late tenant has %.0f s of the 2000 that it shared, want 1000", got)
	}
}

// BenchmarkTurns measures one turn of many tenants.
func BenchmarkTurns(b *testing.B) {
	s := newScheduler()
	for i := range 10_000 {
		s.expect(lane{"p", "normal", fmt.Sprint("t", i)}, 1)
	}
	for b.Loop() {
		l, _, _ := s.next(time.Time{}, nil)
		s.started(l, 0)
		s.done(l, time.Time{}, time.Millisecond)
		s.expect(l, 1)
	}
}
