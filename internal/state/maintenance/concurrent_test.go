package maintenance_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestCommitDuringMaintenance checks that Check and Repair find no damage, and lose nothing, when another process
// commits and pins a version between any two of their requests.
func TestCommitDuringMaintenance(t *testing.T) {
	for name, maintain := range map[string]func(t *testing.T, store *state.Store){
		"check": func(t *testing.T, store *state.Store) {
			t.Helper()
			out, err := maintenance.Check(t.Context(), store.Repo(), ref, maintenance.CheckOptions{ReadData: true})
			if err != nil || len(out.Problems)+len(out.Lost) > 0 {
				t.Errorf("Check() = %+v, %v, want no damage", out, err)
			}
		},
		"repair": func(t *testing.T, store *state.Store) {
			t.Helper()
			out, err := maintenance.Repair(t.Context(), store.Repo(), ref, maintenance.RepairOptions{ReadData: true})
			if err != nil || !out.Commit.NoChange || len(out.Problems)+len(out.Lost) > 0 {
				t.Errorf("Repair() = %+v, %v, want no change", out, err)
			}
		},
	} {
		// The other process acts before request at: first request 1, with 3 versions and then with none, then request
		// 2, and so on, until Check or Repair sends fewer requests with either.
		for n, ended := int64(0), 0; ended < 2; n++ {
			before, at := []int{3, 0}[n%2], n/2+1
			t.Run(fmt.Sprint(name, " of ", before, " versions, ", at), func(t *testing.T) {
				bucket := mem.New()
				other := statetest.Committed(t, bucket, before)
				var calls atomic.Int64
				bucket.SetFault(func(mem.Call) mem.Fault {
					if calls.Add(1) == at {
						c, err := other.Run("task-new", "new", "1")
						if err == nil {
							err = history.Pin(t.Context(), other.Store.Repo(), ref, "new", c.Generation)
						}
						if err != nil {
							t.Error(err)
						}
					}
					return mem.OK
				})
				maintain(t, state.New(bucket, state.Options{}))
				bucket.SetFault(nil)
				if calls.Load() < at {
					ended++
					return
				}
				ended = 0
				fresh := statetest.OpenWorker(t, bucket)
				fresh.Checkout()
				want := map[string]string{"n": "3", "keep": "kept", "new": "1"}
				if before == 0 {
					want = map[string]string{"new": "1"}
				}
				fresh.Want(want)
				log, err := history.Log(t.Context(), fresh.Store.Repo(), ref, 100)
				if err != nil || len(log) != before+1 {
					t.Errorf("Log() = %d commits, %v, want %d", len(log), err, before+1)
				}
				pins, _, err := fresh.Store.Repo().ReadPins(t.Context(), ref)
				if err != nil || len(pins.Lost) > 0 {
					t.Errorf("ReadPins() = %+v, %v, want no lost versions", pins, err)
				}
			})
		}
	}
}
