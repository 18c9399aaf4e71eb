package state_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// fence fences a task of ref that must not have committed.
func fence(t *testing.T, bucket objects.Objects, task string) {
	t.Helper()
	c, err := state.New(bucket, state.Options{}).Fence(t.Context(), ref, task, 1, time.Time{})
	if c != nil || err != nil {
		t.Fatalf("Fence(%s) = %+v, %v, want no commit", task, c, err)
	}
}

func TestFence(t *testing.T) {
	for name, existing := range map[string]bool{"in a workspace": true, "in a new workspace": false} {
		t.Run(name, func(t *testing.T) {
			bucket := mem.New()
			if existing {
				w := statetest.OpenWorker(t, bucket)
				w.Checkout()
				w.Write("a", "1")
				w.Commit("earlier")
			}
			stopped, other := statetest.OpenWorker(t, bucket), statetest.OpenWorker(t, bucket)
			stopped.Checkout()
			other.Checkout()
			stopped.Write("stopped", "1")
			other.Write("other", "1")

			fence(t, bucket, "task-1")
			fence(t, bucket, "task-1") // may be repeated
			opts := state.CommitOptions{TaskID: "task-1", Attempt: 1, Since: time.Now()}
			if _, err := stopped.Store.Commit(t.Context(), stopped.Tree, opts); !errors.Is(err, state.ErrFenced) {
				t.Errorf("commit of the fenced task: %v, want %v", err, state.ErrFenced)
			}
			// A checkout after the fence does not help.
			late := statetest.OpenWorker(t, bucket)
			late.Checkout()
			late.Write("late", "1")
			if _, err := late.Store.Commit(t.Context(), late.Tree, opts); !errors.Is(err, state.ErrFenced) {
				t.Errorf("late commit of the fenced task: %v, want %v", err, state.ErrFenced)
			}

			c := other.Commit("task-2") // its checkout was before the fence
			if c.Already || c.NoChange || len(c.Changed) != 1 {
				t.Errorf("commit of another task = %+v, want one change", c)
			}
			late.Checkout()
			late.Write("late", "1")
			if _, err := late.Store.Commit(t.Context(), late.Tree, opts); !errors.Is(err, state.ErrFenced) {
				t.Errorf("commit of the fenced task after others: %v, want %v", err, state.ErrFenced)
			}
			fresh := statetest.OpenWorker(t, bucket)
			fresh.Checkout()
			files := fresh.Files()
			if files["stopped"] != "" || files["late"] != "" || files["other"] == "" {
				t.Errorf("files = %v, want none of the fenced task", files)
			}
			done, err := fresh.Store.Fence(t.Context(), ref, "task-2", 1, time.Time{})
			if err != nil || done == nil || done.Generation != c.Generation {
				t.Errorf("Fence(task-2) = %+v, %v, want its commit of generation %d", done, err, c.Generation)
			}
		})
	}
}

// TestFenceOrCommit checks that a fence and a commit of the same task exclude each other, with all faults of the store.
func TestFenceOrCommit(t *testing.T) {
	nth := func(n int, op, key string, fault mem.Fault) func() func(mem.Call) mem.Fault {
		return func() func(mem.Call) mem.Fault { return statetest.OnNth(n, op, key, fault) }
	}
	for name, fault := range map[string]func() func(mem.Call) mem.Fault{ // a fault counts the calls of one case
		"no fault":                         func() func(mem.Call) mem.Fault { return nil },
		"swap not applied":                 nth(1, "swap", "HEAD", mem.NotApplied),
		"response to swap lost":            nth(1, "swap", "HEAD", mem.LostResponse),
		"response to second swap lost":     nth(2, "swap", "HEAD", mem.LostResponse),
		"every third response lost":        statetest.EveryThird,
		"second swap not applied":          nth(2, "swap", "HEAD", mem.NotApplied),
		"response to put of manifest lost": nth(2, "put", "", mem.LostResponse),
	} {
		for _, generations := range []int{0, 1} {
			t.Run(fmt.Sprint(name, " ", generations), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					bucket := &statetest.BeforeSwap{Objects: mem.New(), Key: ref.HeadKey()}
					for range generations {
						w := statetest.OpenWorker(t, bucket)
						w.Checkout()
						w.Write("a", "1")
						w.Commit("earlier")
					}
					w := statetest.OpenWorker(t, bucket)
					w.Checkout()
					w.Write("file", "1")
					var found *state.Commit
					var fenceErr error
					bucket.Call = func() { // between the commit's preparation and its swap
						store := state.New(bucket, state.Options{})
						found, fenceErr = store.Fence(t.Context(), ref, "task-1", 1, time.Time{})
					}
					bucket.SetFault(fault())
					_, err := w.Store.Commit(t.Context(), w.Tree, state.CommitOptions{TaskID: "task-1", Attempt: 1})
					bucket.SetFault(nil)
					if fenceErr != nil || found != nil || !errors.Is(err, state.ErrFenced) {
						t.Errorf("Fence() = %+v, %v; Commit() = %v, want only the fence", found, fenceErr, err)
					}
					if err := bucket.Violations(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestFencedAttempts checks that a fence holds only for the attempts before a redrive: later ones may commit.
func TestFencedAttempts(t *testing.T) {
	bucket := mem.New()
	store := state.New(bucket, state.Options{})
	if c, err := store.Fence(t.Context(), ref, "task", 3, time.Time{}); c != nil || err != nil {
		t.Fatalf("Fence = %+v, %v, want no commit", c, err)
	}
	for attempt, want := range []error{1: state.ErrFenced, 2: state.ErrFenced, 3: state.ErrFenced, 4: nil} {
		if attempt == 0 {
			continue
		}
		w := statetest.OpenWorker(t, bucket)
		w.Checkout()
		w.Write("a", "1")
		opts := state.CommitOptions{TaskID: "task", Attempt: attempt, Since: time.Now()}
		if _, err := w.Store.Commit(t.Context(), w.Tree, opts); !errors.Is(err, want) {
			t.Errorf("commit of attempt %d: %v, want %v", attempt, err, want)
		}
	}
}

func TestFencesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.OpenWorker(t, bucket)
		commit := func(task, path string) error {
			w.Checkout()
			w.Write(path, task)
			_, err := w.Store.Commit(t.Context(), w.Tree, state.CommitOptions{TaskID: task, Attempt: 1})
			return err
		}
		fence(t, bucket, "task-1")
		for i := range 100 { // more than HEAD keeps recent tasks
			if err := commit(fmt.Sprint("other-", i), "a"); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(59 * time.Minute)
		if err := commit("task-1", "b"); !errors.Is(err, state.ErrFenced) {
			t.Errorf("commit after 59 minutes and 100 commits: %v, want %v", err, state.ErrFenced)
		}
		for i := range 16 {
			fence(t, bucket, fmt.Sprint("fenced-", i))
		}
		if err := commit("task-1", "b"); err != nil {
			t.Errorf("commit after 16 more fences: %v, want success: the oldest is forgotten", err)
		}
		if err := history.Delete(t.Context(), w.Store.Repo(), ref); err != nil {
			t.Fatal(err)
		}
		if err := commit("fenced-15", "c"); !errors.Is(err, state.ErrFenced) {
			t.Errorf("commit after the deletion of the workspace: %v, want %v", err, state.ErrFenced)
		}
	})
}
