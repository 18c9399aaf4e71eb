package executor

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleMemory checks that idle boxes are limited by their memory, not by their number, and that the box that has
// been idle the longest is evicted first.
func TestIdleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		host.boxMB = 30
		tp := runPool(t, host, PoolOptions{MinReady: 1, IdleMemoryMB: 30 + 10*30})
		tp.warm()
		ids := map[string]string{}
		use := func(tenant string) {
			box := tp.acquire(tenant)
			ids[tenant] = box.BoxID()
			box.Release()
			wait(measureAfter + 2*measureEvery)
		}
		for i := range 10 {
			use(fmt.Sprint("t", i))
		}
		if s := tp.Stats(); s.Bound != 10 || s.Ready != 1 || s.IdleMemoryMB != 330 || s.Evicted != 0 {
			t.Fatalf("Stats after 10 tenants = %+v, want 10 bound boxes and a ready one with 330 MB", s)
		}
		use("t0") // t1 has now been idle the longest
		use("new")
		if s := tp.Stats(); s.Bound != 10 || s.Ready != 1 || s.Evicted != 1 {
			t.Errorf("Stats after another tenant = %+v, want one eviction, 10 bound boxes and a ready one", s)
		}
		for tenant, before := range ids {
			box := tp.acquire(tenant)
			if kept := box.BoxID() == before; kept != (tenant != "t1") {
				t.Errorf("box of tenant %s: kept = %v, want only that of t1 evicted", tenant, kept)
			}
			defer box.Release()
		}
		tp.finish()
	})
}

// TestIdleBoxesAreMeasured checks that a box whose memory has grown is measured again, and that others are evicted.
func TestIdleBoxesAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		host.boxMB = 30
		tp := runPool(t, host, PoolOptions{MinReady: -1, IdleMemoryMB: 100})
		for _, tenant := range []string{"a", "b", "c"} {
			tp.acquire(tenant).Release()
			wait(measureAfter + 2*measureEvery)
		}
		box := tp.acquire("c")
		box.box.box.(*fakeBox).mb = 75
		box.Release()
		synctest.Wait()
		if s := tp.Stats(); s.Bound != 3 || s.IdleMemoryMB != 90 {
			t.Errorf("Stats after the release = %+v, want 3 boxes with 90 MB as measured before", s)
		}
		wait(measureAfter + 2*measureEvery)
		if s := tp.Stats(); s.Bound != 1 || s.IdleMemoryMB != 75 || s.Evicted != 2 {
			t.Errorf("Stats after the measurement = %+v, want the box with 75 MB only", s)
		}
		tp.finish()
	})
}

// TestIdleMemoryDoesNotDelayRequests checks that acquired boxes take no memory from idle ones, and idle ones none from
// requests.
func TestIdleMemoryDoesNotDelayRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		host.boxMB = 30
		tp := runPool(t, host, PoolOptions{MinReady: 2, IdleMemoryMB: 10}) // less than MinReady needs
		tp.warm()
		var held []*AcquiredBox
		for i := range 6 {
			held = append(held, tp.acquire(fmt.Sprint("t", i)))
		}
		wait(10 * time.Second)
		if s := tp.Stats(); s.Acquired != 6 || s.Ready != 2 || s.Evicted != 0 {
			t.Errorf("Stats with 6 acquired boxes = %+v, want no eviction, and 2 ready boxes", s)
		}
		for _, box := range held {
			box.Release()
		}
		wait(10 * time.Second)
		if s := tp.Stats(); s.Bound != 0 || s.Ready != 2 || s.Evicted != 6 {
			t.Errorf("Stats after the release = %+v, want all bound boxes evicted, and the ready ones kept", s)
		}
		tp.finish()
	})
}

// TestIdleBoxesLeaveAFullDisk checks that idle boxes are evicted, one at a time, while the host's disk has less free
// space than a box may use.
func TestIdleBoxesLeaveAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free int64 = 2 << 30
		tp := newTestPool(t, newFakeHost(), PoolOptions{MinReady: -1, IdleMemoryMB: 1000})
		tp.opts.DiskMB, tp.disks = 1024, disksOff
		tp.hostFree = func(string) (int64, error) {
			tp.mu.Lock()
			defer tp.mu.Unlock()
			return free - int64(tp.sched.count(bound))<<28, nil // each idle box uses 256 MiB
		}
		tp.run()
		for i := range 8 {
			tp.acquire(fmt.Sprint("t", i)).Release()
		}
		wait(10 * time.Second)
		if s := tp.Stats(); s.Bound != 4 || s.Evicted != 4 {
			t.Errorf("Stats = %+v, want 4 boxes evicted, so that 1 GiB is free", s)
		}
		tp.finish()
	})
}
