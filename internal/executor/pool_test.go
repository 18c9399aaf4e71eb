package executor

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// counts returns the numbers of boxes that are warming, ready, bound, acquired and being destroyed.
func counts(s PoolStats) [5]int {
	return [5]int{s.Warming, s.Ready, s.Bound, s.Acquired, s.Destroying}
}

// warm waits, in synctest's time, until the pool has all the boxes that it keeps ready.
func (tp *testPool) warm() {
	<-tp.Ready()
	<-time.After(10 * time.Second)
}

func TestPoolWarmsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 3, Max: 5})
		tp.warm()
		synctest.Wait()
		if got := counts(tp.Stats()); got != [5]int{0, 3, 0, 0, 0} {
			t.Errorf("counts = %v, want three ready boxes", got)
		}
		tp.finish()
	})
}

func TestReadyWithoutReadyBoxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: -1, Max: 1})
		synctest.Wait()
		select {
		case <-tp.Ready():
		default:
			t.Error("Ready() is open, want it closed in a pool that keeps no box ready")
		}
		tp.finish()
	})
}

// TestFirstBoxBootsAlone checks that the boots of other boxes delay neither the first box nor the first task.
func TestFirstBoxBootsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 3, Max: 5})
		for _, step := range []struct {
			after time.Duration
			want  [5]int
		}{
			{host.bootTime / 2, [5]int{1, 0, 0, 0, 0}},
			{host.bootTime/2 + idleAfter/2, [5]int{0, 1, 0, 0, 0}},
			{idleAfter, [5]int{2, 1, 0, 0, 0}},
			{host.bootTime, [5]int{0, 3, 0, 0, 0}},
		} {
			wait(step.after)
			if got := counts(tp.Stats()); got != step.want {
				t.Errorf("counts = %v, want %v", got, step.want)
			}
		}
		tp.finish()
	})
}

func TestPoolOptionsAreChecked(t *testing.T) {
	for name, opts := range map[string]PoolOptions{
		"no directory":     {Owner: "o"},
		"no owner":         {Dir: "d"},
		"slash in owner":   {Dir: "d", Owner: "a/b"},
		"unknown reuse":    {Dir: "d", Owner: "o", Reuse: "always"},
		"negative maximum": {Dir: "d", Owner: "o", Max: -1},
	} {
		if _, err := NewPool(newFakeHost(), opts); err == nil {
			t.Errorf("%s: NewPool(%+v) = nil, want an error", name, opts)
		}
	}
	p, err := NewPool(newFakeHost(), PoolOptions{Dir: "d", Owner: "o", MinReady: 9, Max: 4})
	if err != nil || p.opts.MinReady != 4 {
		t.Errorf("MinReady above Max = %d, %v, want 4", p.opts.MinReady, err)
	}
}

func TestBoxStaysWithItsTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 3})
		tp.warm()
		box := tp.acquire("a")
		first := box.BoxID()
		if box.Boot() != "warm" {
			t.Errorf("Boot = %q, want warm", box.Boot())
		}
		if err := os.WriteFile(marker(box.Dir()), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		box.Release()
		box = tp.acquire("a")
		if _, err := os.Stat(marker(box.Dir())); box.BoxID() != first || err != nil {
			t.Errorf("second Acquire = box %s, marker %v; want box %s with the marker", box.BoxID(), err, first)
		}
		box.Release()
		box.Release() // does nothing
		other := tp.acquire("b")
		if _, err := os.Stat(marker(other.Dir())); other.BoxID() == first || err == nil {
			t.Errorf("Acquire for another tenant = box %s, marker %v; want another box than %s, without the marker",
				other.BoxID(), err, first)
		}
		other.Release()
		network, err := tp.Acquire(t.Context(), Key{Tenant: "a", Network: "example.org"}, Limits{}, nil)
		if err != nil || network.BoxID() == first {
			t.Errorf("Acquire for another network = box %s, %v, want another box than %s", network.BoxID(), err, first)
		}
		network.Release()
		tp.finish()
	})
}

