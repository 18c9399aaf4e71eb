package executor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// step is something that a test does with a pool.
type step struct {
	Kind   string // acquire, release, discard, kill, cancel, fail, wait
	Tenant string
	MB     int
	Index  int // selects a box or request, or how long to wait
}

// TestPoolInvariants checks for any order of steps that no box serves two tenants, that boxes and their memory stay
// within the limits, that every request gets a box or an error, and that no box remains acquired.
func TestPoolInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		opts := PoolOptions{
			MinReady:      rapid.IntRange(-1, 3).Draw(rt, "min ready"),
			Max:           rapid.IntRange(1, 4).Draw(rt, "max"),
			MemoryMBTotal: rapid.SampledFrom([]int{0, 1000}).Draw(rt, "memory"),
			Reuse:         rapid.SampledFrom([]string{ReuseTenant, ReuseNever}).Draw(rt, "reuse"),
			IdleMemoryMB:  rapid.SampledFrom([]int{0, 50, 130}).Draw(rt, "idle memory"), // typicalBoxMB is 40
		}
		if rapid.Bool().Draw(rt, "environments") { // tenant c uses the second one
			opts.Environments = []Environment{{Name: "default"}, {Name: "c"}}
		}
		kinds := []string{
			"acquire", "acquire", "acquire", "release", "release", "discard", "kill", "cancel", "fail", "wait",
		}
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				Kind:   rapid.SampledFrom(kinds).Draw(rt, "kind"),
				Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "tenant"),
				MB:     rapid.SampledFrom([]int{100, 400, 1000}).Draw(rt, "mb"),
				Index:  rapid.IntRange(0, 9).Draw(rt, "index"),
			}
		}), 1, 60).Draw(rt, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = play(t, opts, steps) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// play runs the steps and returns the first invariant that was violated.
func play(t *testing.T, opts PoolOptions, steps []step) error {
	t.Helper()
	host := newFakeHost()
	tp := runPool(t, host, opts)
	var waiting []*pending
	var cancels []context.CancelFunc
	var held []*AcquiredBox
	for _, s := range steps {
		switch s.Kind {
		case "acquire":
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			waiting = append(waiting, tp.startAcquire(ctx, s.Tenant, Limits{MemoryMB: s.MB}))
		case "release", "discard":
			if len(held) == 0 {
				continue
			}
			box := held[s.Index%len(held)]
			if s.Kind == "discard" {
				box.Discard()
			}
			box.Release()
		case "kill":
			host.kill(s.Index)
		case "cancel":
			if len(cancels) > 0 {
				cancels[s.Index%len(cancels)]()
			}
		case "fail":
			host.mu.Lock()
			if host.failCreate = nil; s.Index%2 == 0 {
				host.failCreate = errors.New("broken")
			}
			host.mu.Unlock()
		case "wait":
			wait(time.Duration(s.Index) * 100 * time.Millisecond)
		}
		synctest.Wait()
		if err := checkInvariants(tp, opts); err != nil {
			return err
		}
		held = held[:0]
		for _, w := range waiting {
			if box, err, done := w.result(); done && err == nil && !box.isReleased() {
				held = append(held, box)
			}
		}
	}
	return drainAndStop(t, tp, waiting)
}

// drainAndStop releases boxes until every request has its result, and stops the pool.
func drainAndStop(t *testing.T, tp *testPool, waiting []*pending) error {
	t.Helper()
	tp.host.mu.Lock()
	tp.host.failCreate = nil
	tp.host.mu.Unlock()
	for range 2*len(waiting) + 2 {
		for _, w := range waiting {
			if box, err, done := w.result(); done && err == nil {
				box.Release()
			}
		}
		wait(maxBackoff)
	}
	for i, w := range waiting {
		if !w.done() {
			return fmt.Errorf("request %d has no result, want a box or an error", i)
		}
	}
	minReady := 0
	for _, e := range tp.envs {
		minReady += e.MinReady
	}
	if s := tp.Stats(); s.Acquired != 0 || s.MemoryMB != 0 || s.Ready < minReady && s.Ready+s.Bound < s.Max {
		return fmt.Errorf("Stats of an idle pool = %+v, want no acquired boxes, and %d ready boxes", s, minReady)
	}
	tp.finish()
	return nil
}

func checkInvariants(tp *testPool, opts PoolOptions) error {
	s := tp.Stats()
	if boxes := s.Warming + s.Ready + s.Bound + s.Acquired + s.Destroying; boxes > opts.Max {
		return fmt.Errorf("%d boxes; the limit is %d: %+v", boxes, opts.Max, s)
	}
	if opts.MemoryMBTotal > 0 && s.MemoryMB > opts.MemoryMBTotal {
		return fmt.Errorf("acquired boxes have %d MB of memory; the limit is %d MB", s.MemoryMB, opts.MemoryMBTotal)
	}
	if opts.IdleMemoryMB > 0 && s.Bound > 0 && s.IdleMemoryMB > opts.IdleMemoryMB {
		return fmt.Errorf("idle boxes use %d MB; the limit is %d MB: %+v", s.IdleMemoryMB, opts.IdleMemoryMB, s)
	}
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return oneTenantEach(tp.events)
}

// kill ends one of the boxes, as the kernel might.
func (h *fakeHost) kill(index int) {
	h.mu.Lock()
	var boxes []*fakeBox
	for slot := range 10 {
		if b := h.boxes[fmt.Sprint("w", slot)]; b != nil {
			boxes = append(boxes, b)
		}
	}
	h.mu.Unlock()
	if len(boxes) > 0 {
		boxes[index%len(boxes)].die()
	}
}
