package state_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// carried returns a workspace of n generations, of which HEAD carries all but the first. The file n is the generation.
func carried(t *testing.T, bucket objects.Objects, n int, opts state.Options) *statetest.Worker {
	t.Helper()
	opts.Carry = statetest.Carry
	w := statetest.NewWorker(t, bucket, ref, opts)
	for i := 1; i <= n; i++ {
		w.Checkout()
		w.Write("n", strconv.Itoa(i))
		w.Write(fmt.Sprintf("f%d", i), statetest.Random(byte(i), 500))
		w.Commit(fmt.Sprintf("task-%d", i))
	}
	return w
}

// sent returns the requests since the last call, such as "put p".
func sent(bucket *mem.Objects) (all []string) {
	for _, call := range bucket.Calls() {
		all = append(all, call.Op+" "+statetest.KindOf(call.Key))
	}
	return all
}

// stored returns how many manifests are stored.
func stored(t *testing.T, bucket objects.Objects) (n int) {
	t.Helper()
	for _, key := range statetest.Keys(t, bucket) {
		if strings.Contains(key, "/w/main/m/") {
			n++
		}
	}
	return n
}

func headSize(t *testing.T, bucket objects.Objects) int {
	t.Helper()
	obj, err := bucket.Get(t.Context(), ref.HeadKey(), objects.GetOptions{})
	statetest.Must(t, err)
	return len(obj.Data)
}

// TestCarriedCommitIsOneWrite checks that a small commit is one request, that a new process then reads the version with
// one request, and that later commits and garbage collection store what HEAD carries.
func TestCarriedCommitIsOneWrite(t *testing.T) {
	bucket := mem.New()
	w := carried(t, bucket, 3, state.Options{})
	w.Checkout()
	w.Write("n", "four")
	bucket.Calls()
	w.Commit("task-4")
	if got := sent(bucket); !slices.Equal(got, []string{"swap HEAD"}) {
		t.Errorf("a small commit sent %q, want only a swap of HEAD", got)
	}
	fresh := statetest.OpenWorker(t, bucket)
	bucket.Calls()
	v := fresh.Checkout()
	// The first version is stored, the others are carried.
	if got := sent(bucket); v.Generation != 4 || !slices.Equal(got, []string{"get HEAD", "get m", "get p"}) {
		t.Errorf("Checkout() = generation %d after %q, want 4 after reads of HEAD and of the first version",
			v.Generation, got)
	}
	fresh.Want(w.Files())
	if n := stored(t, bucket); n != 1 {
		t.Errorf("%d manifests are stored, want the first one", n)
	}
	w.Checkout()
	w.Write("large", statetest.Random(9, 65<<10))
	w.Commit("large")
	if n := stored(t, bucket); n != 5 || headSize(t, bucket) > 8<<10 {
		t.Errorf("after a large commit %d manifests are stored, and HEAD is %d bytes; want 5 and a small HEAD", n,
			headSize(t, bucket))
	}
	if err := bucket.Violations(); err != nil {
		t.Error(err)
	}
}

// TestCarriedLimits checks that HEAD never exceeds its limit, and that a commit of more than 64 KiB is not carried.
func TestCarriedLimits(t *testing.T) {
	bucket := mem.New()
	w := carried(t, bucket, 1, statetest.Encrypted)
	largest := 0
	for i, size := range []int{100, 60 << 10, 60 << 10, 63 << 10, 66 << 10, 30 << 10, 30 << 10, 30 << 10, 30 << 10} {
		w.Checkout()
		w.Write("n", statetest.Random(byte(i), size))
		bucket.Calls()
		w.Commit(fmt.Sprint("size-", i))
		largest = max(largest, headSize(t, bucket))
		if one := slices.Equal(sent(bucket), []string{"swap HEAD"}); size > format.MaxCarriedCommit && one {
			t.Errorf("a commit of %d bytes was carried", size)
		}
	}
	for i := range 3 * format.MaxCarriedManifests {
		w.Checkout()
		w.Write("n", strconv.Itoa(i))
		w.Commit(fmt.Sprint("small-", i))
		largest = max(largest, headSize(t, bucket))
	}
	if largest > format.MaxHead || largest < format.MaxHead/2 {
		t.Errorf("the largest HEAD is %d bytes, want at most %d, and at least half of that", largest, format.MaxHead)
	}
	if n := stored(t, bucket); n < 2*format.MaxCarriedManifests {
		t.Errorf("%d manifests are stored after %d commits, want at least %d",
			n, 3*format.MaxCarriedManifests, 2*format.MaxCarriedManifests)
	}
	fresh := statetest.NewWorker(t, bucket, ref, statetest.Encrypted)
	fresh.Checkout()
	fresh.Want(w.Files())
	if err := bucket.Violations(); err != nil {
		t.Error(err)
	}
}

