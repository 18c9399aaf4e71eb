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

// counts is the part of the statistics that says where boxes are.
func counts(s PoolStats) [5]int {
	return [5]int{s.Warming, s.Ready, s.Bound, s.Acquired, s.Destroying}
}

// warm waits until every box is made that is to be kept ready; time is synctest's.
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

// The first box is not held up by the others, nor is the first task by theirs.
func TestFirstBoxIsMadeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 3, Max: 5})
		for _, step := range []struct {
			after time.Duration
			want  [5]int
		}{
			{host.bootTime / 2, [5]int{1, 0, 0, 0, 0}},
			{host.bootTime/2 + quiet/2, [5]int{0, 1, 0, 0, 0}},
			{quiet, [5]int{2, 1, 0, 0, 0}},
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
		"no directory": {Owner: "o"},
		"no owner":     {Dir: "d"},
		"owner":        {Dir: "d", Owner: "a/b"},
		"reuse":        {Dir: "d", Owner: "o", Reuse: "always"},
		"none":         {Dir: "d", Owner: "o", Max: -1},
	} {
		if _, err := NewPool(newFakeHost(), opts); err == nil {
			t.Errorf("%s: NewPool took %+v", name, opts)
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
		l := tp.acquire("a")
		first := l.BoxID()
		if l.Boot() != "warm" {
			t.Errorf("Boot = %q, want warm", l.Boot())
		}
		if err := os.WriteFile(ghost(l.Dir()), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l.Release()
		l = tp.acquire("a")
		if _, err := os.Stat(ghost(l.Dir())); l.BoxID() != first || err != nil {
			t.Errorf("second lease: box %s, %v; want box %s with its workspace", l.BoxID(), err, first)
		}
		l.Release()
		l.Release() // does nothing
		other := tp.acquire("b")
		if _, err := os.Stat(ghost(other.Dir())); other.BoxID() == first || err == nil {
			t.Errorf("lease of another tenant: box %s, workspace %v", other.BoxID(), err)
		}
		other.Release()
		network, err := tp.Acquire(t.Context(), Key{Tenant: "a", Network: "example.org"}, Limits{}, nil)
		if err != nil || network.BoxID() == first {
			t.Errorf("lease of another network: box %s, %v", network.BoxID(), err)
		}
		network.Release()
		tp.finish()
	})
}

func TestReuseNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 2, Reuse: ReuseNever})
		l := tp.acquire("a")
		first := l.BoxID()
		l.Release()
		l = tp.acquire("a")
		if l.BoxID() == first {
			t.Error("a box was used twice")
		}
		l.Release()
		tp.finish()
	})
}

func TestLeasesAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 1})
		held := tp.acquire("a")
		var queue []*pending
		for _, tenant := range []string{"b", "a", "c", "b"} {
			queue = append(queue, tp.begin(t.Context(), tenant, Limits{}))
		}
		if s := tp.Stats(); s.Waiting != 4 || s.Acquired != 1 {
			t.Errorf("Stats = %+v, want four leases to wait", s)
		}
		for i := range queue {
			held.Release()
			wait(time.Second)
			for j, w := range queue {
				if w.done() != (j <= i) {
					t.Fatalf("after %d releases lease %d is served: %v", i+1, j, w.done())
				}
			}
			held = queue[i].lease
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
			l := tp.acquire(tenant)
			ids[tenant] = l.BoxID()
			wait(time.Second)
			l.Release()
		}
		l := tp.acquire("other")
		if got, want := tp.story("evicted"), "evicted "+ids["old"]; got != want {
			t.Errorf("story = %q, want %q", got, want)
		}
		if l.Boot() != "cold" {
			t.Errorf("Boot = %q, want cold", l.Boot())
		}
		if again := tp.acquire("new"); again.BoxID() != ids["new"] {
			t.Errorf("box of the newest tenant = %s, want %s", again.BoxID(), ids["new"])
		}
		tp.finish()
	})
}

// Tenants are kept while a box is idle for them and nobody else could have one.
func TestKeptTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 2})
		tp.warm()
		kept := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			got := slices.Sorted(maps.Keys(tp.WarmTenants()))
			if !slices.Equal(got, want) {
				t.Errorf("%s: Kept = %v, want %v", when, got, want)
			}
		}
		kept("a box is ready")
		a := tp.acquire("a")
		kept("a leased")
		a.Release()
		kept("there is room for a box")
		tp.warm()
		kept("a box is ready beside that of a")
		b := tp.acquire("b")
		kept("b leased", "a")
		b.Release()
		kept("both idle", "a", "b")
		tp.finish()
	})
}

func TestMemoryIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 3, Max: 4, MemoryMBTotal: 1000})
		tp.warm()
		if _, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{MemoryMB: 1001}, nil); !errors.Is(err, ErrTooLarge) {
			t.Errorf("Lease of more than there is = %v, want ErrTooLarge", err)
		}
		first := tp.begin(t.Context(), "a", Limits{MemoryMB: 600})
		large := tp.begin(t.Context(), "b", Limits{MemoryMB: 700})
		small := tp.begin(t.Context(), "c", Limits{MemoryMB: 100})
		if !first.done() || large.done() || small.done() {
			t.Errorf("served: %v %v %v, want the first; the small one must not overtake", first.done(), large.done(), small.done())
		}
		if got := tp.Stats().MemoryMB; got != 600 {
			t.Errorf("leased memory = %d, want 600", got)
		}
		first.lease.Release()
		synctest.Wait()
		if !large.done() || !small.done() {
			t.Errorf("served after the release: %v %v, want both", large.done(), small.done())
		}
		if got := host.boxes["w1"].limits.MemoryMB + host.boxes["w0"].limits.MemoryMB + host.boxes["w2"].limits.MemoryMB; got != 1400 {
			t.Errorf("limits set on boxes sum up to %d, want 600+700+100", got)
		}
		tp.finish()
	})
}

// A lease that has waited for a second says for what.
func TestWaitIsTold(t *testing.T) {
	for _, test := range []struct {
		memoryMB, most int
		want           Wait
		inMemory       int // leases that wait for memory
	}{
		{1000, 2, WaitMemory, 1},
		{2000, 1, WaitSandbox, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: test.most, MemoryMBTotal: test.memoryMB})
			tp.warm()
			first := tp.begin(t.Context(), "a", Limits{MemoryMB: 600})
			told := make(chan Wait, 8)
			second := make(chan error, 1)
			go func() {
				l, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{MemoryMB: 500}, func(w Wait) { told <- w })
				if err == nil {
					l.Release()
				}
				second <- err
			}()
			wait(900 * time.Millisecond)
			if len(told) != 0 {
				t.Errorf("told %v before a second was over", <-told)
			}
			wait(5 * time.Second)
			if n, got := len(told), <-told; n != 1 || got != test.want {
				t.Errorf("told %d times, %q; want once, %q", n, got, test.want)
			}
			if e := tp.Environments()[0]; e.Waiting != 1 || e.WaitingMemory != test.inMemory {
				t.Errorf("Environments = %+v, want one that waits, and for memory %d", e, test.inMemory)
			}
			first.lease.Release()
			if err := <-second; err != nil {
				t.Error(err)
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
		early := tp.begin(t.Context(), "a", Limits{})
		wait(10 * time.Second)
		var unavailable *UnavailableError
		if !early.done() || !errors.As(early.err, &unavailable) || unavailable.Attempts < givingUp || !errors.Is(early.err, broken) {
			t.Errorf("lease while boxes cannot be made = %v, want an UnavailableError with the reason", early.err)
		}
		s := tp.Stats()
		if s.LastReason != ReasonImageMissing || s.LastError != broken.Error() || s.CreateErrors < 4 || s.CreateErrors > 12 {
			t.Errorf("Stats = %+v, want the reason and a few attempts in ten seconds", s)
		}
		host.mu.Lock()
		host.failCreate = nil
		host.mu.Unlock()
		wait(longPause)
		if l := tp.acquire("a"); l.Boot() != "warm" {
			t.Errorf("Boot after recovery = %q", l.Boot())
		}
		if s := tp.Stats(); s.LastError != "" || s.LastReason != "" {
			t.Errorf("LastError after recovery = %q", s.LastError)
		}
		tp.finish()
	})
}

func TestRefillKeepsOutOfTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 3, Max: 8})
		tp.warm()
		var held []*AcquiredBox
		for _, tenant := range []string{"a", "b", "c"} {
			held = append(held, tp.acquire(tenant))
		}
		wait(patience - 10*time.Millisecond)
		if got := counts(tp.Stats()); got != [5]int{0, 0, 0, 3, 0} {
			t.Errorf("counts while tasks run = %v, want no box to be made yet", got)
		}
		wait(20 * time.Millisecond)
		if got := counts(tp.Stats()); got != [5]int{1, 0, 0, 3, 0} {
			t.Errorf("counts after a second = %v, want one box to be made", got)
		}
		for _, l := range held {
			l.Release()
		}
		wait(2*host.bootTime + 2*quiet)
		if got := counts(tp.Stats()); got != [5]int{0, 3, 3, 0, 0} {
			t.Errorf("counts when idle = %v, want three ready boxes again", got)
		}
		tp.finish()
	})
}

func TestIdleBoxesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 2, Max: 3, IdleTTL: time.Minute})
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
			t.Errorf("counts after IdleTTL = %v, want two ready boxes and the newest bound one", got)
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
		host.boxes["w0"].silent = true // ended, but nobody has noticed
		if l := tp.acquire("a"); l.Boot() != "cold" {
			t.Errorf("Boot = %q, want cold: the ready box was dead", l.Boot())
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
		play  func(context.Context, Program) (Verdict, error)
		err   error
		reuse bool
	}{
		"verdict": {func(context.Context, Program) (Verdict, error) { return Verdict{Status: Failed}, nil }, nil, true},
		"dirty":   {func(context.Context, Program) (Verdict, error) { return Verdict{Status: Timeout, Dirty: true}, nil }, nil, false},
		"error":   {func(context.Context, Program) (Verdict, error) { return Verdict{}, lost }, lost, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := newFakeHost()
				tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
				tp.warm()
				host.boxes["w0"].play = test.play
				l := tp.acquire("a")
				if _, err := l.Run(t.Context(), Program{}, Hooks{}); !errors.Is(err, test.err) {
					t.Errorf("Run = %v, want %v", err, test.err)
				}
				l.Release()
				if _, err := l.Run(t.Context(), Program{}, Hooks{}); !errors.Is(err, ErrReleased) {
					t.Errorf("Run after Release = %v, want ErrReleased", err)
				}
				if again := tp.acquire("a"); (again.BoxID() == l.BoxID()) != test.reuse {
					t.Errorf("box used again: %v, want %v", again.BoxID() == l.BoxID(), test.reuse)
				}
				tp.finish()
			})
		})
	}
}

// A box is not given back while its program runs.
func TestReleaseWhileAProgramRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
		tp.warm()
		box := host.boxes["w0"]
		box.play = func(context.Context, Program) (Verdict, error) {
			<-box.end
			return Verdict{}, errors.New("box is gone")
		}
		l := tp.acquire("a")
		ended := make(chan error, 1)
		go func() {
			_, err := l.Run(t.Context(), Program{}, Hooks{})
			ended <- err
		}()
		synctest.Wait()
		l.Release()
		if err := <-ended; err == nil {
			t.Error("Run succeeded in a box that was destroyed")
		}
		if s := tp.Stats(); s.Discarded != 1 {
			t.Errorf("Stats = %+v, want the box burned", s)
		}
		tp.finish()
	})
}

func TestOnDestroy(t *testing.T) {
	for name, end := range map[string]func(tp *testPool, l *AcquiredBox){
		"discarded":           func(_ *testPool, l *AcquiredBox) { l.Discard() },
		"died idle":           func(tp *testPool, l *AcquiredBox) { l.Release(); tp.host.boxes["w0"].die() },
		"pool stopped":        func(tp *testPool, l *AcquiredBox) { l.Release(); tp.stop() },
		"pool stopped before": func(tp *testPool, l *AcquiredBox) { tp.stop(); synctest.Wait(); l.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 1})
				l := tp.acquire("a")
				closed := 0
				l.OnDestroy(func() error { closed++; return nil })
				l.Release()
				l = tp.acquire("a")
				if closed != 0 {
					t.Errorf("OnDestroy function of a bound box called %d times", closed)
				}
				end(tp, l)
				wait(time.Second)
				if closed != 1 {
					t.Errorf("OnDestroy function of a destroyed box called %d times, want once", closed)
				}
				tp.finish()
			})
		})
	}
}

func TestLeaseLimitsRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
		tp.warm()
		var got Limits
		host.boxes["w0"].play = func(_ context.Context, p Program) (Verdict, error) {
			got = p.Limits
			return Verdict{}, nil
		}
		l, err := tp.Acquire(t.Context(), Key{Tenant: "a"}, Limits{MemoryMB: 100, CPUs: 0.5, WorkspaceMB: 10}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Run(t.Context(), Program{Limits: Limits{MemoryMB: 9000, Timeout: time.Second}}, Hooks{}); err != nil {
			t.Fatal(err)
		}
		want := Limits{MemoryMB: 100, CPUs: 0.5, WorkspaceMB: 10, Timeout: time.Second}.OrDefaults()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limits of the program (-want +got):\n%s", diff)
		}
		tp.finish()
	})
}

func TestLeaseThatStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := runPool(t, newFakeHost(), PoolOptions{MinReady: 1, Max: 1})
		held := tp.acquire("a")
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		first := tp.begin(ctx, "b", Limits{})
		second := tp.begin(t.Context(), "a", Limits{})
		cancel(enough)
		synctest.Wait()
		if !first.done() || !errors.Is(first.err, enough) {
			t.Errorf("lease whose context ended = %v, want its cause", first.err)
		}
		if again := tp.begin(ctx, "b", Limits{}); !errors.Is(again.err, enough) {
			t.Errorf("lease with an ended context = %v", again.err)
		}
		held.Release()
		synctest.Wait()
		if !second.done() || second.err != nil || second.lease.BoxID() != held.BoxID() {
			t.Errorf("lease behind it = %+v, want the box that was given back", second)
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
			t.Errorf("burned = %d, want %d", s.Discarded, limitAttempts)
		}
		tp.finish()
	})
}

func TestBoxThatCannotBeDestroyedKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: -1, Max: 1})
		l := tp.acquire("a")
		host.mu.Lock()
		host.failClose = 2
		host.mu.Unlock()
		l.Discard()
		next := tp.begin(t.Context(), "b", Limits{})
		wait(destroyPause)
		if next.done() || tp.Stats().Destroying != 1 {
			t.Errorf("served before the box was gone: %v, %+v", next.done(), tp.Stats())
		}
		wait(2 * destroyPause)
		if !next.done() || next.err != nil {
			t.Errorf("lease after the box was gone = %+v", next)
		}
		tp.finish()
	})
}

func TestStopEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newFakeHost()
		tp := runPool(t, host, PoolOptions{MinReady: 1, Max: 1})
		l := tp.acquire("a")
		waiting := tp.begin(t.Context(), "b", Limits{})
		tp.finish()
		synctest.Wait()
		if !waiting.done() || !errors.Is(waiting.err, ErrPoolClosed) {
			t.Errorf("lease that waited = %v, want ErrPoolClosed", waiting.err)
		}
		l.Release()
		if _, err := tp.Acquire(t.Context(), Key{}, Limits{}, nil); !errors.Is(err, ErrPoolClosed) {
			t.Errorf("Lease afterwards = %v, want ErrPoolClosed", err)
		}
		if diff := cmp.Diff(PoolStats{Max: 1, Created: 1, Discarded: 1, Acquires: 1, ColdAcquires: 1}, tp.Stats(), cmpopts.IgnoreFields(PoolStats{}, "Waited")); diff != "" {
			t.Errorf("Stats (-want +got):\n%s", diff)
		}
	})
}

// A worker that cannot sweep or probe must not run.
func TestRunNeedsItsDriver(t *testing.T) {
	p, err := NewPool(brokenDriver{}, PoolOptions{Dir: t.TempDir(), Owner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "install runsc") {
		t.Errorf("Run = %v, want the driver's advice", err)
	}
	if _, err := p.Acquire(t.Context(), Key{}, Limits{}, nil); !errors.Is(err, ErrPoolClosed) || !strings.Contains(err.Error(), "install runsc") {
		t.Errorf("Acquire = %v, want ErrPoolClosed and the reason", err)
	}
}

type brokenDriver struct{ Driver }

func (brokenDriver) Probe(context.Context) (Info, error) { return Info{}, errors.New("install runsc") }

// A driver that looks well until its first box is probed only then, and its advice ends the pool.
func TestFirstBoxIsTheProbe(t *testing.T) {
	p, err := NewPool(bootlessDriver{}, PoolOptions{Dir: t.TempDir(), Owner: "test", DiskMB: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "install runsc") {
		t.Errorf("Run = %v, want the driver's advice", err)
	}
	if got := p.Info().Driver; got != "bootless" {
		t.Errorf("Info().Driver = %q, want what Inspect said", got)
	}
}

type bootlessDriver struct{ brokenDriver }

func (bootlessDriver) Inspect(context.Context) (Info, error) { return Info{Driver: "bootless"}, nil }

func (bootlessDriver) Create(context.Context, Spec) (Box, error) { return nil, errors.New("no boot") }
