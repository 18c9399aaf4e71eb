package executor

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// kinds are two environments, of which the second has a root of its own.
func kinds() []Environment {
	return []Environment{
		{Name: "default", MinReady: 1},
		{Name: "science", MinReady: 2, Prepare: func(context.Context) (Root, error) {
			return Root{Image: "/images/science", Description: "image science", Added: "packages", Modules: []string{"numpy 2"}}, nil
		}},
	}
}

func (tp *testPool) leaseOf(environment, tenant string) *AcquiredBox {
	l, err := tp.Acquire(tp.t.Context(), Key{Tenant: tenant, Environment: environment}, Limits{}, nil)
	if err != nil {
		tp.t.Fatal(err)
	}
	return l
}

// Each environment has boxes of its own kept ready, a lease gets one of its environment, and what is
// bound to a tenant is bound to the environment too.
func TestEnvironments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{Max: 6, Environments: kinds()})
		tp.warm()
		var ready []int
		for _, e := range tp.Environments() {
			ready = append(ready, e.Ready)
		}
		if d := cmp.Diff([]int{1, 2}, ready); d != "" {
			t.Errorf("ready boxes by environment (-want +got):\n%s", d)
		}
		a := tp.leaseOf("science", "a")
		if got := a.Info().Environment; got != "image science + packages" || a.Boot() != "warm" || a.Environment() != "science" {
			t.Errorf("lease of science: %q, %s, %s", got, a.Boot(), a.Environment())
		}
		first := a.BoxID()
		a.Release()
		other := tp.leaseOf("default", "a")
		if other.BoxID() == first || other.Environment() != "default" || strings.Contains(other.Info().Environment, "image") {
			t.Errorf("lease of default: box %s of %q", other.BoxID(), other.Info().Environment)
		}
		other.Release()
		unnamed := tp.leaseOf("no such", "a")
		if unnamed.BoxID() != other.BoxID() {
			t.Errorf("a name that no environment has got box %s, want %s of the first environment", unnamed.BoxID(), other.BoxID())
		}
		unnamed.Release()
		again := tp.leaseOf("science", "a")
		if again.BoxID() != first {
			t.Errorf("second lease of science: box %s, want %s", again.BoxID(), first)
		}
		again.Release()
		tp.finish()
	})
}

// With all places taken by unbound boxes of one environment, a lease of another gets a place.
func TestEnvironmentsShareThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{Max: 2, Environments: []Environment{{Name: "a", MinReady: 2}, {Name: "b", MinReady: -1}}})
		tp.warm()
		l := tp.leaseOf("b", "x")
		if s := tp.Stats(); s.Warming+s.Ready+s.Bound+s.Acquired+s.Destroying > 2 {
			t.Errorf("more boxes than places: %+v", s)
		}
		l.Release()
		tp.finish()
	})
}

// An environment that cannot be prepared says so to its own leases only, and recovers by itself.
func TestEnvironmentThatIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		broken := &HostError{Reason: ReasonRequirements, Err: errors.New("no such package")}
		tp := runPool(t, newFakeHost(), PoolOptions{Max: 4, Environments: []Environment{
			{Name: "default", MinReady: 1},
			{Name: "science", MinReady: 1, Prepare: func(context.Context) (Root, error) {
				if mended.Load() {
					return Root{}, nil
				}
				return Root{}, broken
			}},
		}})
		tp.warm()
		var unavailable *UnavailableError
		_, err := tp.Acquire(t.Context(), Key{Tenant: "a", Environment: "science"}, Limits{}, nil)
		if !errors.As(err, &unavailable) || ReasonOf(err) != ReasonRequirements {
			t.Errorf("lease of what cannot be prepared = %v", err)
		}
		if e := tp.Environments()[1]; e.LastReason != ReasonRequirements || e.Description != "" {
			t.Errorf("environment in trouble: %+v", e)
		}
		if s := tp.Stats(); s.LastReason != ReasonRequirements {
			t.Errorf("pool in trouble: %+v", s)
		}
		tp.leaseOf("default", "a").Release() // goes on
		mended.Store(true)
		wait(longPause)
		tp.leaseOf("science", "a").Release()
		if e := tp.Environments()[1]; e.LastReason != "" || e.LastError != "" {
			t.Errorf("mended environment: %+v", e)
		}
		tp.finish()
	})
}