// TestCarriedHistory checks that all readers of the history read what HEAD carries: log, diff, list, open, pin, retain,
// restore, fork, check, and the search for a task's commit.
func TestCarriedHistory(t *testing.T) {
	ctx := t.Context()
	bucket := mem.New()
	carried(t, bucket, 5, statetest.Encrypted)
	store := state.New(bucket, statetest.Encrypted)
	r := store.Repo()
	log, err := history.Log(ctx, r, ref, 0)
	if err != nil || len(log) != 5 || log[0].TaskID != "task-5" {
		t.Errorf("Log() = %+v, %v, want 5 commits", log, err)
	}
	diff, err := history.Diff(ctx, r, ref, 2, 4)
	if err != nil || len(diff) != 3 {
		t.Errorf("Diff(2, 4) = %+v, %v, want f3, f4 and n", diff, err)
	}
	for g := int64(1); g <= 5; g++ {
		if got := read(t, store, g, "n"); got != strconv.FormatInt(g, 10) {
			t.Errorf("file n of generation %d = %q, want %d", g, got, g)
		}
	}
	if c, err := store.Applied(ctx, ref, "task-3", time.Time{}); err != nil || c == nil ||
		string(c.Result) != `"task-3"` {
		t.Errorf("Applied(task-3) = %+v, %v, want its commit with its result", c, err)
	}
	statetest.Must(t, history.Pin(ctx, r, ref, "three", 3))
	statetest.Must(t, store.Retain(ctx, ref, 2, time.Now().Add(time.Hour)))
	report, err := maintenance.Check(ctx, r, ref, maintenance.CheckOptions{ReadData: true})
	if err != nil || len(report.Problems) > 0 || report.Versions != 5 {
		t.Errorf("Check() = %+v, %v, want 5 versions without problems", report, err)
	}
	out, err := maintenance.Repair(ctx, r, ref, maintenance.RepairOptions{ReadData: true})
	if err != nil || !out.Commit.NoChange || len(out.Problems) > 0 {
		t.Errorf("Repair() = %+v, %v, want no change", out, err)
	}
	if n := stored(t, bucket); n != 1 {
		t.Errorf("%d manifests are stored after reads, want the first one", n)
	}
	if _, err := history.Fork(ctx, r, ref, 4, "lab", ""); err != nil {
		t.Fatal(err)
	}
	if n := stored(t, bucket); n != 5 {
		t.Errorf("%d manifests are stored after a fork, want all, because the fork refers to their packs", n)
	}
	if c, err := history.Restore(ctx, r, ref, 2, ""); err != nil || c.Generation != 6 {
		t.Errorf("Restore(2) = %+v, %v, want generation 6", c, err)
	}
	statetest.Must(t, history.Delete(ctx, r, ref))
	lab := statetest.NewWorker(t, bucket, state.Ref{Tenant: ref.Tenant, Workspace: "lab"}, statetest.Encrypted)
	lab.Checkout()
	if got := lab.Files()["n"]; got != "4" {
		t.Errorf("file n of the fork = %q, want 4, although its source was deleted", got)
	}
}

func read(t *testing.T, store *state.Store, generation int64, path string) string {
	t.Helper()
	f, _, err := history.Open(t.Context(), store.Repo(), ref, generation, path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestCarriedDelete checks that the versions of a deleted workspace are stored, so that artifacts stay readable until
// garbage collection removes them, and that the workspace can be used again.
func TestCarriedDelete(t *testing.T) {
	bucket := mem.New()
	w := carried(t, bucket, 3, state.Options{})
	statetest.Must(t, history.Delete(t.Context(), w.Store.Repo(), ref))
	if n := stored(t, bucket); n != 3 {
		t.Errorf("%d manifests are stored, want 3", n)
	}
	w.Write("n", "late")
	if _, err := w.Store.Commit(t.Context(), w.Tree, state.CommitOptions{}); err == nil {
		t.Error("Commit() without a checkout = nil, want an error")
	}
	w.Checkout()
	w.Write("n", "again")
	if c := w.Commit("again"); c.Generation != 5 {
		t.Errorf("Commit() = generation %d, want 5", c.Generation)
	}
}

// TestLostHead checks what is lost with a HEAD that carries commits: these commits, and nothing else. The loss is
// noticed, and no generation is used again.
func TestLostHead(t *testing.T) {
	for _, opts := range []state.Options{{}, statetest.Encrypted} {
		bucket := mem.New()
		w := carried(t, bucket, 3, opts)
		statetest.Must(t, w.Store.Repo().Fold(t.Context(), ref))
		for i := 4; i <= 6; i++ {
			w.Checkout()
			w.Write("n", strconv.Itoa(i))
			w.Commit(fmt.Sprint("task-", i))
		}
		bucket.Damage(ref.HeadKey(), statetest.Gone)
		if _, err := w.Store.Checkout(t.Context(), w.Tree, nil); !errors.Is(err, objects.ErrCorrupt) {
			t.Errorf("Checkout() without HEAD = %v, want %v", err, objects.ErrCorrupt)
		}
		store := state.New(bucket, opts)
		report, err := maintenance.Check(t.Context(), store.Repo(), ref, maintenance.CheckOptions{})
		if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0], ref.HeadKey()) {
			t.Errorf("Check() = %+v, %v, want one problem, with HEAD", report, err)
		}
		out, err := maintenance.Repair(t.Context(), store.Repo(), ref, maintenance.RepairOptions{})
		if err != nil || out.Commit.Generation <= 6 {
			t.Errorf("Repair() = %+v, %v, want a generation above those that HEAD carried", out, err)
		}
		if got := read(t, store, 0, "n"); got != "3" {
			t.Errorf("file n after the repair = %q, want the last one that was stored", got)
		}
		for task, want := range map[string]bool{"task-3": true, "task-4": false} {
			if c, err := store.Applied(t.Context(), ref, task, time.Time{}); err != nil || (c != nil) != want {
				t.Errorf("Applied(%s) = %+v, %v, want found: %v", task, c, err, want)
			}
		}
	}
}

