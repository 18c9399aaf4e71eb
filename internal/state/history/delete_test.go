package history_test

import (
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestDeleteWithLostResponse checks that Delete does not delete a workspace that was created again after its swap was
// applied and the response was lost. It tells subscribers about its deletion.
func TestDeleteWithLostResponse(t *testing.T) {
	for name, again := range map[string]bool{"created again": true, "still deleted": false} {
		t.Run(name, func(t *testing.T) {
			bucket := mem.New()
			r := statetest.Committed(t, bucket, 3).Store.Repo()
			deletions := 0
			r.Subscribe(func(format.Ref) { deletions++ })
			swapped := false
			bucket.SetFault(func(c mem.Call) mem.Fault {
				switch {
				case c.Op == "swap" && !swapped:
					swapped = true
					return mem.LostResponse
				case c.Op == "get" && swapped:
					bucket.SetFault(nil)
					if again {
						w := statetest.OpenWorker(t, bucket)
						w.Checkout()
						w.Write("new", "1")
						w.Commit("task-new")
					}
				}
				return mem.OK
			})
			if err := history.Delete(t.Context(), r, ref); err != nil {
				t.Errorf("Delete() = %v, want nil", err)
			}
			if deletions != 1 && !again {
				t.Errorf("subscribers heard of %d deletions, want 1", deletions)
			}
			w := statetest.OpenWorker(t, bucket)
			w.Checkout()
			want := map[string]string{}
			if again {
				want["new"] = "1"
			}
			w.Want(want)
		})
	}
}

// TestDeleteDuringCommit checks that Delete deletes the workspace even if a task commits meanwhile.
func TestDeleteDuringCommit(t *testing.T) {
	bucket := mem.New()
	w := statetest.Committed(t, bucket, 3)
	race := &statetest.BeforeSwap{Objects: bucket, Key: ref.HeadKey(), Call: func() {
		w.Checkout()
		w.Write("new", "1")
		w.Commit("task-new")
	}}
	err := history.Delete(t.Context(), state.New(race, state.Options{}).Repo(), ref)
	info, infoErr := history.ReadInfo(t.Context(), w.Store.Repo(), ref)
	if err != nil || infoErr != nil || info.Files != 0 || info.Generation != 5 {
		t.Errorf("Delete() = %v, then ReadInfo() = %+v, %v, want it deleted at generation 5", err, info, infoErr)
	}
	if _, err := bucket.Get(t.Context(), ref.HeadKey(), objects.GetOptions{}); err != nil {
		t.Errorf("HEAD after Delete() = %v, want a tombstone", err)
	}
}
