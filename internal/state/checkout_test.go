package state_test

import (
	"testing"

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
	check("no commits, again", a, prefetch(a), 0, 0)
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