// TestHeadFormat checks that HEAD has the newer format only while it carries objects: programs that do not know it
// refuse such a HEAD, instead of dropping what it carries.
func TestHeadFormat(t *testing.T) {
	bucket := mem.New()
	w := carried(t, bucket, 2, state.Options{})
	head := func() string {
		obj, err := bucket.Get(t.Context(), ref.HeadKey(), objects.GetOptions{})
		statetest.Must(t, err)
		return string(obj.Data)
	}
	if got := head(); !strings.HasPrefix(got, `{"format":2,`) {
		t.Errorf("HEAD begins with %.20q, want format 2", got)
	}
	statetest.Must(t, w.Store.Repo().Fold(t.Context(), ref))
	if got := head(); !strings.HasPrefix(got, `{"format":1,`) || strings.Count(got, "\n") != 2 {
		t.Errorf("HEAD is %q after it was folded, want format 1", got)
	}
}

// TestNotCarried checks that HEAD carries nothing while Options.Carry returns false, and that such a worker stores what
// others let HEAD carry.
func TestNotCarried(t *testing.T) {
	bucket := mem.New()
	carried(t, bucket, 3, state.Options{})
	w := statetest.NewWorker(t, bucket, ref, state.Options{Carry: func() bool { return false }})
	w.Checkout()
	w.Write("n", "4")
	bucket.Calls()
	w.Commit("task-4")
	got := sent(bucket)
	slices.Sort(got)
	want := []string{"put m", "put m", "put m", "put p", "put p", "put p", "swap HEAD"}
	if !slices.Equal(got, want) {
		t.Errorf("Commit() sent %q, want %q", got, want)
	}
}

// TestFolding checks that HEAD carries nothing ten seconds after a commit, that commits which follow each other are
// stored meanwhile, and that stop folds what is left.
func TestFolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.NewWorker(t, bucket, ref, statetest.Carrying)
		stop := w.Store.Repo().StartFolding()
		commit := func(name string) {
			w.Checkout()
			w.Write("n", name)
			w.Commit(name)
		}
		commit("first")
		commit("second")
		if n := stored(t, bucket); n != 1 {
			t.Errorf("%d manifests are stored, want 1", n)
		}
		statetest.Advance(t, 10*time.Second)
		if n := stored(t, bucket); n != 2 || headSize(t, bucket) > 1<<10 {
			t.Errorf("after ten seconds, %d manifests are stored and HEAD is %d bytes, want 2 and nothing carried", n,
				headSize(t, bucket))
		}
		bucket.Calls()
		for i := range 200 {
			commit(strconv.Itoa(i))
			statetest.Advance(t, 100*time.Millisecond)
		}
		swaps := 0
		for _, call := range bucket.Calls() {
			if call.Op == "swap" {
				swaps++
			}
		}
		if n := stored(t, bucket); n < 140 || swaps != 200 {
			t.Errorf("after 200 commits, %d manifests are stored, with %d swaps; want most of them, and 200 swaps",
				n, swaps)
		}
		commit("last")
		stop(t.Context())
		if n := stored(t, bucket); n != 203 {
			t.Errorf("%d manifests are stored after the end, want all of 203", n)
		}
		fresh := statetest.OpenWorker(t, bucket)
		fresh.Checkout()
		fresh.Want(w.Files())
		if err := bucket.Violations(); err != nil {
			t.Error(err)
		}
	})
}

