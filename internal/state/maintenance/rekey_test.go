package maintenance_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestRotationLeavesNothing checks that after a change of the secret, garbage collection leaves no object that needs
// the old one: no manifests, even if the newest version needs none of their content, no pins, and no tombstones.
func TestRotationLeavesNothing(t *testing.T) {
	first := state.Options{Secrets: statetest.Secrets("first")}
	second := state.Options{Secrets: statetest.Secrets("second")}
	both := state.Options{Secrets: statetest.Secrets("second", "first")}
	for name, c := range map[string]struct{ before, after func(w *statetest.Worker) }{
		"all content is new": {
			func(w *statetest.Worker) { commitFiles(w, "one", "first", 60) },
			func(w *statetest.Worker) {
				for i := 5; i < 60; i++ {
					w.Remove(fmt.Sprintf("f%02d", i))
				}
				commitFiles(w, "two", "second", 5)
			},
		},
		"no content": {
			func(w *statetest.Worker) {
				if err := os.Symlink("x", filepath.Join(w.Dir, "link")); err != nil {
					w.Fatal(err)
				}
				commitFiles(w, "one", "", 1)
			},
			func(*statetest.Worker) {},
		},
		"pins removed": {
			func(w *statetest.Worker) {
				commitFiles(w, "one", "first", 1)
				statetest.Must(w.T, history.Pin(w.Context(), w.Store.Repo(), ref, "pin", 1))
				statetest.Must(w.T, history.Unpin(w.Context(), w.Store.Repo(), ref, "pin"))
			},
			func(*statetest.Worker) {},
		},
		"deleted": {
			func(w *statetest.Worker) {
				commitFiles(w, "one", "first", 1)
				statetest.Must(w.T, history.Pin(w.Context(), w.Store.Repo(), ref, "pin", 1))
				statetest.Must(w.T, history.Delete(w.Context(), w.Store.Repo(), ref))
				w.Checkout()
			},
			func(*statetest.Worker) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket := mem.New()
				w := statetest.NewWorker(t, bucket, ref, first)
				w.Checkout()
				c.before(w)
				w = statetest.NewWorker(t, bucket, ref, both)
				w.Checkout()
				c.after(w)
				want := w.Files()
				needFirst := func() int { // counts the objects that need the first secret
					t.Helper()
					dry := statetest.Strict
					dry.DryRun = true
					out, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, both).Repo(), "acme", dry)
					statetest.Must(t, err)
					_, err = maintenance.CollectGarbage(t.Context(), state.New(bucket, second).Repo(), "acme", dry)
					n := out.OtherKeys[format.KeyID("acme", []byte("first"))]
					if n == 0 && err != nil {
						t.Errorf("CollectGarbage() counts no objects with the first secret, but without it = %v", err)
					}
					return n
				}
				if needFirst() == 0 {
					t.Error("nothing needs the first secret before garbage collection")
				}
				for range 9 {
					statetest.Advance(t, 25*time.Hour)
					collect := statetest.Strict
					collect.Deleted = -1
					if _, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, both).Repo(), "acme",
						collect); err != nil {
						t.Fatal(err)
					}
					needFirst()
				}
				if n := needFirst(); n > 0 {
					t.Errorf("%d objects still need the first secret, want none", n)
				}
				fresh := statetest.NewWorker(t, bucket, ref, second)
				fresh.Checkout()
				fresh.Want(want)
				_, err := history.Log(t.Context(), fresh.Store.Repo(), ref, 0)
				statetest.Must(t, err)
				_, err = history.Pins(t.Context(), fresh.Store.Repo(), ref)
				statetest.Must(t, err)
				before, err := history.ReadInfo(t.Context(), fresh.Store.Repo(), ref)
				statetest.Must(t, err)
				_, err = maintenance.CollectGarbage(t.Context(), state.New(bucket, second).Repo(), "acme",
					statetest.Strict)
				statetest.Must(t, err)
				if after, err := history.ReadInfo(t.Context(), fresh.Store.Repo(), ref); err != nil ||
					after.Generation != before.Generation {
					t.Errorf("CollectGarbage() with nothing to do left generation %d, %v, want %d", after.Generation,
						err, before.Generation)
				}
				statetest.Must(t, bucket.Violations())
			})
		})
	}
}

