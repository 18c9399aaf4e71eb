package maintenance_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestCollectAfterDelete checks that only HEAD and the pins of a deleted workspace are left, which a purge removes
// later, and that the old pins do not affect a new workspace with the same name.
func TestCollectAfterDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.Committed(t, bucket, 5)
		if err := history.Pin(t.Context(), w.Store.Repo(), ref, "release", 2); err != nil {
			t.Fatal(err)
		}
		if err := history.Delete(t.Context(), w.Store.Repo(), ref); err != nil {
			t.Fatal(err)
		}
		again := statetest.OpenWorker(t, bucket)
		again.Checkout()
		again.Want(map[string]string{})
		for range 3 {
			statetest.Advance(t, 25*time.Hour)
			dry := statetest.Strict
			dry.DryRun = true
			planned, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme", dry)
			if err != nil {
				t.Fatal(err)
			}
			out, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme", statetest.Strict)
			if err != nil {
				t.Fatal(err)
			}
			if planned.Removed != out.Removed || planned.Bytes != out.Bytes || planned.Marked != out.Marked {
				t.Errorf("CollectGarbage() = %+v after a dry run with %+v, want the same numbers", out, planned)
			}
		}
		for _, key := range statetest.Keys(t, bucket) {
			if key != ref.HeadKey() && key != ref.PinsKey() {
				t.Errorf("%s of a deleted workspace is left, want only HEAD and the pins", key)
			}
		}
		again.Checkout()
		again.Write("new", "1")
		again.Commit("task-6")
		log, err := history.Log(t.Context(), w.Store.Repo(), ref, 0)
		if err != nil || len(log) != 1 || log[0].Generation != 7 {
			t.Errorf("Log() of the new workspace = %+v, %v, want generation 7", log, err)
		}
		if _, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme", statetest.Strict); err != nil {
			t.Errorf("CollectGarbage() with the new workspace = %v, want nil", err)
		}
		if pins, err := history.Pins(t.Context(), w.Store.Repo(), ref); err != nil || len(pins) != 0 {
			t.Errorf("Pins() of the new workspace = %v, %v, want none of the old pins", pins, err)
		}
	})
}

// TestCollectWithoutRemoval checks that objects which cannot be removed do not count as removed.
func TestCollectWithoutRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		repo := statetest.Committed(t, bucket, 5).Store.Repo()
		statetest.Must(t, history.Delete(t.Context(), repo, ref))
		for _, fault := range []mem.Fault{mem.OK, mem.Broken, mem.OK} {
			statetest.Advance(t, 25*time.Hour)
			removes := false
			bucket.SetFault(func(c mem.Call) mem.Fault {
				if c.Op != "delete" {
					return mem.OK
				}
				removes = true
				return fault
			})
			out, err := maintenance.CollectGarbage(t.Context(), repo, "acme", statetest.Strict)
			if removed := removes && fault == mem.OK; (err != nil) != (fault != mem.OK) ||
				(out.Removed > 0) != removed || (out.Bytes > 0) != removed {
				t.Errorf("CollectGarbage() = %+v, %v; want removed objects: %v", out, err, removed)
			}
		}
	})
}

// TestCollectWithLostHead checks that garbage collection removes nothing that the repair of a lost HEAD needs.
func TestCollectWithLostHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		repo := statetest.Committed(t, bucket, 5).Store.Repo()
		statetest.Must(t, repo.Fold(t.Context(), ref))
		bucket.Damage(ref.HeadKey(), statetest.Gone)
		for range 3 {
			statetest.Advance(t, 25*time.Hour)
			_, err := maintenance.CollectGarbage(t.Context(), repo, "acme", statetest.Strict)
			if !errors.Is(err, objects.ErrCorrupt) {
				t.Errorf("CollectGarbage() without HEAD = %v, want %v", err, objects.ErrCorrupt)
			}
		}
		_, err := maintenance.Repair(t.Context(), repo, ref, maintenance.RepairOptions{})
		statetest.Must(t, err)
		w := statetest.OpenWorker(t, bucket)
		w.Checkout()
		w.Want(map[string]string{"n": "5", "keep": "kept"})
	})
}

// TestCollectWithLostHeadBelowTheFloor checks that a lost HEAD is noticed although the purge of another workspace has
// raised the floor above the workspace's generations. The manifest of a first commit that failed is collected.
func TestCollectWithLostHeadBelowTheFloor(t *testing.T) {
	for commits, want := range map[int]error{1: nil, 2: objects.ErrCorrupt} {
		synctest.Test(t, func(t *testing.T) {
			bucket := mem.New()
			repo := statetest.Committed(t, bucket, commits).Store.Repo()
			statetest.Must(t, errors.Join(repo.Fold(t.Context(), ref), repo.RaiseFloor(t.Context(), "acme", 9)))
			bucket.Damage(ref.HeadKey(), statetest.Gone)
			for range 3 {
				statetest.Advance(t, 25*time.Hour)
				_, err := maintenance.CollectGarbage(t.Context(), repo, "acme", statetest.Strict)
				if !errors.Is(err, want) {
					t.Errorf("CollectGarbage() without HEAD after %d commits = %v, want %v", commits, err, want)
				}
			}
			left := 0
			for _, key := range statetest.Keys(t, bucket) {
				if strings.HasPrefix(key, ref.ManifestPrefix()) {
					left++
				}
			}
			if kept := 2 * (commits - 1); left != kept {
				t.Errorf("manifests after %d commits without HEAD: %d are left, want %d", commits, left, kept)
			}
			if want == nil {
				return
			}
			if _, err := repo.Fence(t.Context(), ref, "task-3", 1, time.Time{}); !errors.Is(err, want) {
				t.Errorf("Fence() without HEAD = %v, want %v", err, want)
			}
			_, err := maintenance.Repair(t.Context(), repo, ref, maintenance.RepairOptions{})
			statetest.Must(t, err)
			w := statetest.OpenWorker(t, bucket)
			w.Checkout()
			w.Want(map[string]string{"n": "2", "keep": "kept"})
		})
	}
}

