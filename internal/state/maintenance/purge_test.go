package maintenance_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
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

// collectFor runs garbage collection every 12 hours for a time.
func collectFor(t *testing.T, store *state.Store, d time.Duration, opts maintenance.GCOptions) (purged []string) {
	t.Helper()
	const every = 12 * time.Hour
	for range d / every {
		statetest.Advance(t, every)
		out, err := maintenance.CollectGarbage(t.Context(), store.Repo(), "acme", opts)
		if err != nil {
			t.Fatal(err)
		}
		purged = append(purged, out.Purged...)
	}
	return purged
}

// TestPurge checks that only the tenant's floor is left of a workspace that was deleted long ago, and that late commits
// to it fail, before and after its name is used again.
func TestPurge(t *testing.T) {
	for name, open := range statetest.HeadModes(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open()
				w := statetest.Committed(t, o, 5)
				late := map[string]*statetest.Worker{
					"before":     statetest.OpenWorker(t, o),
					"afterwards": statetest.OpenWorker(t, o),
				}
				onTombstone, newest := statetest.OpenWorker(t, o), statetest.OpenWorker(t, o)
				for _, l := range late {
					l.Checkout()
				}
				newest.Checkout()
				if err := errors.Join(history.Pin(t.Context(), w.Store.Repo(), ref, "release", 2),
					history.Delete(t.Context(), w.Store.Repo(), ref)); err != nil {
					t.Fatal(err)
				}
				onTombstone.Checkout()
				if purged := collectFor(t, w.Store, 5*24*time.Hour, statetest.Forgetful); !slices.Equal(purged,
					[]string{ref.Workspace}) {
					t.Errorf("purged %v, want %s once", purged, ref.Workspace)
				}
				var left []string
				for _, key := range statetest.Keys(t, o) {
					if !strings.HasPrefix(key, "acme/floor/HEAD") {
						left = append(left, key)
					}
				}
				if len(left) > 0 {
					t.Errorf("left: %v, want nothing", left)
				}
				refused := func(when string) {
					t.Helper()
					if v := newest.Checkout(); v.Generation != 0 && when == "before" {
						t.Errorf("Checkout() %s = %+v, want nothing", when, v)
					}
					l := late[when]
					l.Write("late", "1")
					if _, err := l.Store.Commit(t.Context(), l.Tree,
						state.CommitOptions{TaskID: "late", Attempt: 1}); !errors.Is(err, state.ErrDeleted) {
						t.Errorf("Commit() of what was deleted, %s = %v, want %v", when, err, state.ErrDeleted)
					}
					_, err := w.Store.Edit(t.Context(), ref, state.EditOptions{Base: 5},
						func(func(state.Edit, error) bool) {})
					if !errors.Is(err, state.ErrDeleted) {
						t.Errorf("Edit() of generation 5, %s = %v, want %v", when, err, state.ErrDeleted)
					}
				}
				refused("before")
				onTombstone.Write("again", "1")
				if c := onTombstone.Commit("task-again"); c.Generation != 7 {
					t.Errorf("Commit() to the new workspace = %+v, want generation 7, after those of the old one", c)
				}
				other := statetest.Committed(t, o, 4) // as many versions as the old workspace had
				refused("afterwards")
				newest.Want(map[string]string{"n": "4", "keep": "kept", "again": "1"})
				if pins, err := history.Pins(t.Context(), other.Store.Repo(), ref); err != nil || len(pins) > 0 {
					t.Errorf("Pins() of the new workspace = %v, %v, want none", pins, err)
				}
			})
		})
	}
}

// interposed calls a function before each get, swap and delete.
type interposed struct {
	objects.Objects
	before func(op, key string)
}

func (i interposed) Get(ctx context.Context, key string, o objects.GetOptions) (objects.Object, error) {
	i.before("get", key)
	return i.Objects.Get(ctx, key, o)
}

func (i interposed) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	i.before("swap", key)
	return i.Objects.CompareAndSwap(ctx, key, old, data)
}

func (i interposed) Delete(ctx context.Context, keys ...string) error {
	i.before("delete", strings.Join(keys, " "))
	if ctx.Err() != nil { // like a store over a network
		return ctx.Err()
	}
	return i.Objects.Delete(ctx, keys...)
}