func commitFiles(w *statetest.Worker, task, content string, n int) {
	for i := range n {
		w.Write(fmt.Sprintf("f%02d", i), strings.Repeat(content, i+1))
	}
	w.Commit(task)
}

// TestRepairDamagedKeyID checks that a manifest or pack with a damaged key id counts as damaged, not as encrypted with
// a missing key.
func TestRepairDamagedKeyID(t *testing.T) {
	for kind, offset := range map[string]func([]byte) int{
		"/m/000000000002-": func([]byte) int { return 10 },
		"/p/":              func(data []byte) int { return len(data) - 15 },
	} {
		bucket := mem.New()
		w := statetest.NewWorker(t, bucket, ref, statetest.Encrypted)
		for i := range 3 {
			w.Checkout()
			w.Write(fmt.Sprint("f", i), statetest.Random(byte(i), 2000))
			w.Commit(fmt.Sprint("task-", i))
		}
		for _, key := range statetest.Keys(t, bucket) {
			if strings.Contains(key, kind) {
				bucket.Damage(key, func(data []byte) []byte { return statetest.Flipped(offset(data))(data) })
			}
			if strings.Contains(key, "/m/000000000003-") && kind == "/p/" { // makes Repair read indexes
				bucket.Damage(key, statetest.Gone)
			}
		}
		out, err := maintenance.Repair(t.Context(), state.New(bucket, statetest.Encrypted).Repo(), ref,
			maintenance.RepairOptions{})
		if err != nil || len(out.Problems) == 0 ||
			!strings.Contains(strings.Join(out.Problems, "\n"), "does not match") {
			t.Errorf("Repair() with damage in %s = %+v, %v, want damage", kind, out, err)
		}
	}
}

// TestDamagedKeyIDOfHead checks that HEAD and pins with a damaged key id, whose names contain no digest, count as
// damaged and are repaired. Without the right secret, the error is a missing key.
func TestDamagedKeyIDOfHead(t *testing.T) {
	for _, key := range []string{"acme/w/main/HEAD", "acme/w/main/pins/HEAD"} {
		bucket := mem.New()
		w := statetest.NewWorker(t, bucket, ref, statetest.Encrypted)
		w.Checkout()
		commitFiles(w, "one", "x", 3)
		statetest.Must(t, history.Pin(t.Context(), w.Store.Repo(), ref, "pin", 1))
		want := w.Files()
		bucket.Damage(key, statetest.Flipped(10))
		store := state.New(bucket, statetest.Encrypted)
		report, err := maintenance.Check(t.Context(), store.Repo(), ref, maintenance.CheckOptions{})
		if err != nil || !strings.Contains(strings.Join(report.Problems, "\n"), "decrypts it") {
			t.Errorf("%s: Check() = %+v, %v, want it damaged", key, report, err)
		}
		stranger := state.New(bucket, state.Options{Secrets: statetest.Secrets("another")})
		if _, err := maintenance.Check(t.Context(), stranger.Repo(), ref, maintenance.CheckOptions{}); !errors.Is(err,
			state.ErrKey) {
			t.Errorf("%s: Check() with another secret = %v, want ErrKey", key, err)
		}
		_, err = maintenance.Repair(t.Context(), store.Repo(), ref, maintenance.RepairOptions{})
		statetest.Must(t, err)
		fresh := statetest.NewWorker(t, bucket, ref, statetest.Encrypted)
		fresh.Checkout()
		fresh.Want(want)
		report, err = maintenance.Check(t.Context(), store.Repo(), ref, maintenance.CheckOptions{})
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("%s: Check() after the repair = %+v, %v, want no problems", key, report, err)
		}
	}
}