// TestAppliedAfterCollect checks that Applied still finds a task after garbage collection has removed its manifest with
// the result.
func TestAppliedAfterCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.Committed(t, bucket, 30)
		for range 3 {
			statetest.Advance(t, 25*time.Hour)
			if _, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme", statetest.Strict); err != nil {
				t.Fatal(err)
			}
		}
		c, err := state.New(bucket, state.Options{}).Applied(t.Context(), ref, "task-3", time.Time{})
		if err != nil || c == nil || c.Generation != 3 || c.Result != nil {
			t.Errorf("Applied() = %+v, %v, want generation 3 without a result", c, err)
		}
	})
}

// TestCollectIfDue checks that only one of several workers collects garbage in each period.
func TestCollectIfDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		statetest.Committed(t, bucket, 2)
		const workers, every = 8, 6 * time.Hour
		round := func() int64 {
			var turns atomic.Int64
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					out, ours, err := maintenance.CollectIfDue(t.Context(), state.New(bucket, state.Options{}).Repo(),
						"acme", every, maintenance.GCOptions{})
					if err != nil || ours != (out.Workspaces == 1) {
						t.Errorf("CollectIfDue() = %+v, %v, %v, want the workspace only if this worker collected",
							out, ours, err)
					}
					if ours {
						turns.Add(1)
					}
				})
			}
			wg.Wait()
			return turns.Load()
		}
		for _, want := range []int64{1, 0} {
			if got := round(); got != want {
				t.Errorf("%d of %d workers collected, want %d", got, workers, want)
			}
		}
		statetest.Advance(t, every)
		if got := round(); got != 1 {
			t.Errorf("%d of %d workers collected in the next period, want 1", got, workers)
		}
		if err := bucket.Violations(); err != nil {
			t.Error(err)
		}
		bucket.SetFault(func(mem.Call) mem.Fault { return mem.Broken })
		if _, ours, err := maintenance.CollectIfDue(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme",
			every, maintenance.GCOptions{}); ours || err == nil || errors.Is(err, state.ErrConflict) {
			t.Errorf("CollectIfDue() without a store = %v, %v, want an error", ours, err)
		}
	})
}

// TestCollectAtOnce checks that overlapping runs of garbage collection are safe.
func TestCollectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		statetest.Committed(t, bucket, 30)
		for range 4 {
			statetest.Advance(t, 25*time.Hour)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if _, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(),
						"acme", statetest.Strict); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		fresh := statetest.OpenWorker(t, bucket)
		fresh.Checkout()
		fresh.Want(map[string]string{"n": "30", "keep": "kept"})
		left := 0
		for _, key := range statetest.Keys(t, bucket) {
			if statetest.KindOf(key) == "m" {
				left++
			}
		}
		if left == 0 || left > 16 { // the newest manifest and those that it builds on
			t.Errorf("%d of 30 manifests are left, want 1 to 16", left)
		}
	})
}

// TestCollectManyDaily checks that garbage collection goes on however many versions retention keeps behind newer ones
// that it removes.
func TestCollectManyDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.OpenWorker(t, bucket)
		const days = 80
		for day := range days {
			for i := range 2 {
				w.Checkout()
				w.Write("n", fmt.Sprint(day, " ", i))
				w.Commit(fmt.Sprint("task-", day, "-", i))
			}
			statetest.Advance(t, 24*time.Hour)
		}
		keep := maintenance.GCOptions{Retention: maintenance.Retention{Newest: 1, All: time.Hour, Daily: 2 * days}}
		for range 2 {
			if _, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme", keep); err != nil {
				t.Fatal(err)
			}
			statetest.Advance(t, 25*time.Hour)
		}
		fresh := state.New(bucket, state.Options{}).Repo()
		if _, _, err := history.Open(t.Context(), fresh, ref, 1, "n"); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("Open() of the first version = %v, want %v", err, state.ErrNotFound)
		}
		for day := range days {
			if _, _, err := history.Open(t.Context(), fresh, ref, int64(2*day+2), "n"); err != nil {
				t.Errorf("Open() of the last version of day %d = %v, want nil", day, err)
			}
		}
		if err := bucket.Violations(); err != nil {
			t.Error(err)
		}
	})
}
