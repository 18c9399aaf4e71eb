package history_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/repo"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestReuseDuringCollect checks that what refers to an old version again, between any two requests of a garbage
// collection that removes the version, either fails or is complete afterwards.
func TestReuseDuringCollect(t *testing.T) {
	lab := state.Ref{Tenant: ref.Tenant, Workspace: "lab"}
	for name, reuse := range map[string]func(context.Context, *repo.Repo) error{
		"restore": func(ctx context.Context, r *repo.Repo) error {
			_, err := history.Restore(ctx, r, ref, 2, "")
			return err
		},
		"fork": func(ctx context.Context, r *repo.Repo) error {
			_, err := history.Fork(ctx, r, ref, 2, "lab", "")
			return err
		},
		"pin": func(ctx context.Context, r *repo.Repo) error { return history.Pin(ctx, r, ref, "pin", 2) },
		"retain": func(ctx context.Context, r *repo.Repo) error {
			return r.Retain(ctx, ref, 2, time.Now().Add(720*time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			succeeded := 0
			for at, ended := 1, false; !ended; at++ {
				synctest.Test(t, func(t *testing.T) {
					bucket := mem.New()
					statetest.Committed(t, bucket, 6)
					fresh := func() *repo.Repo { return state.New(bucket, state.Options{}).Repo() }
					collect := func() {
						t.Helper()
						_, err := maintenance.CollectGarbage(t.Context(), fresh(), "acme", statetest.Strict)
						statetest.Must(t, err)
					}
					statetest.Advance(t, 25*time.Hour)
					collect() // marks the old versions
					statetest.Advance(t, 25*time.Hour)
					var calls atomic.Int64
					var reuseErr error
					bucket.SetFault(func(mem.Call) mem.Fault {
						if calls.Add(1) == int64(at) {
							bucket.SetFault(nil)
							reuseErr = reuse(t.Context(), fresh())
						}
						return mem.OK
					})
					collect()
					bucket.SetFault(nil)
					if ended = calls.Load() < int64(at); ended {
						return
					}
					if reuseErr == nil {
						succeeded++
					} else if !errors.Is(reuseErr, state.ErrNotFound) {
						t.Errorf("before request %d: %v, want nil or %v", at, reuseErr, state.ErrNotFound)
					}
					for range 2 { // two more runs
						statetest.Advance(t, 25*time.Hour)
						collect()
					}
					for _, ws := range []state.Ref{ref, lab} {
						o := maintenance.CheckOptions{ReadData: true}
						out, err := maintenance.Check(t.Context(), fresh(), ws, o)
						if err != nil || len(out.Problems)+len(out.Lost) > 0 {
							t.Errorf("before request %d (%v): Check(%s) = %+v, %v, want no damage",
								at, reuseErr, ws, out, err)
						}
					}
					if reuseErr == nil && name != "retain" {
						got, generation := ref, int64(0)
						switch name {
						case "pin":
							generation = 2
						case "fork":
							got = lab
						}
						infos, err := fresh().List(t.Context(), got, generation, "")
						if err != nil || len(infos) != 2 || infos[1].Bytes != 1 {
							t.Errorf("before request %d: List() = %+v, %v, want the files of generation 2",
								at, infos, err)
						}
					}
				})
			}
			if copies := name == "restore" || name == "fork"; (succeeded > 0) != copies {
				t.Errorf("succeeded before %d requests, want %v", succeeded, copies)
			}
		})
	}
}

// TestPinOfUnmarked checks that a version can be pinned, although retention no longer keeps it, until garbage
// collection has marked it, and the newest version always.
func TestPinOfUnmarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		statetest.Committed(t, bucket, 6)
		r := state.New(bucket, state.Options{}).Repo()
		statetest.Advance(t, 25*time.Hour)
		statetest.Must(t, history.Pin(t.Context(), r, ref, "early", 1))
		_, err := maintenance.CollectGarbage(t.Context(), r, "acme", statetest.Strict)
		statetest.Must(t, err)
		err = history.Pin(t.Context(), r, ref, "late", 3)
		if !errors.Is(err, state.ErrNotFound) || !strings.Contains(fmt.Sprint(err), "restore or fork") {
			t.Errorf("Pin() of a marked version = %v, want %v that says what to do", err, state.ErrNotFound)
		}
		for name, generation := range map[string]int64{"newest": 0, "again": 1} {
			if err := history.Pin(t.Context(), r, ref, name, generation); err != nil {
				t.Errorf("Pin() of generation %d = %v, want nil", generation, err)
			}
		}
		c, err := history.Restore(t.Context(), r, ref, 3, "")
		if err != nil || c.Generation != 7 {
			t.Fatalf("Restore() of a marked version = %+v, %v, want generation 7", c, err)
		}
		for range 3 {
			statetest.Advance(t, 25*time.Hour)
			_, err = maintenance.CollectGarbage(t.Context(), r, "acme", statetest.Strict)
			statetest.Must(t, err)
		}
		w := statetest.OpenWorker(t, bucket)
		w.Checkout()
		w.Want(map[string]string{"n": "3", "keep": "kept"})
		if err := bucket.Violations(); err != nil {
			t.Error(err)
		}
	})
}
