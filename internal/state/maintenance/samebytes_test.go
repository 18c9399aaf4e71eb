package maintenance_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestSameBytesDuringCollection checks that garbage collection does not delete the content of a commit which stores the
// same bytes as an unreferenced pack, before any request of the run that deletes the pack.
func TestSameBytesDuringCollection(t *testing.T) {
	const content = "the same bytes"
	for at, ended := int64(1), false; !ended; at++ {
		synctest.Test(t, func(t *testing.T) {
			bucket := mem.New()
			w := statetest.Committed(t, bucket, 1)
			w.Checkout()
			w.Write("again", content)
			bucket.SetFault(statetest.OnNth(1, "swap", "HEAD", mem.Broken))
			_, err := w.Store.Commit(t.Context(), w.Tree, state.CommitOptions{TaskID: "task-lost", Attempt: 1})
			if err == nil {
				t.Fatal("Commit() while HEAD cannot be written = nil, want an error")
			}
			bucket.SetFault(nil)
			statetest.Advance(t, 25*time.Hour)
			out, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme", statetest.Strict)
			if err != nil || out.Marked != 2 {
				t.Fatalf("CollectGarbage() = %+v, %v, want the pack and the manifest marked", out, err)
			}
			statetest.Advance(t, 25*time.Hour)
			other := statetest.OpenWorker(t, bucket)
			var calls atomic.Int64
			bucket.SetFault(func(mem.Call) mem.Fault {
				if calls.Add(1) == at {
					if _, err := other.Run("task-again", "again", content); err != nil {
						t.Errorf("Commit() before request %d = %v, want nil", at, err)
					}
				}
				return mem.OK
			})
			out, err = maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme", statetest.Strict)
			bucket.SetFault(nil)
			if err != nil || out.Removed != 2 {
				t.Fatalf("CollectGarbage() = %+v, %v, want the pack and the manifest removed", out, err)
			}
			if ended = calls.Load() < at; ended {
				return
			}
			fresh := statetest.OpenWorker(t, bucket)
			if _, err := fresh.Store.Checkout(t.Context(), fresh.Tree, nil); err != nil {
				t.Fatalf("Checkout() after a commit before request %d = %v, want nil", at, err)
			}
			fresh.Want(map[string]string{"n": "1", "keep": "kept", "again": content})
		})
	}
}
