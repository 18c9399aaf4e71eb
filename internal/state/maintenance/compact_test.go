package maintenance_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// coldPull checks out with an empty cache, and returns the worker and the number of its requests by kind.
func coldPull(t *testing.T, bucket *mem.Objects) (*statetest.Worker, map[string]int) {
	t.Helper()
	w := statetest.OpenWorker(t, bucket)
	bucket.Calls()
	w.Checkout()
	requests := map[string]int{}
	for _, c := range bucket.Calls() {
		requests[c.Op+" "+statetest.KindOf(c.Key)]++
	}
	return w, requests
}

// TestManySmallCommits checks that the number of packs that a cold pull reads does not grow with the number of commits,
// and that the size of a commit stays proportional to its change.
func TestManySmallCommits(t *testing.T) {
	const commits, size, small = 300, 2000, 16
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	want := map[string]string{}
	var puts, uploaded, most int
	for i := range commits {
		w.Checkout()
		name, content := fmt.Sprintf("f%03d", i), fmt.Sprintf("%04d %s", i, statetest.Random(byte(i), size-5))
		w.Write(name, content)
		want[name] = content
		bucket.Calls()
		c := w.Commit("task-" + strconv.Itoa(i))
		if !slices.Equal(c.Changed, []string{name}) {
			t.Fatalf("commit %d changed %v, want its one file", i, c.Changed)
		}
		n := 0
		for _, call := range bucket.Calls() {
			switch call.Op + " " + statetest.KindOf(call.Key) {
			case "put p":
				n++
				uploaded += call.Size
			case "get p":
				t.Fatalf("commit %d reads a pack that is in its cache", i)
			}
		}
		puts, most = puts+n, max(most, n)
	}
	fresh, requests := coldPull(t, bucket)
	fresh.Want(want)
	if n := requests["get p"]; n > small+1 {
		t.Errorf("a cold pull after %d commits reads %d packs, want at most %d", commits, n, small+1)
	}
	if most != 2 || puts > commits+commits/small+1 {
		t.Errorf("%d commits wrote %d packs, and one wrote %d; want one each, and one more every %d commits",
			commits, puts, most, small)
	}
	if most := commits*size*3 + commits/small*(512<<10); uploaded > most {
		t.Errorf("%d commits uploaded %d bytes in packs, want at most %d", commits, uploaded, most)
	}
	t.Logf("%d packs of %d bytes uploaded; requests of a cold pull: %v", puts, uploaded, requests)
	log, err := history.Log(t.Context(), w.Store.Repo(), ref, 0)
	if err != nil || len(log) != commits {
		t.Fatalf("Log() = %d commits, %v, want %d", len(log), err, commits)
	}
	for i, c := range log {
		if name := fmt.Sprintf("f%03d", commits-1-i); !slices.Equal(c.Changed, []string{name}) {
			t.Errorf("Log() = generation %d changed %v, want %s", c.Generation, c.Changed, name)
		}
	}
	if report, err := maintenance.Check(t.Context(), w.Store.Repo(), ref,
		maintenance.CheckOptions{ReadData: true}); err != nil || len(report.Problems) > 0 {
		t.Errorf("Check() = %v, %v, want no problems", report.Problems, err)
	}
	if err := bucket.Violations(); err != nil {
		t.Error(err)
	}
}

