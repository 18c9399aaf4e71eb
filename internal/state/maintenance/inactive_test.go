package maintenance_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestCollectInactive checks that garbage collection deletes an inactive workspace, but not one to which a task commits
// between any two requests of the run.
func TestCollectInactive(t *testing.T) {
	collect := func(t *testing.T, bucket *mem.Objects, before func(mem.Call)) maintenance.GCResult {
		t.Helper()
		bucket.SetFault(func(c mem.Call) mem.Fault { before(c); return mem.OK })
		out, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme",
			maintenance.GCOptions{Inactive: 24 * time.Hour})
		statetest.Must(t, err)
		bucket.SetFault(nil)
		return out
	}
	for at := 1; ; at++ {
		calls, committed := 0, false
		synctest.Test(t, func(t *testing.T) {
			bucket := mem.New()
			w := statetest.Committed(t, bucket, 2)
			statetest.Advance(t, 25*time.Hour)
			swapped := false
			out := collect(t, bucket, func(c mem.Call) {
				if swapped || strings.Contains(c.Key, "new") {
					return
				}
				swapped = c.Op == "swap" && calls+1 != at
				if calls++; calls == at {
					bucket.SetFault(nil)
					committed = true
					w.Checkout()
					w.Write("new", "1")
					w.Commit("task-new")
				}
			})
			fresh := statetest.OpenWorker(t, bucket)
			fresh.Checkout()
			want, inactive := map[string]string{}, 1
			if committed {
				want, inactive = map[string]string{"n": "2", "keep": "kept", "new": "1"}, 0
			}
			fresh.Want(want)
			if len(out.Inactive) != inactive {
				t.Errorf("commit before request %d: CollectGarbage() = %+v, want %d inactive workspaces", at, out,
					inactive)
			}
		})
		if !committed {
			return
		}
	}
}