// One that nobody keeps warm is tried again for the leases that want it.
func TestEnvironmentThatIsMendedWithoutWarmBoxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		tp := runPool(t, newFakeHost(), PoolOptions{Max: 4, Environments: []Environment{{Name: "default", MinReady: -1, Prepare: func(context.Context) (Root, error) {
			if mended.Load() {
				return Root{}, nil
			}
			return Root{}, errors.New("not yet")
		}}}})
		for range givingUp {
			if _, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{}, nil); err == nil {
				t.Error("a lease of what cannot be prepared")
			}
		}
		mended.Store(true)
		wait(longPause)
		tp.acquire("a").Release()
		tp.finish()
	})
}

// While one environment takes long to be made, others have boxes.
func TestSlowEnvironmentHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		slow := Environment{Name: "slow", MinReady: parallel() + 1, Prepare: func(ctx context.Context) (Root, error) {
			<-time.After(10 * time.Minute)
			return Root{}, errors.New("the index does not answer")
		}}
		tp := runPool(t, newFakeHost(), PoolOptions{Max: 20, Environments: []Environment{{Name: "default", MinReady: 1}, slow}})
		<-tp.Ready()
		for range parallel() + 1 {
			tp.begin(t.Context(), "slow", Limits{})
		}
		for _, tenant := range []string{"a", "b", "c"} {
			tp.leaseOf("default", tenant)
		}
		if took := time.Since(began); took > 2*slowBoot {
			t.Errorf("three boxes beside a slow environment took %v, want less than %v", took, 2*slowBoot)
		}
		wait(10 * time.Minute)
		tp.finish()
	})
}

// Of the leases of an environment whose boxes never become ready one waits for the next attempt, and the
// others leave their places to tasks of other environments.
func TestOneLeaseTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		host.bootTime = 2 * makeTimeout
		tp := runPool(t, host, PoolOptions{MinReady: -1, Max: 9})
		first := tp.begin(t.Context(), "a", Limits{})
		wait(makeTimeout)
		var unavailable *UnavailableError
		if _, err, done := first.result(); !done || !errors.As(err, &unavailable) {
			t.Errorf("lease after one attempt that was not in time: %v, %v, want an UnavailableError", done, err)
		}
		wait(longPause)
		again := []*pending{tp.begin(t.Context(), "a", Limits{}), tp.begin(t.Context(), "b", Limits{}), tp.begin(t.Context(), "c", Limits{})}
		if again[0].done() || !again[1].done() || !again[2].done() {
			t.Errorf("leases that are over: %v, %v, %v, want all but the first", again[0].done(), again[1].done(), again[2].done())
		}
		wait(makeTimeout)
		if !again[0].done() {
			t.Error("the lease that tried again still waits")
		}
		tp.finish()
	})
}

// What a worker cannot be without ends its pool, with the reason.
func TestRequiredEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &HostError{Reason: ReasonImageMissing, Err: errors.New("gone")}
		tp := runPool(t, newFakeHost(), PoolOptions{Environments: []Environment{{Required: true, Prepare: func(context.Context) (Root, error) { return Root{}, broken }}}})
		if err := <-tp.done; !errors.Is(err, broken) {
			t.Errorf("Run = %v, want %v", err, broken)
		}
		tp.stop()
	})
}

// Prepare runs once at a time, and no more once it has succeeded.
func TestPrepareOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, calls atomic.Int32
		tp := runPool(t, newFakeHost(), PoolOptions{Max: 6, Environments: []Environment{{MinReady: 4, Prepare: func(context.Context) (Root, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			calls.Add(1)
			<-time.After(2 * makeTimeout) // longer than a box may take
			return Root{}, nil
		}}}})
		tp.warm()
		if calls.Load() != 1 || most.Load() != 1 {
			t.Errorf("Prepare was called %d times, %d at once", calls.Load(), most.Load())
		}
		tp.finish()
	})
}