// TestFoldingAtOnce checks that HEADs are folded at once when they must not carry commits any more.
func TestFoldingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		var allowed atomic.Bool
		allowed.Store(true)
		w := statetest.NewWorker(t, bucket, ref, state.Options{Carry: allowed.Load})
		stop := w.Store.Repo().StartFolding()
		for i := range 3 {
			w.Checkout()
			w.Write("n", strconv.Itoa(i))
			w.Commit(fmt.Sprint("task-", i))
		}
		allowed.Store(false)
		statetest.Advance(t, 1500*time.Millisecond)
		if n := stored(t, bucket); n != 3 || headSize(t, bucket) > 2<<10 {
			t.Errorf("%d manifests are stored and HEAD is %d bytes, want 3 and nothing carried", n, headSize(t, bucket))
		}
		stop(t.Context())
	})
}

// TestFoldingDuringOutage checks that folding continues after an outage of the object store.
func TestFoldingDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := carried(t, bucket, 2, state.Options{})
		stop := w.Store.Repo().StartFolding()
		w.Checkout()
		w.Write("n", "3")
		w.Commit("task-3")
		bucket.SetFault(func(c mem.Call) mem.Fault {
			if c.Op == "put" {
				return mem.NotApplied
			}
			return mem.OK
		})
		statetest.Advance(t, 10*time.Minute)
		if n := stored(t, bucket); n != 1 {
			t.Errorf("%d manifests are stored during the outage, want 1", n)
		}
		bucket.SetFault(nil)
		statetest.Advance(t, time.Minute)
		if n := stored(t, bucket); n != 3 {
			t.Errorf("%d manifests are stored after the outage, want 3", n)
		}
		stop(t.Context())
	})
}

// TestFoldingEndsInTime checks that stop ends with its context when the object store hangs.
func TestFoldingEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := carried(t, bucket, 2, state.Options{})
		stop := w.Store.Repo().StartFolding()
		w.Checkout()
		w.Write("n", "3")
		w.Commit("task-3")
		bucket.SetFault(func(mem.Call) mem.Fault { return mem.Hang })
		statetest.Advance(t, time.Minute) // a fold is in progress
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		stop(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("stop() took %v, want the second that it had", took)
		}
	})
}

// TestCarriedKeyRotation checks that garbage collection rewrites what HEAD carries with an old key.
func TestCarriedKeyRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		carried(t, bucket, 4, state.Options{Secrets: statetest.Secrets("old")})
		both := state.New(bucket, state.Options{Secrets: statetest.Secrets("new", "old")})
		w := statetest.NewWorker(t, bucket, ref, state.Options{
			Secrets: statetest.Secrets("new", "old"), Carry: statetest.Carry,
		})
		w.Checkout()
		w.Write("n", "5") // HEAD has the new key, and carries objects with the old one
		w.Commit("task-5")
		for range 4 {
			_, err := maintenance.CollectGarbage(t.Context(), both.Repo(), ref.Tenant, statetest.Strict)
			statetest.Must(t, err)
			statetest.Advance(t, 25*time.Hour)
		}
		out, err := maintenance.CollectGarbage(t.Context(), both.Repo(), ref.Tenant, statetest.Strict)
		if err != nil || len(out.OtherKeys) > 0 {
			t.Errorf("CollectGarbage() = %+v, %v, want no object with another key", out, err)
		}
		fresh := statetest.NewWorker(t, bucket, ref, state.Options{Secrets: statetest.Secrets("new")})
		fresh.Checkout()
		fresh.Want(w.Files())
	})
}

// TestCarriedGarbage checks that garbage collection keeps what HEAD carries, stores it, and removes it when its
// versions have expired.
func TestCarriedGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := carried(t, bucket, 6, state.Options{})
		collect := func() {
			t.Helper()
			_, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), ref.Tenant, statetest.Strict)
			statetest.Must(t, err)
		}
		collect()
		if n := stored(t, bucket); n != 6 || headSize(t, bucket) > 2<<10 {
			t.Errorf("after garbage collection, %d manifests are stored, and HEAD is %d bytes; want 6 and a small HEAD",
				n, headSize(t, bucket))
		}
		w.Checkout()
		w.Write("n", "seven")
		w.Commit("task-7")
		for range 4 {
			statetest.Advance(t, 25*time.Hour)
			collect()
		}
		if n := stored(t, bucket); n > 4 {
			t.Errorf("%d manifests are left, want those of the newest version", n)
		}
		fresh := statetest.OpenWorker(t, bucket)
		fresh.Checkout()
		fresh.Want(w.Files())
	})
}