// TestPurgeRace checks that a commit to a workspace that is being purged is not lost, at whichever request of the purge
// it comes.
func TestPurgeRace(t *testing.T) {
	for name, open := range statetest.HeadModes(t) {
		for _, at := range []string{
			"get main/HEAD", "get floor/HEAD", "swap floor/HEAD", "swap main/HEAD",
			"delete pins/HEAD", "delete main/HEAD",
		} {
			t.Run(name+"/"+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := open()
					w := statetest.Committed(t, o, 2)
					if err := history.Delete(t.Context(), w.Store.Repo(), ref); err != nil {
						t.Fatal(err)
					}
					collectFor(t, w.Store, 5*24*time.Hour, statetest.Strict) // removes everything but HEAD
					onTombstone := statetest.OpenWorker(t, o)
					onTombstone.Checkout()
					onTombstone.Write("again", "1")
					var once sync.Once
					var using sync.WaitGroup
					racing := interposed{o, func(op, key string) {
						if op != strings.Fields(at)[0] || !strings.HasSuffix(key, strings.Fields(at)[1]) {
							return
						}
						once.Do(func() {
							using.Go(func() {
								if _, err := onTombstone.Store.Commit(t.Context(), onTombstone.Tree,
									state.CommitOptions{TaskID: "again", Attempt: 1}); err != nil {
									t.Errorf("Commit() = %v, want nil", err)
								}
							})
							statetest.Advance(t, time.Second) // the commit is complete, or waits
						})
					}}
					if _, err := maintenance.CollectGarbage(t.Context(), state.New(racing, state.Options{}).Repo(),
						"acme", statetest.Forgetful); err != nil {
						t.Errorf("CollectGarbage() = %v, want nil", err)
					}
					using.Wait()
					once.Do(func() { t.Errorf("the purge did not send the request %s", at) })
					collectFor(t, w.Store, 4*24*time.Hour, statetest.Forgetful)
					fresh := statetest.OpenWorker(t, o)
					if v := fresh.Checkout(); v.Generation != 4 {
						t.Errorf("Checkout() = %+v, want generation 4", v)
					}
					fresh.Want(map[string]string{"again": "1"})
				})
			})
		}
	}
}

// TestPurgeInterrupted checks that a later run completes a purge that was interrupted before it deleted HEAD, and that
// the name can be used again ten minutes after the announcement.
func TestPurgeInterrupted(t *testing.T) {
	for name, open := range statetest.HeadModes(t) {
		for _, use := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := open()
					w := interruptedPurge(t, o)
					again := statetest.OpenWorker(t, o)
					again.Checkout()
					again.Write("again", "1")
					want := map[string]string{}
					if use {
						if _, err := again.Store.Commit(t.Context(), again.Tree,
							state.CommitOptions{TaskID: "again", Attempt: 1}); !errors.Is(err, objects.ErrTemporary) {
							t.Errorf("Commit() during the purge = %v, want %v", err, objects.ErrTemporary)
						}
						statetest.Advance(t, 10*time.Minute)
						if c := again.Commit("again"); c.Generation != 4 {
							t.Errorf("Commit() ten minutes later = %+v, want generation 4", c)
						}
						want["again"] = "1"
					}
					if purged := collectFor(t, w.Store, 4*24*time.Hour,
						statetest.Forgetful); (len(purged) == 1) == use {
						t.Errorf("purged %v, used again: %v, want a purge only if not", purged, use)
					}
					fresh := statetest.OpenWorker(t, o)
					fresh.Checkout()
					if !maps.Equal(fresh.Files(), want) {
						t.Errorf("Checkout() = %v, want %v", fresh.Files(), want)
					}
				})
			})
		}
	}
}