// TestBoxOfTheWorkspaceIsPreferred checks that a tenant's request gets the box that last served its workspace. If there
// is none, it gets the tenant's box that was used last.
func TestBoxOfTheWorkspaceIsPreferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 2, Max: 2})
		tp.warm()
		acquire := func(workspace string) *AcquiredBox {
			t.Helper()
			box, err := tp.Acquire(t.Context(), Key{Tenant: "a", Workspace: workspace}, Limits{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return box
		}
		boxes := map[string]string{} // by workspace
		first, second := acquire("one"), acquire("two")
		boxes["one"], boxes["two"] = first.BoxID(), second.BoxID()
		first.Release()
		<-time.After(time.Second) // so that the box of two was released last
		second.Release()
		for _, workspace := range []string{"one", "two", "two", "one"} {
			<-time.After(time.Second)
			box := acquire(workspace)
			if got := box.BoxID(); got != boxes[workspace] {
				t.Errorf("Acquire for workspace %s = box %s, want %s", workspace, got, boxes[workspace])
			}
			box.Release()
		}
		box := acquire("three")
		if got := box.BoxID(); got != boxes["one"] {
			t.Errorf("Acquire for another workspace = box %s, want the last used one, %s", got, boxes["one"])
		}
		box.Release()
		tp.finish()
	})
}

func TestReuseNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 2, Reuse: ReuseNever})
		box := tp.acquire("a")
		first := box.BoxID()
		box.Release()
		box = tp.acquire("a")
		if box.BoxID() == first {
			t.Errorf("second Acquire = box %s again, want a new box", first)
		}
		box.Release()
		tp.finish()
	})
}

func TestRequestsAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 1})
		held := tp.acquire("a")
		var queue []*pending
		for _, tenant := range []string{"b", "a", "c", "b"} {
			queue = append(queue, tp.startAcquire(t.Context(), tenant, Limits{}))
		}
		if s := tp.Stats(); s.Waiting != 4 || s.Acquired != 1 {
			t.Errorf("Stats = %+v, want four waiting requests", s)
		}
		for i := range queue {
			held.Release()
			wait(time.Second)
			for j, w := range queue {
				if w.done() != (j <= i) {
					t.Fatalf("after %d releases request %d is served: %v, want %v", i+1, j, w.done(), j <= i)
				}
			}
			held = queue[i].box
		}
		held.Release()
		tp.finish()
	})
}

func TestOldestIdleBoxIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: -1, Max: 3})
		ids := map[string]string{}
		for _, tenant := range []string{"old", "middle", "new"} {
			box := tp.acquire(tenant)
			ids[tenant] = box.BoxID()
			wait(time.Second)
			box.Release()
		}
		box := tp.acquire("other")
		if got, want := tp.tracedEvents("evicted"), "evicted "+ids["old"]; got != want {
			t.Errorf("evicted boxes = %q, want %q", got, want)
		}
		if box.Boot() != "cold" {
			t.Errorf("Boot = %q, want cold", box.Boot())
		}
		if again := tp.acquire("new"); again.BoxID() != ids["new"] {
			t.Errorf("box of the newest tenant = %s, want %s", again.BoxID(), ids["new"])
		}
		tp.finish()
	})
}

// TestWarmTenants checks that tenants with an idle box are warm only while the pool is full and has no unbound box.
func TestWarmTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 2})
		tp.warm()
		check := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			got := slices.Sorted(maps.Keys(tp.WarmTenants()))
			if !slices.Equal(got, want) {
				t.Errorf("%s: WarmTenants = %v, want %v", when, got, want)
			}
		}
		check("a ready box")
		a := tp.acquire("a")
		check("a acquired")
		a.Release()
		check("a free slot")
		tp.warm()
		check("a idle and a ready box")
		b := tp.acquire("b")
		check("b acquired", "a")
		b.Release()
		check("both idle", "a", "b")
		tp.finish()
	})
}

func TestMemoryLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 3, Max: 4, MemoryMBTotal: 1000})
		tp.warm()
		_, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{MemoryMB: 1001}, nil)
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("Acquire of more than the limit = %v, want ErrTooLarge", err)
		}
		first := tp.startAcquire(t.Context(), "a", Limits{MemoryMB: 600})
		large := tp.startAcquire(t.Context(), "b", Limits{MemoryMB: 700})
		small := tp.startAcquire(t.Context(), "c", Limits{MemoryMB: 100})
		if !first.done() || large.done() || small.done() {
			t.Errorf("served: %v %v %v, want only the first: a small request must not overtake a large one",
				first.done(), large.done(), small.done())
		}
		if got := tp.Stats().MemoryMB; got != 600 {
			t.Errorf("memory of acquired boxes = %d, want 600", got)
		}
		first.box.Release()
		synctest.Wait()
		if !large.done() || !small.done() {
			t.Errorf("served after the release: %v %v, want both", large.done(), small.done())
		}
		sum := 0
		for _, name := range []string{"w0", "w1", "w2"} {
			sum += host.boxes[name].limits.MemoryMB
		}
		if sum != 1400 {
			t.Errorf("limits set on boxes sum up to %d, want 600+700+100", sum)
		}
		tp.finish()
	})
}

// TestOnWait checks that Acquire calls onWait after one second of waiting.
func TestOnWait(t *testing.T) {
	for _, test := range []struct {
		memoryMB, max int
		want          Wait
		waitingMemory int // requests that wait for memory
	}{
		{1000, 2, WaitMemory, 1},
		{2000, 1, WaitBox, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: test.max, MemoryMBTotal: test.memoryMB})
			tp.warm()
			first := tp.startAcquire(t.Context(), "a", Limits{MemoryMB: 600})
			waits := make(chan Wait, 8)
			second := make(chan error, 1)
			go func() {
				box, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{MemoryMB: 500},
					func(w Wait) { waits <- w })
				if err == nil {
					box.Release()
				}
				second <- err
			}()
			wait(900 * time.Millisecond)
			if len(waits) != 0 {
				t.Errorf("onWait(%v) before a second had passed", <-waits)
			}
			wait(5 * time.Second)
			if n, got := len(waits), <-waits; n != 1 || got != test.want {
				t.Errorf("onWait called %d times, with %q; want once, with %q", n, got, test.want)
			}
			if e := tp.Environments()[0]; e.Waiting != 1 || e.WaitingMemory != test.waitingMemory {
				t.Errorf("Environments = %+v, want one waiting request, %d of them for memory", e, test.waitingMemory)
			}
			first.box.Release()
			if err := <-second; err != nil {
				t.Errorf("second Acquire = %v, want nil", err)
			}
			tp.finish()
		})
	}
}

func TestPoolRecoversFromFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		broken := &HostError{Reason: ReasonImageMissing, Err: errors.New("no image")}
		host.failCreate = broken
		tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
		early := tp.startAcquire(t.Context(), "a", Limits{})
		wait(10 * time.Second)
		var unavailable *UnavailableError
		if !early.done() || !errors.As(early.err, &unavailable) || unavailable.Attempts < maxAttempts ||
			!errors.Is(early.err, broken) {
			t.Errorf("Acquire while boxes cannot be created = %v, want an UnavailableError with the reason", early.err)
		}
		s := tp.Stats()
		if s.LastReason != ReasonImageMissing || s.LastError != broken.Error() ||
			s.CreateErrors < 4 || s.CreateErrors > 12 {
			t.Errorf("Stats = %+v, want the reason and a few attempts in ten seconds", s)
		}
		host.mu.Lock()
		host.failCreate = nil
		host.mu.Unlock()
		wait(maxBackoff)
		if box := tp.acquire("a"); box.Boot() != "warm" {
			t.Errorf("Boot after recovery = %q; want warm", box.Boot())
		}
		if s := tp.Stats(); s.LastError != "" || s.LastReason != "" {
			t.Errorf("LastError after recovery = %q; want no error and no reason", s.LastError)
		}
		tp.finish()
	})
}

func TestRefillYieldsToTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 3, Max: 8})
		tp.warm()
		var held []*AcquiredBox
		for _, tenant := range []string{"a", "b", "c"} {
			held = append(held, tp.acquire(tenant))
		}
		wait(maxRefillDelay - 10*time.Millisecond)
		if got := counts(tp.Stats()); got != [5]int{0, 0, 0, 3, 0} {
			t.Errorf("counts while tasks run = %v, want no new box yet", got)
		}
		wait(20 * time.Millisecond)
		if got := counts(tp.Stats()); got != [5]int{1, 0, 0, 3, 0} {
			t.Errorf("counts after maxRefillDelay = %v, want one new box", got)
		}
		for _, box := range held {
			box.Release()
		}
		wait(2*host.bootTime + 2*idleAfter)
		if got := counts(tp.Stats()); got != [5]int{0, 3, 3, 0, 0} {
			t.Errorf("counts when idle = %v, want three ready boxes again", got)
		}
		tp.finish()
	})
}

func TestIdleBoxesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 2, Max: 3})
		tp.warm()
		for _, tenant := range []string{"a", "b", "c"} {
			tp.acquire(tenant).Release()
			wait(time.Second)
		}
		if got := counts(tp.Stats()); got != [5]int{0, 0, 3, 0, 0} {
			t.Fatalf("counts = %v, want three bound boxes", got)
		}
		wait(2 * time.Minute)
		if got := counts(tp.Stats()); got != [5]int{0, 2, 1, 0, 0} {
			t.Errorf("counts after idleTTL = %v, want two ready boxes and the newest bound one", got)
		}
		tp.finish()
	})
}

func TestDeadBoxesAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
		tp.warm()
		host.boxes["w0"].die()
		wait(time.Second)
		if s := tp.Stats(); s.Died != 1 || s.Ready != 1 {
			t.Errorf("Stats = %+v, want one dead and one ready box", s)
		}
		host.boxes["w0"].silent = true // ended, unnoticed by the pool
		if box := tp.acquire("a"); box.Boot() != "cold" {
			t.Errorf("Boot = %q, want cold: the ready box had died", box.Boot())
		}
		if s := tp.Stats(); s.Died != 2 {
			t.Errorf("Died = %d, want 2", s.Died)
		}
		tp.finish()
	})
}

func TestRunOutcomes(t *testing.T) {
	lost := errors.New("connection lost")
	for name, test := range map[string]struct {
		verdict Verdict
		err     error
		reuse   bool
	}{
		"verdict": {Verdict{Status: Failed}, nil, true},
		"dirty":   {Verdict{Status: Timeout, Dirty: true}, nil, false},
		"error":   {Verdict{}, lost, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := newFakeHost()
				tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
				tp.warm()
				host.boxes["w0"].play = func(context.Context, Program) (Verdict, error) {
					return test.verdict, test.err
				}
				box := tp.acquire("a")
				if _, err := box.Run(t.Context(), Program{}, Hooks{}); !errors.Is(err, test.err) {
					t.Errorf("Run = %v, want %v", err, test.err)
				}
				box.Release()
				if _, err := box.Run(t.Context(), Program{}, Hooks{}); !errors.Is(err, ErrReleased) {
					t.Errorf("Run after Release = %v, want ErrReleased", err)
				}
				if again := tp.acquire("a"); (again.BoxID() == box.BoxID()) != test.reuse {
					t.Errorf("box used again: %v, want %v", again.BoxID() == box.BoxID(), test.reuse)
				}
				tp.finish()
			})
		})
	}
}

// TestReleaseWhileAProgramRuns checks that a box that is released while its program runs is discarded.
func TestReleaseWhileAProgramRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
		tp.warm()
		fake := host.boxes["w0"]
		fake.play = func(context.Context, Program) (Verdict, error) {
			<-fake.end
			return Verdict{}, errors.New("box is gone")
		}
		box := tp.acquire("a")
		ended := make(chan error, 1)
		go func() {
			_, err := box.Run(t.Context(), Program{}, Hooks{})
			ended <- err
		}()
		synctest.Wait()
		box.Release()
		if err := <-ended; err == nil {
			t.Error("Run in a box that was released while it ran = nil, want an error")
		}
		if s := tp.Stats(); s.Discarded != 1 {
			t.Errorf("Stats = %+v, want the box discarded", s)
		}
		tp.finish()
	})
}

