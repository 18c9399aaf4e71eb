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

// twoEnvironments returns two environments; the second has its own root.
func twoEnvironments() []Environment {
	return []Environment{
		{Name: "default", MinReady: 1},
		{Name: "science", MinReady: 2, Prepare: func(context.Context) (Root, error) {
			return Root{
				Image: "/images/science", Description: "image science", Added: "packages",
				Packages: []string{"numpy 2"},
			}, nil
		}},
	}
}

func (tp *testPool) acquireFrom(environment, tenant string) *AcquiredBox {
	box, err := tp.Acquire(tp.t.Context(), Key{Tenant: tenant, Environment: environment}, Limits{}, nil)
	if err != nil {
		tp.t.Fatal(err)
	}
	return box
}

// TestEnvironments checks that each environment keeps its own boxes ready, a request gets a box of its environment, and
// a box that is bound to a tenant is also bound to its environment.
func TestEnvironments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{Max: 6, Environments: twoEnvironments()})
		tp.warm()
		var ready []int
		for _, e := range tp.Environments() {
			ready = append(ready, e.Ready)
		}
		if d := cmp.Diff([]int{1, 2}, ready); d != "" {
			t.Errorf("ready boxes by environment (-want +got):\n%s", d)
		}
		a := tp.acquireFrom("science", "a")
		if got := a.Info().Environment; got != "image science + packages" || a.Boot() != "warm" ||
			a.Environment() != "science" {
			t.Errorf("box of science: Info().Environment = %q, Boot() = %s, Environment() = %s; "+
				"want image science + packages, warm, science", got, a.Boot(), a.Environment())
		}
		first := a.BoxID()
		a.Release()
		other := tp.acquireFrom("default", "a")
		if other.BoxID() == first || other.Environment() != "default" ||
			strings.Contains(other.Info().Environment, "image") {
			t.Errorf("box of default = %s of environment %s (%q), want a box other than %s, without an image",
				other.BoxID(), other.Environment(), other.Info().Environment, first)
		}
		other.Release()
		unnamed := tp.acquireFrom("no such", "a")
		if unnamed.BoxID() != other.BoxID() {
			t.Errorf("Acquire with an unknown environment got box %s, want %s of the first environment",
				unnamed.BoxID(), other.BoxID())
		}
		unnamed.Release()
		again := tp.acquireFrom("science", "a")
		if again.BoxID() != first {
			t.Errorf("second box of science = %s, want %s", again.BoxID(), first)
		}
		again.Release()
		tp.finish()
	})
}

// TestEnvironmentsShareSlots checks that an unbound box of one environment is evicted for a request of another.
func TestEnvironmentsShareSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{
			Max: 2, Environments: []Environment{{Name: "a", MinReady: 2}, {Name: "b", MinReady: -1}},
		})
		tp.warm()
		box := tp.acquireFrom("b", "x")
		if s := tp.Stats(); s.Warming+s.Ready+s.Bound+s.Acquired+s.Destroying > 2 {
			t.Errorf("Stats = %+v, want at most 2 boxes", s)
		}
		box.Release()
		tp.finish()
	})
}

// TestEnvironmentRecovers checks that if an environment cannot be prepared, only its own requests fail, and it recovers
// by itself.
func TestEnvironmentRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var repaired atomic.Bool
		broken := &HostError{Reason: ReasonRequirements, Err: errors.New("no such package")}
		tp := runPool(t, newFakeHost(), PoolOptions{Max: 4, Environments: []Environment{
			{Name: "default", MinReady: 1},
			{Name: "science", MinReady: 1, Prepare: func(context.Context) (Root, error) {
				if repaired.Load() {
					return Root{}, nil
				}
				return Root{}, broken
			}},
		}})
		tp.warm()
		var unavailable *UnavailableError
		_, err := tp.Acquire(t.Context(), Key{Tenant: "a", Environment: "science"}, Limits{}, nil)
		if !errors.As(err, &unavailable) || ReasonOf(err) != ReasonRequirements {
			t.Errorf("Acquire of an environment that cannot be prepared = %v; want requirements_failed", err)
		}
		if e := tp.Environments()[1]; e.LastReason != ReasonRequirements || e.Description != "" {
			t.Errorf("failed environment = %+v, want the reason %s and no description", e, ReasonRequirements)
		}
		if s := tp.Stats(); s.LastReason != ReasonRequirements {
			t.Errorf("Stats of a pool with a failed environment = %+v, want the reason %s", s, ReasonRequirements)
		}
		tp.acquireFrom("default", "a").Release() // is not affected
		repaired.Store(true)
		wait(maxBackoff)
		tp.acquireFrom("science", "a").Release()
		if e := tp.Environments()[1]; e.LastReason != "" || e.LastError != "" {
			t.Errorf("recovered environment = %+v, want no reason and no error", e)
		}
		tp.finish()
	})
}