// TestFenceAtTheEndOfAPurge fences a task between the end of a purge, for which its commit waits, and the commit.
func TestFenceAtTheEndOfAPurge(t *testing.T) {
	for name, open := range statetest.HeadModes(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open()
				w := interruptedPurge(t, o)
				fence := func(string, string) {}
				fencing := interposed{o, func(op, key string) { fence(op, key) }}
				late := statetest.NewWorker(t, fencing, ref, state.Options{})
				late.Checkout()
				late.Write("late", "1")
				var once sync.Once
				fence = func(op, key string) {
					if op == "get" && strings.HasSuffix(key, "main/HEAD") {
						once.Do(func() {
							statetest.Advance(t, time.Second)
							c, err := w.Store.Fence(t.Context(), ref, "late", 1, time.Time{})
							if c != nil || err != nil {
								t.Errorf("Fence() = %+v, %v; want no commit", c, err)
							}
						})
					}
				}
				statetest.Advance(t, 10*time.Minute-time.Second)
				_, err := late.Store.Commit(t.Context(), late.Tree, state.CommitOptions{TaskID: "late", Attempt: 1})
				if !errors.Is(err, state.ErrFenced) {
					t.Errorf("Commit() of the fenced task = %v, want %v", err, state.ErrFenced)
				}
				once.Do(func() { t.Error("the commit did not wait for the purge") })
			})
		})
	}
}

// interruptedPurge interrupts the purge of a workspace before it deletes HEAD.
func interruptedPurge(t *testing.T, o objects.Objects) *statetest.Worker {
	t.Helper()
	w := statetest.Committed(t, o, 2)
	statetest.Must(t, history.Delete(t.Context(), w.Store.Repo(), ref))
	collectFor(t, w.Store, 5*24*time.Hour, statetest.Strict) // removes everything but HEAD
	ctx, die := context.WithCancel(t.Context())
	dying := interposed{o, func(op, key string) {
		if op == "delete" && strings.HasSuffix(key, "main/HEAD") {
			die()
		}
	}}
	if _, err := maintenance.CollectGarbage(ctx, state.New(dying, state.Options{}).Repo(), "acme",
		statetest.Forgetful); !errors.Is(err, context.Canceled) {
		t.Fatalf("CollectGarbage() = %v, want %v", err, context.Canceled)
	}
	return w
}

// TestLostHead checks that a missing HEAD whose manifest exists counts as lost, not as purged.
func TestLostHead(t *testing.T) {
	bucket := mem.New()
	w := statetest.Committed(t, bucket, 2)
	if err := bucket.Delete(t.Context(), "acme/w/main/HEAD"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Store.Checkout(t.Context(), w.Tree, nil); !errors.Is(err, objects.ErrCorrupt) {
		t.Errorf("Checkout() without HEAD = %v, want %v", err, objects.ErrCorrupt)
	}
}

// TestLostHeadElsewhere checks that a process which has never read the lost HEAD does not begin the workspace anew:
// neither a commit nor the fence of a task hides the versions that a repair can recover.
func TestLostHeadElsewhere(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	w.Checkout()
	statetest.Committed(t, bucket, 2)
	bucket.Damage("acme/w/main/HEAD", statetest.Gone)
	other := statetest.OpenWorker(t, bucket)
	for name, prefetched := range map[string]*state.Prefetched{
		"": nil, "prefetched": other.Store.Prefetch(t.Context(), ref),
	} {
		if _, err := other.Store.Checkout(t.Context(), other.Tree, prefetched); !errors.Is(err, objects.ErrCorrupt) {
			t.Errorf("%s Checkout() without HEAD = %v, want %v", name, err, objects.ErrCorrupt)
		}
	}
	if info, err := history.ReadInfo(t.Context(), other.Store.Repo(), ref); !errors.Is(err, objects.ErrCorrupt) {
		t.Errorf("ReadInfo() without HEAD = %+v, %v, want %v", info, err, objects.ErrCorrupt)
	}
	w.Write("n", "3")
	_, err := w.Store.Commit(t.Context(), w.Tree, state.CommitOptions{TaskID: "task-3", Attempt: 1})
	if !errors.Is(err, objects.ErrCorrupt) {
		t.Errorf("Commit() without HEAD = %v, want %v", err, objects.ErrCorrupt)
	}
	if _, err := w.Store.Repo().Fence(t.Context(), ref, "task-3", 1, time.Time{}); !errors.Is(err, objects.ErrCorrupt) {
		t.Errorf("Fence() without HEAD = %v, want %v", err, objects.ErrCorrupt)
	}
	if _, err := maintenance.Repair(t.Context(), w.Store.Repo(), ref, maintenance.RepairOptions{}); err != nil {
		t.Fatal(err)
	}
	fresh := statetest.OpenWorker(t, bucket)
	fresh.Checkout()
	fresh.Want(map[string]string{
		"n": "2", "keep": "kept", "recovered": "dir", "recovered/4e07408562bedb8b": "3", // from the refused commit
	})
}
