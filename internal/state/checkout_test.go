package state_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestAdopt(t *testing.T) {
	bucket := mem.New()
	statetest.Committed(t, bucket, 2)
	w := statetest.OpenWorker(t, bucket)
	w.Write("mine", "1")
	w.Write("keep", "kept")
	if _, err := w.Store.Adopt(t.Context(), w.Tree); err != nil {
		t.Fatal(err)
	}
	c := w.Commit("push")
	if diff := cmp.Diff([]string{"mine", "n"}, c.Changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	other := statetest.OpenWorker(t, bucket)
	other.Checkout()
	other.Want(map[string]string{"mine": "1", "keep": "kept"})
}

// TestLayout checks that each tree has the directories of the layout, that they make no commit until something is in
// them, and that the next program finds them again whatever a program did to them.
func TestLayout(t *testing.T) {
	bucket := mem.New()
	o := state.Options{Layout: []string{"skills", "state"}}
	a := statetest.NewWorker(t, bucket, ref, o)
	checkDirs := func(w *statetest.Worker) {
		t.Helper()
		for _, name := range o.Layout {
			info, err := os.Lstat(filepath.Join(w.Dir, name))
			if err != nil || info.Mode() != os.ModeDir|0o755 {
				t.Errorf("%s = %v, %v; want a directory with mode 0755", name, info, err)
			}
		}
	}
	mkdir := func(name string) {
		if err := os.Mkdir(filepath.Join(a.Dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		do      func()
		changed []string
	}{
		{"nothing", func() {}, nil},
		{"removes", func() { a.Remove("state"); a.Remove("skills") }, nil},
		{"makes again", func() { a.Remove("state"); mkdir("state") }, nil},
		{"elsewhere", func() { a.Write("x", "1") }, []string{"x"}},
		{"elsewhere, and removes", func() { a.Write("x", "2"); a.Remove("skills") }, []string{"x"}},
		{"puts in", func() { a.Write("state/results.json", "{}") }, []string{"state", "state/results.json"}},
		{"nothing, with a file", func() {}, nil},
		{"takes out", func() { a.Remove("state/results.json") }, []string{"state/results.json"}},
		{"nothing, empty", func() {}, nil},
		{"removes what a version has", func() { a.Remove("state") }, []string{"state"}},
		{"replaces", func() { a.Remove("skills"); a.Write("skills", "a file") }, []string{"skills"}},
		{"removes the file", func() { a.Remove("skills") }, []string{"skills"}},
		{"excluded", func() { a.Write(".workspaceignore", "state\n") }, []string{".workspaceignore"}},
		{"excluded, with a file", func() { a.Write("state/x", "1") }, nil},
		{"included again", func() { a.Remove(".workspaceignore") }, []string{".workspaceignore"}},
	} {
		a.Checkout()
		if c.name != "removes the file" {
			checkDirs(a)
		}
		c.do()
		if got := a.Commit(c.name); !slices.Equal(got.Changed, c.changed) || got.NoChange != (len(c.changed) == 0) {
			t.Errorf("%s: Commit() = %v, want %v", c.name, got.Changed, c.changed)
		}
	}
	a.Checkout()
	checkDirs(a)
	// A commit of another worker puts files into the directories; one that fails is reverted.
	b := statetest.NewWorker(t, bucket, ref, o)
	b.Checkout()
	b.Write("skills/double_number.py", "1")
	b.Write("state/a.json", "{}")
	b.Commit("of b")
	a.Checkout()
	a.Want(b.Files())
	a.Remove("skills")
	if err := a.Store.Revert(t.Context(), a.Tree); err != nil {
		t.Fatal(err)
	}
	a.Want(b.Files())
	a.Checkout()
	if c := a.Commit("nothing"); !c.NoChange {
		t.Errorf("Commit() = %+v, want no change", c)
	}
	// Another tree on the same directory finds the directories of the first one.
	other := statetest.NewWorker(t, mem.New(), ref, o)
	other.Dir = a.Dir
	other.Tree = other.NewTree(ref)
	other.Checkout()
	checkDirs(other)
	if c := other.Commit("nothing"); !c.NoChange {
		t.Errorf("Commit() = %+v, want no change", c)
	}
}

// TestPrefetch checks that a checkout with a prefetched HEAD sends no request unless there is a new version, and never
// goes back to an older version.
func TestPrefetch(t *testing.T) {
	bucket := mem.New()
	a, b := statetest.OpenWorker(t, bucket), statetest.OpenWorker(t, bucket)
	check := func(name string, w *statetest.Worker, p *state.Prefetched, generation int64, requests int) {
		t.Helper()
		bucket.Calls()
		v, err := w.Store.Checkout(t.Context(), w.Tree, p)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(bucket.Calls()); v.Generation != generation || n != requests {
			t.Errorf("%s: Checkout() = generation %d after %d requests, want %d after %d", name, v.Generation, n,
				generation, requests)
		}
	}
	prefetch := func(w *statetest.Worker) *state.Prefetched { return w.Store.Prefetch(t.Context(), ref) }

	check("no commits", a, prefetch(a), 0, 0)
	bucket.Calls()
	again := prefetch(a)
	if calls := bucket.Calls(); len(calls) != 1 {
		t.Errorf("the second prefetch without HEAD sends %d requests, want 1", len(calls))
	}
	check("no commits, again", a, again, 0, 0)
	check("no prefetch", a, nil, 0, 1)
	before := prefetch(a)
	a.Write("x", "1")
	a.Commit("task-1")
	check("prefetched before the commit", a, before, 1, 1)
	check("unchanged version", a, prefetch(a), 1, 0)

	b.Checkout()
	b.Write("x", "2")
	b.Commit("task-2")
	check("commit of another worker", a, prefetch(a), 2, 2) // for its manifest and its pack
	if got := a.Files()["x"]; got != "2" {
		t.Errorf("x = %q after the commit of another worker, want 2", got)
	}
	other := a.Store.Prefetch(t.Context(), state.Ref{Tenant: ref.Tenant, Workspace: "other"})
	check("HEAD of another workspace", a, other, 2, 1)
	bucket.SetFault(statetest.OnNth(1, "get", "HEAD", mem.Broken))
	failed := prefetch(a)
	bucket.SetFault(nil)
	check("failed prefetch", a, failed, 2, 1)
}

// TestTimesOfFiles checks that files have the times of the version that is checked out, whatever an earlier task did to
// them without changing their content: in a task that failed, in one that succeeded, and in another workspace.
func TestTimesOfFiles(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	path := filepath.Join(w.Dir, "f")
	committed, forged := time.Unix(500, 0), time.Unix(777, 0)
	set := func(at time.Time) {
		t.Helper()
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	check := func(after string) {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if !info.ModTime().Equal(committed) {
			t.Errorf("%s, the file has the time %s, want that of its version, %s", after, info.ModTime(), committed)
		}
	}
	w.Checkout()
	w.Write("f", "hello")
	set(committed)
	w.Commit("first")

	w.Checkout()
	set(forged)
	if err := w.Store.Revert(t.Context(), w.Tree); err != nil {
		t.Fatal(err)
	}
	w.Checkout()
	check("after a task that failed")

	set(forged)
	if c := w.Commit("only times"); !c.NoChange {
		t.Errorf("a commit of times only = %+v, want no change", c)
	}
	w.Checkout()
	check("after a task that changed only times")

	set(forged)
	w.Write("g", "new")
	w.Commit("times and another file")
	w.Checkout()
	check("after a task that also changed another file")

	other := ref
	other.Workspace = "other"
	o := statetest.NewWorker(t, bucket, other, state.Options{})
	o.Checkout()
	o.Write("f", "hello")
	at := time.Unix(600, 0)
	if err := os.Chtimes(filepath.Join(o.Dir, "f"), at, at); err != nil {
		t.Fatal(err)
	}
	o.Commit("other")
	w.Tree = w.NewTree(other) // on the same directory
	w.Checkout()
	committed = at
	check("after a task in another workspace")
}