// TestEnvironmentRecoversWithoutReadyBoxes checks that an environment without ready boxes is tried again when it is
// requested.
func TestEnvironmentRecoversWithoutReadyBoxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var repaired atomic.Bool
		tp := runPool(t, newFakeHost(), PoolOptions{Max: 4, Environments: []Environment{
			{Name: "default", MinReady: -1, Prepare: func(context.Context) (Root, error) {
				if repaired.Load() {
					return Root{}, nil
				}
				return Root{}, errors.New("not yet")
			}},
		}})
		for range maxAttempts {
			if _, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{}, nil); err == nil {
				t.Error("Acquire of an environment that cannot be prepared succeeded")
			}
		}
		repaired.Store(true)
		wait(maxBackoff)
		tp.acquire("a").Release()
		tp.finish()
	})
}

// TestSlowEnvironment checks that a slow environment does not delay the boxes of others.
func TestSlowEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		slow := Environment{Name: "slow", MinReady: maxBoots() + 1, Prepare: func(ctx context.Context) (Root, error) {
			<-time.After(10 * time.Minute)
			return Root{}, errors.New("the package index does not respond")
		}}
		tp := runPool(t, newFakeHost(), PoolOptions{
			Max: 20, Environments: []Environment{{Name: "default", MinReady: 1}, slow},
		})
		<-tp.Ready()
		for range maxBoots() + 1 {
			tp.startAcquire(t.Context(), "slow", Limits{})
		}
		for _, tenant := range []string{"a", "b", "c"} {
			tp.acquireFrom("default", tenant)
		}
		if elapsed := time.Since(began); elapsed > 2*slowBoot {
			t.Errorf("three boxes took %v while another environment was slow, want less than %v", elapsed, 2*slowBoot)
		}
		wait(10 * time.Minute)
		tp.finish()
	})
}

// TestOneRequestTriesAgain checks that if the boxes of an environment do not become ready, one request waits for the
// next attempt and the others fail, so that their tasks do not keep slots from other environments.
func TestOneRequestTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		host.bootTime = 2 * createTimeout
		tp := runPool(t, host, PoolOptions{MinReady: -1, Max: 9})
		first := tp.startAcquire(t.Context(), "a", Limits{})
		wait(createTimeout)
		var unavailable *UnavailableError
		if _, err, done := first.result(); !done || !errors.As(err, &unavailable) {
			t.Errorf("request after an attempt that timed out: ended %v, error %v; want an UnavailableError", done, err)
		}
		wait(maxBackoff)
		var again []*pending
		for _, tenant := range []string{"a", "b", "c"} {
			again = append(again, tp.startAcquire(t.Context(), tenant, Limits{}))
		}
		if again[0].done() || !again[1].done() || !again[2].done() {
			t.Errorf("requests that ended: %v, %v, %v, want all but the first",
				again[0].done(), again[1].done(), again[2].done())
		}
		wait(createTimeout)
		if !again[0].done() {
			t.Error("the request still waits after the next attempt, want it to have ended")
		}
		tp.finish()
	})
}

// TestRequiredEnvironment checks that a required environment that cannot be prepared ends the pool with the reason.
func TestRequiredEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &HostError{Reason: ReasonImageMissing, Err: errors.New("gone")}
		tp := runPool(t, newFakeHost(), PoolOptions{Environments: []Environment{
			{Required: true, Prepare: func(context.Context) (Root, error) { return Root{}, broken }},
		}})
		if err := <-tp.done; !errors.Is(err, broken) {
			t.Errorf("Run = %v, want %v", err, broken)
		}
		tp.stop()
	})
}

// TestPrepareOnce checks that calls of Prepare do not overlap, and Prepare is not called again after it has succeeded.
func TestPrepareOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, peak, calls atomic.Int32
		prepare := func(context.Context) (Root, error) {
			peak.Store(max(peak.Load(), now.Add(1)))
			defer now.Add(-1)
			calls.Add(1)
			<-time.After(2 * createTimeout) // Prepare may take longer than the creation of a box
			return Root{}, nil
		}
		tp := runPool(t, newFakeHost(), PoolOptions{
			Max: 6, Environments: []Environment{{MinReady: 4, Prepare: prepare}},
		})
		tp.warm()
		if calls.Load() != 1 || peak.Load() != 1 {
			t.Errorf("Prepare was called %d times, at most %d at once; want one call", calls.Load(), peak.Load())
		}
		tp.finish()
	})
}