// TestCompactWithDamage checks that a commit succeeds although packs that it would compact are lost.
func TestCompactWithDamage(t *testing.T) {
	bucket := mem.New()
	w := statetest.NewWorker(t, bucket, ref, state.Options{Compaction: statetest.Eager})
	commit := func(i int) {
		w.Checkout()
		w.Write("f"+strconv.Itoa(i), strconv.Itoa(i))
		w.Commit("task-" + strconv.Itoa(i))
	}
	for i := range 3 {
		commit(i)
	}
	for _, key := range statetest.Keys(t, bucket) {
		if statetest.KindOf(key) == "p" {
			if err := bucket.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Store = state.New(bucket, state.Options{Compaction: statetest.Eager}) // without a cache
	w.Tree = w.NewTree(ref)
	bucket.Calls()
	_, err := w.Store.Edit(t.Context(), ref, state.EditOptions{Base: state.Newest},
		func(yield func(state.Edit, error) bool) {
			yield(state.Edit{Path: "new", Kind: state.File, Content: strings.NewReader("new")}, nil)
		})
	if err != nil {
		t.Errorf("Edit() with lost packs = %v, want nil", err)
	}
	compacts := func(c mem.Call) bool { return c.Op == "get" && statetest.KindOf(c.Key) == "p" }
	if calls := bucket.Calls(); !slices.ContainsFunc(calls, compacts) {
		t.Errorf("Edit() sent the requests %v, want it to read a pack", calls)
	}
}

// TestCollectCompacts checks that a pack of which little is needed is removed once older versions are, even if forks
// need it.
func TestCollectCompacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.OpenWorker(t, bucket)
		w.Checkout()
		const parts = 10
		for i := range parts {
			w.Write(fmt.Sprint("part-", i), statetest.Random(byte(i), 1<<20))
		}
		w.Commit("first")
		if _, err := history.Fork(t.Context(), w.Store.Repo(), ref, 0, "lab", ""); err != nil {
			t.Fatal(err)
		}
		lab := w.NewTree(state.Ref{Tenant: "acme", Workspace: "lab"})
		for i := 2; i < parts; i++ {
			w.Remove(fmt.Sprint("part-", i))
		}
		want := w.Files()
		for _, tree := range []*state.Tree{w.Tree, lab} {
			if _, err := w.Store.Checkout(t.Context(), tree, nil); err != nil {
				t.Fatal(err)
			}
			for i := 2; i < parts; i++ {
				w.Remove(fmt.Sprint("part-", i))
			}
			if _, err := w.Store.Commit(t.Context(), tree, state.CommitOptions{Message: "less"}); err != nil {
				t.Fatal(err)
			}
		}
		stored := func() (bytes int64) {
			for info, err := range bucket.List(t.Context(), "acme/p/", "") {
				if err != nil {
					t.Fatal(err)
				}
				bytes += info.Size
			}
			return bytes
		}
		compacted := 0
		for range 4 {
			statetest.Advance(t, 25*time.Hour)
			out, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme",
				statetest.Strict)
			if err != nil {
				t.Fatal(err)
			}
			compacted += out.Compacted
		}
		if compacted == 0 {
			t.Error("no pack was compacted, want some")
		}
		if got := stored(); got > 3<<20 {
			t.Errorf("packs take %d bytes for 2 MiB of content, want at most 3 MiB", got)
		}
		for _, name := range []string{"main", "lab"} {
			fresh := statetest.NewWorker(t, bucket, state.Ref{Tenant: "acme", Workspace: name}, state.Options{})
			fresh.Checkout()
			fresh.Want(want)
		}
		if again, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme",
			statetest.Strict); err != nil || again.Compacted != 0 {
			t.Errorf("CollectGarbage() with nothing to compact = %+v, %v, want none compacted", again, err)
		}
	})
}

// TestCollectLeavesPinned checks that packs that a pinned version needs are not compacted, unlike the same packs
// without the pin.
func TestCollectLeavesPinned(t *testing.T) {
	for _, pinned := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			bucket := mem.New()
			w := statetest.OpenWorker(t, bucket)
			w.Checkout()
			w.Write("small", statetest.Random(1, 300<<10))
			for i := range 5 {
				w.Write(fmt.Sprint("large-", i), statetest.Random(byte(2+i), 1<<20))
			}
			w.Commit("first")
			w.Checkout()
			for i := range 5 {
				w.Remove(fmt.Sprint("large-", i))
			}
			w.Commit("second")
			if pinned {
				statetest.Must(t, history.Pin(t.Context(), w.Store.Repo(), ref, "less", 2))
			}
			compacted := 0
			for range 4 {
				statetest.Advance(t, 25*time.Hour)
				out, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme", statetest.Strict)
				statetest.Must(t, err)
				compacted += out.Compacted
			}
			if (compacted == 0) != pinned {
				t.Errorf("CollectGarbage() compacted %d packs, pinned: %t", compacted, pinned)
			}
		})
	}
}
