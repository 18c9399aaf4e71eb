package maintenance_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestCollectWithHeads checks that garbage collection finds all workspaces, and keeps what they need, in every head
// mode.
func TestCollectWithHeads(t *testing.T) {
	for name, open := range statetest.HeadModes(t) {
		t.Run(name, func(t *testing.T) { testCollectWithHeads(t, open()) })
	}
}

func testCollectWithHeads(t *testing.T, bucket objects.Objects) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := statetest.Committed(t, bucket, 30)
		for range 2 {
			statetest.Advance(t, 25*time.Hour)
			out, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme",
				maintenance.GCOptions{Retention: maintenance.Retention{Newest: 1, All: time.Hour, Daily: 1}})
			if err != nil || out.Workspaces != 1 {
				t.Fatalf("CollectGarbage() = %+v, %v, want 1 workspace", out, err)
			}
		}
		fresh := statetest.OpenWorker(t, bucket)
		fresh.Checkout()
		fresh.Want(map[string]string{"n": "30", "keep": "kept"})
	})
}