func TestOnDestroy(t *testing.T) {
	for name, end := range map[string]func(tp *testPool, box *AcquiredBox){
		"discarded":           func(_ *testPool, box *AcquiredBox) { box.Discard() },
		"died idle":           func(tp *testPool, box *AcquiredBox) { box.Release(); tp.host.boxes["w0"].die() },
		"pool stopped":        func(tp *testPool, box *AcquiredBox) { box.Release(); tp.stop() },
		"pool stopped before": func(tp *testPool, box *AcquiredBox) { tp.stop(); synctest.Wait(); box.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 1})
				box := tp.acquire("a")
				closed := 0
				box.OnDestroy(func() error { closed++; return nil })
				box.Release()
				box = tp.acquire("a")
				if closed != 0 {
					t.Errorf("OnDestroy function of a bound box called %d times, want 0", closed)
				}
				end(tp, box)
				wait(time.Second)
				if closed != 1 {
					t.Errorf("OnDestroy function of a destroyed box called %d times, want 1", closed)
				}
				tp.finish()
			})
		})
	}
}

func TestAcquiredLimitsApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
		tp.warm()
		var got Limits
		host.boxes["w0"].play = func(_ context.Context, p Program) (Verdict, error) {
			got = p.Limits
			return Verdict{}, nil
		}
		box, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{MemoryMB: 100, CPUs: 0.5, WorkspaceMB: 10}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := box.Run(t.Context(), Program{Limits: Limits{MemoryMB: 9000, Timeout: time.Second}},
			Hooks{}); err != nil {
			t.Fatal(err)
		}
		want := Limits{MemoryMB: 100, CPUs: 0.5, WorkspaceMB: 10, Timeout: time.Second}.OrDefaults()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limits of the program (-want +got):\n%s", diff)
		}
		tp.finish()
	})
}

func TestRequestThatStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 1})
		held := tp.acquire("a")
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		first := tp.startAcquire(ctx, "b", Limits{})
		second := tp.startAcquire(t.Context(), "a", Limits{})
		cancel(enough)
		synctest.Wait()
		if !first.done() || !errors.Is(first.err, enough) {
			t.Errorf("Acquire whose context ended = %v, want its cause", first.err)
		}
		if again := tp.startAcquire(ctx, "b", Limits{}); !errors.Is(again.err, enough) {
			t.Errorf("Acquire with an ended context = %v; want the context's cause", again.err)
		}
		held.Release()
		synctest.Wait()
		if !second.done() || second.err != nil || second.box.BoxID() != held.BoxID() {
			t.Errorf("next request = %+v, want the released box", second)
		}
		tp.finish()
	})
}

func TestBoxThatCannotBeLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 2})
		tp.warm()
		host.failLimit = errors.New("cgroup is gone")
		if _, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{}, nil); !errors.Is(err, host.failLimit) {
			t.Errorf("Acquire = %v, want the limiter's error", err)
		}
		host.mu.Lock()
		host.failLimit = nil
		host.mu.Unlock()
		tp.acquire("a")
		if s := tp.Stats(); s.Discarded != limitAttempts {
			t.Errorf("Discarded = %d, want %d", s.Discarded, limitAttempts)
		}
		tp.finish()
	})
}

func TestBoxThatCannotBeDestroyedKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: -1, Max: 1})
		box := tp.acquire("a")
		host.mu.Lock()
		host.failClose = 2
		host.mu.Unlock()
		box.Discard()
		next := tp.startAcquire(t.Context(), "b", Limits{})
		wait(destroyDelay)
		if next.done() || tp.Stats().Destroying != 1 {
			t.Errorf("while a box is destroyed: request served %v, Stats = %+v; want it to wait, and Destroying 1",
				next.done(), tp.Stats())
		}
		wait(2 * destroyDelay)
		if !next.done() || next.err != nil {
			t.Errorf("request after the box was destroyed = %+v, want it served", next)
		}
		tp.finish()
	})
}

// TestFailedBoxThatCannotBeDestroyedKeepsItsSlot checks that a box whose runner does not start is destroyed in the end.
func TestFailedBoxThatCannotBeDestroyedKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		host.failClose = 2
		tp := newTestPool(t, host, PoolOptions{MinReady: -1, Max: 1})
		failed := false
		tp.start = func(ctx context.Context, box Box, preload []string, tmpl *boxTemplate) (boxRunner, error) {
			if !failed {
				failed = true
				return nil, errors.New("preload failed")
			}
			return host.start(ctx, box, preload, tmpl)
		}
		tp.run()
		next := tp.startAcquire(t.Context(), "a", Limits{})
		if next.done() || tp.Stats().Destroying != 1 || tp.Stats().CreateErrors != 1 {
			t.Errorf("while a box is destroyed: request served %v, Stats = %+v; want it to wait, and Destroying 1",
				next.done(), tp.Stats())
		}
		wait(2 * destroyDelay)
		if !next.done() || next.err != nil {
			t.Errorf("request after the box was destroyed = %+v, want it served", next)
		}
		tp.finish()
	})
}

func TestStopEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
		box := tp.acquire("a")
		waiting := tp.startAcquire(t.Context(), "b", Limits{})
		tp.finish()
		synctest.Wait()
		if !waiting.done() || !errors.Is(waiting.err, ErrPoolClosed) {
			t.Errorf("Acquire that waited = %v, want ErrPoolClosed", waiting.err)
		}
		box.Release()
		if _, err := tp.Acquire(t.Context(), Key{}, Limits{}, nil); !errors.Is(err, ErrPoolClosed) {
			t.Errorf("Acquire afterwards = %v, want ErrPoolClosed", err)
		}
		want := PoolStats{Max: 1, Created: 1, Discarded: 1, Acquires: 1, ColdAcquires: 1}
		if diff := cmp.Diff(want, tp.Stats(), cmpopts.IgnoreFields(PoolStats{}, "WaitTime")); diff != "" {
			t.Errorf("Stats (-want +got):\n%s", diff)
		}
	})
}

// TestStopWhileABoxIsCreated checks that Run ends although a box is finished after the pool was closed.
func TestStopWhileABoxIsCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := newTestPool(t, host, PoolOptions{MinReady: 1, Max: 1})
		tp.start = func(_ context.Context, box Box, _ []string, _ *boxTemplate) (boxRunner, error) {
			<-time.After(host.bootTime)
			return box.(*fakeBox), nil
		}
		tp.run()
		wait(host.bootTime / 2)
		tp.finish()
	})
}

// TestStopWithABoxThatCannotBeDestroyed checks that Run ends although a box is left.
func TestStopWithABoxThatCannotBeDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
		tp.warm()
		host.mu.Lock()
		host.failClose = 2 // once, and when the pool ends
		host.mu.Unlock()
		tp.stop()
		if err := <-tp.done; err == nil || !strings.Contains(err.Error(), "could not be destroyed: 1") {
			t.Errorf("Run = %v, want that a box could not be destroyed", err)
		}
	})
}

// TestRunNeedsItsDriver checks that a pool whose driver cannot sweep or probe does not run.
func TestRunNeedsItsDriver(t *testing.T) {
	for want, driver := range map[string]Driver{
		"install runsc": brokenDriver{}, "no access to a cgroup": unsweptDriver{},
	} {
		p, err := NewPool(driver, PoolOptions{Dir: t.TempDir(), Owner: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run = %v, want %q", err, want)
		}
		if _, err := p.Acquire(t.Context(), Key{}, Limits{}, nil); !errors.Is(err, ErrPoolClosed) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("Acquire = %v, want ErrPoolClosed and %q", err, want)
		}
	}
}

type brokenDriver struct{ Driver }

func (brokenDriver) Probe(context.Context) (Info, error) { return Info{}, errors.New("install runsc") }

type unsweptDriver struct{ brokenDriver }

func (unsweptDriver) Sweep(context.Context, string) error { return errors.New("no access to a cgroup") }

// TestFirstBoxIsTheProbe checks that an Inspector is probed after its first box could not be created. The probe's error
// ends the pool.
func TestFirstBoxIsTheProbe(t *testing.T) {
	p, err := NewPool(bootlessDriver{}, PoolOptions{Dir: t.TempDir(), Owner: "test", DiskMB: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "install runsc") {
		t.Errorf("Run = %v, want the driver's advice", err)
	}
	if got := p.Info().Driver; got != "bootless" {
		t.Errorf("Info().Driver = %q, want the one from Inspect", got)
	}
}

type bootlessDriver struct{ brokenDriver }

func (bootlessDriver) Inspect(context.Context) (Info, error) { return Info{Driver: "bootless"}, nil }

func (bootlessDriver) Create(context.Context, Spec) (Box, error) { return nil, errors.New("no boot") }
