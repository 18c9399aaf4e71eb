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

// TestCheckoutSeen: a checkout by a glance makes no request, and is never to an older version than the
// tree holds, nor than the one that was newest when the glance began.
func TestCheckoutSeen(t *testing.T) {
	bucket := mem.New()
	a, b := statetest.OpenWorker(t, bucket), statetest.OpenWorker(t, bucket)
	seen := func(w *statetest.Worker, g *state.Prefetched) (generation int64, requests int) {
		t.Helper()
		bucket.Calls()
		v, err := w.Store.Checkout(t.Context(), w.Tree, g)
		if err != nil {
			t.Fatal(err)
		}
		return v.Generation, len(bucket.Calls())
	}
	check := func(what string, w *statetest.Worker, g *state.Prefetched, wantGeneration int64, wantRequests int) {
		t.Helper()
		if generation, requests := seen(w, g); generation != wantGeneration || requests != wantRequests {
			t.Errorf("%s: CheckoutSeen = generation %d after %d requests, want %d after %d", what, generation, requests,
				wantGeneration, wantRequests)
		}
	}
	glance := func(w *statetest.Worker) *state.Prefetched { return w.Store.Prefetch(t.Context(), ref) }

	check("never written", a, glance(a), 0, 0)
	check("never written, again", a, glance(a), 0, 0)
	check("no glance", a, nil, 0, 1)
	before := glance(a)
	a.Write("x", "1")
	a.Commit("task-1")
	check("older than the tree", a, before, 1, 1)
	check("of the version in the tree", a, glance(a), 1, 0)

	b.Checkout()
	b.Write("x", "2")
	b.Commit("task-2")
	check("of another's commit", a, glance(a), 2, 2) // its manifest and its pack
	if got := a.Files()["x"]; got != "2" {
		t.Errorf("x is %q after another's commit", got)
	}
	other := a.Store.Prefetch(t.Context(), state.Ref{Tenant: ref.Tenant, Workspace: "other"})
	check("of another workspace", a, other, 2, 1)
	bucket.SetFault(statetest.OnNth(1, "get", "HEAD", mem.Broken))
	failed := glance(a)
	bucket.SetFault(nil)
	check("that failed", a, failed, 2, 1)
}
