package executor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestBoxIsCleanBeforeItsNextTask checks that a box in which a program has left files or memory gets no task before
// these are gone, that the pool replaces it if they stay, and that other boxes are free when they are released.
func TestBoxIsCleanBeforeItsNextTask(t *testing.T) {
	const freshMB = 30
	for _, c := range []struct {
		name       string
		files      bool
		mb         float64
		report     bool                          // what the program has left is not known at the release
		end        func(*fakeBox, chan struct{}) // what happens after the release
		freeAtOnce bool
		reused     bool
	}{
		{name: "nothing", mb: freshMB, freeAtOnce: true, reused: true},
		{name: "little memory", mb: freshMB + leftMB, freeAtOnce: true, reused: true},
		{
			name: "files that are removed", files: true, mb: freshMB,
			end: func(_ *fakeBox, files chan struct{}) { close(files) }, reused: true,
		},
		{
			name: "memory that becomes free", mb: freshMB + leftMB + 1,
			end: func(b *fakeBox, _ chan struct{}) { b.set(nil, freshMB) }, reused: true,
		},
		{
			name: "files and memory", files: true, mb: 500,
			end: func(_ *fakeBox, files chan struct{}) { close(files) },
		},
		{
			name: "a report that nothing is left", report: true, mb: freshMB,
			end: func(b *fakeBox, _ chan struct{}) { b.report <- nil }, reused: true,
		},
		{
			name: "a report of what cannot be removed", report: true, mb: freshMB,
			end: func(b *fakeBox, _ chan struct{}) { b.report <- errors.New("changes in /dev") },
		},
		{name: "no report", report: true, mb: freshMB},
		{name: "files that stay", files: true, mb: freshMB},
		{name: "more files than the runner removes", files: true, end: func(b *fakeBox, _ chan struct{}) { b.die() }},
		{name: "memory that stays", mb: freshMB + leftMB + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := newFakeHost()
				host.boxMB = freshMB
				var files chan struct{}
				if c.files {
					files = make(chan struct{})
				}
				tp := runPool(t, host, PoolOptions{MinReady: -1, Max: 1})
				box := tp.acquire("a")
				fake := box.box.box.(*fakeBox)
				fake.set(files, c.mb)
				if c.report {
					fake.setReport(make(chan error))
				}
				box.Release()
				next := tp.startAcquire(t.Context(), "a", Limits{})
				if free := next.done(); free != c.freeAtOnce {
					t.Errorf("the next request has the box at once: %v, want %v", free, c.freeAtOnce)
				}
				if c.end != nil {
					c.end(fake, files)
				}
				wait(cleanTime + time.Second)
				other, err, done := next.result()
				if !done || err != nil {
					t.Fatalf("Acquire() = %v, done %v, want a box", err, done)
				}
				if reused := other.BoxID() == box.BoxID(); reused != c.reused {
					t.Errorf("the next request has the same box: %v, want %v", reused, c.reused)
				}
				other.Release()
				tp.finish()
			})
		})
	}
}

// TestUncleanBoxWhenThePoolEnds checks that a pool that ends does not wait for a box to become clean.
func TestUncleanBoxWhenThePoolEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: -1, Max: 1})
		box := tp.acquire("a")
		box.box.box.(*fakeBox).set(make(chan struct{}), 0)
		box.Release()
		began := time.Now()
		tp.finish()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the pool ended after %s, want at once", waited)
		}
	})
}

// TestUncleanBoxCountsAsAcquired checks that the memory of a box that is not clean is not given to others.
func TestUncleanBoxCountsAsAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: -1, Max: 2, MemoryMBTotal: 100})
		box, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{MemoryMB: 60}, nil)
		if err != nil {
			t.Fatal(err)
		}
		files := make(chan struct{})
		box.box.box.(*fakeBox).set(files, 0)
		box.Release()
		next := tp.startAcquire(t.Context(), "b", Limits{MemoryMB: 60})
		wait(time.Second)
		if next.done() {
			t.Error("Acquire() returned while the released box was not clean, want it to wait for the memory")
		}
		close(files)
		wait(time.Second)
		other, err, done := next.result()
		if !done || err != nil {
			t.Fatalf("Acquire() = %v, done %v, want a box", err, done)
		}
		other.Release()
		tp.finish()
	})
}

// TestRequestAwaitsTheUncleanBox checks that the next request of a tenant, in a pool without a free slot, waits for the
// tenant's box to be clean instead of evicting another tenant's; a second one cannot wait for the same box.
func TestRequestAwaitsTheUncleanBox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: -1, Max: 2})
		other, box := tp.acquire("b"), tp.acquire("a")
		other.Release()
		files := make(chan struct{})
		box.box.box.(*fakeBox).set(files, 0)
		box.Release()
		first := tp.startAcquire(t.Context(), "a", Limits{})
		wait(time.Second)
		if evicted := tp.Stats().Evicted; evicted != 0 {
			t.Errorf("%d boxes were evicted for the first request, want none", evicted)
		}
		second := tp.startAcquire(t.Context(), "a", Limits{})
		wait(time.Second)
		if evicted := tp.Stats().Evicted; evicted != 1 || first.done() == second.done() {
			t.Errorf("%d boxes were evicted, requests served: %v, %v; want 1, and one of them served", evicted,
				first.done(), second.done())
		}
		close(files)
		wait(time.Second)
		for _, r := range []*pending{first, second} {
			got, err, done := r.result()
			if !done || err != nil {
				t.Fatalf("Acquire() = %v, done %v, want a box", err, done)
			}
			got.Release()
		}
		tp.finish()
	})
}

// TestUncleanBoxThatEnds checks that the pool destroys a box that ends while its memory becomes free.
func TestUncleanBoxThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		host.boxMB = 30
		tp := runPool(t, host, PoolOptions{MinReady: -1, Max: 1})
		box := tp.acquire("a")
		fake := box.box.box.(*fakeBox)
		fake.set(nil, 500)
		box.Release()
		wait(time.Second)
		fake.die()
		fake.set(nil, 0)
		wait(time.Second)
		if s := tp.Stats(); s.Bound != 0 || s.Discarded != 1 {
			t.Errorf("%d boxes are bound and %d were discarded, want 0 and 1", s.Bound, s.Discarded)
		}
		tp.finish()
	})
}

// TestUncleanBoxHasCPUs checks that a box is not cleaned with the CPU limit of its last program, which may be very low.
func TestUncleanBoxHasCPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: -1, Max: 1})
		box, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{MemoryMB: 60, CPUs: 0.01}, nil)
		if err != nil {
			t.Fatal(err)
		}
		fake := box.box.box.(*fakeBox)
		files := make(chan struct{})
		fake.set(files, 0)
		box.Release()
		wait(time.Second)
		host.mu.Lock()
		got, want := fake.limits, Limits{MemoryMB: 60}.OrDefaults()
		host.mu.Unlock()
		if got.CPUs != want.CPUs || got.MemoryMB != want.MemoryMB {
			t.Errorf("limits of the unclean box = %v CPUs, %d MB, want %v, %d", got.CPUs, got.MemoryMB,
				want.CPUs, want.MemoryMB)
		}
		close(files)
		tp.finish()
	})
}
