package history_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestHistory(t *testing.T) {
	bucket := mem.New()
	w := statetest.Committed(t, bucket, 40)
	other := state.New(bucket, state.Options{})
	log, err := history.Log(t.Context(), other.Repo(), ref, 0)
	if err != nil || len(log) != 40 {
		t.Fatalf("Log() = %d commits, %v, want 40", len(log), err)
	}
	for i, c := range log {
		if c.Generation != int64(40-i) || c.TaskID != fmt.Sprintf("task-%d", 40-i) {
			t.Errorf("Log()[%d] = %+v, want generation %d", i, c, 40-i)
		}
		if want := []string{"n"}; i < 39 && cmp.Diff(want, c.Changed) != "" {
			t.Errorf("Log()[%d] changed %v, want %v", i, c.Changed, want)
		}
	}
	diff, err := history.Diff(t.Context(), other.Repo(), ref, 3, 0)
	if want := []history.PathChange{{Path: "n", Op: "modified", Bytes: 2}}; err != nil || cmp.Diff(want, diff) != "" {
		t.Errorf("Diff(3, newest) = %v, %v, want %v", diff, err, want)
	}
	c, err := history.Restore(t.Context(), other.Repo(), ref, 7, "back to 7")
	if err != nil || c.Generation != 41 {
		t.Fatalf("Restore(7) = %+v, %v, want generation 41", c, err)
	}
	w.Checkout()
	w.Want(map[string]string{"n": "7", "keep": "kept"})
	if _, err := history.Restore(t.Context(), other.Repo(), ref, 99, ""); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Restore(99) = %v, want %v", err, state.ErrNotFound)
	}

	if _, err := history.Fork(t.Context(), other.Repo(), ref, 12, "copy", ""); err != nil {
		t.Fatal(err)
	}
	copied := statetest.NewWorker(t, bucket, state.Ref{Tenant: "acme", Workspace: "copy"}, state.Options{})
	copied.Checkout()
	copied.Want(map[string]string{"n": "12", "keep": "kept"})
	if _, err := history.Fork(t.Context(), other.Repo(), ref, 1, "copy", ""); !errors.Is(err, state.ErrConflict) {
		t.Errorf("Fork() onto a workspace = %v, want %v", err, state.ErrConflict)
	}
	if err := bucket.Violations(); err != nil {
		t.Error(err)
	}
}

// TestLostHead checks that a workspace whose HEAD is lost is an error for all that reads or deletes it.
func TestLostHead(t *testing.T) {
	bucket := mem.New()
	w := statetest.Committed(t, bucket, 3)
	statetest.Must(t, w.Store.Repo().Fold(t.Context(), ref))
	bucket.Damage(ref.HeadKey(), statetest.Gone)
	ctx := t.Context()
	for name, do := range map[string]func(*state.Store) error{
		"ReadInfo": func(s *state.Store) error { _, err := history.ReadInfo(ctx, s.Repo(), ref); return err },
		"Log":      func(s *state.Store) error { _, err := history.Log(ctx, s.Repo(), ref, 0); return err },
		"Diff":     func(s *state.Store) error { _, err := history.Diff(ctx, s.Repo(), ref, 1, 0); return err },
		"Restore":  func(s *state.Store) error { _, err := history.Restore(ctx, s.Repo(), ref, 1, ""); return err },
		"Fork":     func(s *state.Store) error { _, err := history.Fork(ctx, s.Repo(), ref, 0, "x", ""); return err },
		"Pin":      func(s *state.Store) error { return history.Pin(ctx, s.Repo(), ref, "x", 1) },
		"Delete":   func(s *state.Store) error { return history.Delete(ctx, s.Repo(), ref) },
		"List":     func(s *state.Store) error { _, err := s.List(ctx, ref, 0, ""); return err },
		"Open":     func(s *state.Store) error { _, _, err := history.Open(ctx, s.Repo(), ref, 0, "n"); return err },
		"Applied":  func(s *state.Store) error { _, err := s.Applied(ctx, ref, "task-1", time.Time{}); return err },
	} {
		if err := do(state.New(bucket, state.Options{})); !errors.Is(err, objects.ErrCorrupt) {
			t.Errorf("%s without HEAD = %v, want %v", name, err, objects.ErrCorrupt)
		}
	}
}

func TestFiles(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	content := statetest.Random(5, 10<<20)
	w.Checkout()
	w.Write("dir/large", content)
	w.Write("small", "hello")
	w.Commit("task-1")
	s := state.New(bucket, state.Options{})
	infos, err := s.List(t.Context(), ref, 0, "dir")
	if err != nil || len(infos) != 1 || infos[0].Path != "dir/large" || infos[0].Bytes != 10<<20 ||
		infos[0].Kind != "file" {
		t.Errorf("List(dir) = %+v, %v, want the large file", infos, err)
	}
	r, info, err := history.Open(t.Context(), s.Repo(), ref, 0, "dir/large")
	if err != nil || info.Bytes != 10<<20 {
		t.Fatalf("Open() = %+v, %v, want 10 MiB", info, err)
	}
	if _, err := r.Seek(-5<<20-3, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	bucket.Calls()
	part := make([]byte, 7)
	if _, err := io.ReadFull(r, part); err != nil || string(part) != content[5<<20-3:5<<20+4] {
		t.Errorf("range read differs, %v, want the content", err)
	}
	if calls := len(bucket.Calls()); calls > 2 {
		t.Errorf("%d requests for 7 bytes, want at most 2", calls)
	}
	r.Seek(0, io.SeekStart)
	all, err := io.ReadAll(r)
	if err != nil || string(all) != content {
		t.Errorf("read %d bytes, %v, want the whole file", len(all), err)
	}
	if _, _, err := history.Open(t.Context(), s.Repo(), ref, 0, "dir"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Open() of a directory = %v, want %v", err, state.ErrNotFound)
	}
}

func TestDelete(t *testing.T) {
	bucket := mem.New()
	w := statetest.Committed(t, bucket, 3)
	w.Checkout()
	w.Write("late", "1")
	if err := history.Delete(t.Context(), w.Store.Repo(), ref); err != nil {
		t.Fatal(err)
	}
	late := state.CommitOptions{TaskID: "late", Attempt: 1}
	if _, err := w.Store.Commit(t.Context(), w.Tree, late); !errors.Is(err, state.ErrDeleted) {
		t.Errorf("late Commit() = %v, want %v", err, state.ErrDeleted)
	}
	a, b := statetest.OpenWorker(t, bucket), statetest.OpenWorker(t, bucket)
	for _, x := range []*statetest.Worker{a, b} {
		if v := x.Checkout(); v.Files != 0 {
			t.Errorf("Checkout() after Delete = %+v, want it empty", v)
		}
	}
	a.Write("a", "1")
	b.Write("b", "1")
	a.Commit("new-a")
	b.Commit("new-b") // both checked out after the deletion
	a.Checkout()
	a.Want(map[string]string{"a": "1", "b": "1"})
	w.Checkout()
	w.Want(map[string]string{"a": "1", "b": "1"})
}

func TestQuota(t *testing.T) {
	bucket := mem.New()
	for name, c := range map[string]struct {
		quota state.Quota
		want  string
	}{
		"bytes":   {state.Quota{Bytes: 30}, "big/b (20)"},
		"largest": {state.Quota{Largest: 19}, "big/b (20)"},
		"files":   {state.Quota{Files: 4}, "big (3)"},
		"depth":   {state.Quota{Depth: 2}, "deep/er/x"},
	} {
		w := statetest.NewWorker(t, bucket, ref, state.Options{Quota: c.quota})
		w.Checkout()
		w.Write("big/b", strings.Repeat("b", 20))
		w.Write("big/c", strings.Repeat("c", 10))
		w.Write("big/d", "d")
		if name == "depth" {
			w.Write("deep/er/x", "")
		}
		bucket.Calls()
		_, err := w.Store.Commit(t.Context(), w.Tree, state.CommitOptions{TaskID: "t", Attempt: 1})
		if name == "files" && err == nil {
			w.Checkout()
			w.Write("one-more", "")
			_, err = w.Store.Commit(t.Context(), w.Tree, state.CommitOptions{TaskID: "t2", Attempt: 1})
		}
		var quota *state.QuotaError
		if !errors.As(err, &quota) || !errors.Is(err, state.ErrQuota) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Commit() = %v, want a QuotaError that names %s", name, err, c.want)
			continue
		}
		if calls := bucket.Calls(); len(calls) != 0 && name != "files" {
			t.Errorf("%s: %d requests before the error, want 0", name, len(calls))
		}
		if err := w.Store.Revert(t.Context(), w.Tree); err != nil {
			t.Errorf("Revert() = %v, want nil", err)
		}
	}
}

func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.Committed(t, bucket, 60)
		s := w.Store
		if err := history.Pin(t.Context(), s.Repo(), ref, "release", 5); err != nil {
			t.Fatal(err)
		}
		before := len(statetest.Keys(t, bucket))
		collect := func() maintenance.GCResult {
			out, err := maintenance.CollectGarbage(t.Context(), s.Repo(), "acme", maintenance.GCOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		if out := collect(); out.Marked != 0 || out.Removed != 0 {
			t.Errorf("CollectGarbage() of fresh objects = %+v, want nothing", out)
		}
		statetest.Advance(t, 10*24*time.Hour)
		w.Checkout()
		w.Write("n", "61")
		w.Commit("task-61")
		if out := collect(); out.Marked == 0 || out.Removed != 0 {
			t.Errorf("first CollectGarbage() = %+v, want marks and no removal", out)
		}
		if out := collect(); out.Removed != 0 {
			t.Errorf("second CollectGarbage() at once = %+v, want no removal", out)
		}
		statetest.Advance(t, 25*time.Hour)
		if out := collect(); out.Removed == 0 {
			t.Errorf("CollectGarbage() after the grace time = %+v, want removals", out)
		}
		if after := len(statetest.Keys(t, bucket)); after >= before {
			t.Errorf("%d objects are left of %d, want fewer", after, before)
		}
		fresh := state.New(bucket, state.Options{})
		report, err := maintenance.Check(t.Context(), fresh.Repo(), ref, maintenance.CheckOptions{ReadData: true})
		if err != nil || len(report.Problems) > 0 || report.Versions < 21 || report.Versions > 40 {
			t.Errorf("Check() = %+v, %v, want the newest 20 versions, those that they build on, and the pinned one",
				report, err)
		}
		if _, err := history.Restore(t.Context(), fresh.Repo(), ref, 5, "the pinned one"); err != nil {
			t.Errorf("Restore() of the pinned version = %v, want nil", err)
		}
		if _, err := history.Diff(t.Context(), fresh.Repo(), ref, 6, 0); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("Diff() with a collected version = %v, want %v", err, state.ErrNotFound)
		}
		if err := bucket.Violations(); err != nil {
			t.Error(err)
		}
	})
}

func TestCheckFindsDamage(t *testing.T) {
	bucket := mem.New()
	w := statetest.Committed(t, bucket, 2)
	var pack string
	for _, key := range statetest.Keys(t, bucket) {
		if strings.Contains(key, "/p/") {
			pack = key
		}
	}
	if err := bucket.Delete(t.Context(), pack); err != nil {
		t.Fatal(err)
	}
	report, err := maintenance.Check(t.Context(), w.Store.Repo(), ref, maintenance.CheckOptions{})
	if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0], pack) {
		t.Errorf("Check() without %s = %+v, %v, want one problem that names it", pack, report, err)
	}
}

// TestOldPrefetch checks that a checkout does not use a prefetched HEAD that has become too old.
func TestOldPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		a, b := statetest.OpenWorker(t, bucket), statetest.OpenWorker(t, bucket)
		prefetched := a.Store.Prefetch(t.Context(), ref)
		statetest.Advance(t, 2*time.Second)
		b.Checkout()
		b.Write("x", "1")
		b.Commit("task-1")
		v, err := a.Store.Checkout(t.Context(), a.Tree, prefetched)
		if got := a.Files()["x"]; err != nil || v.Generation != 1 || got != "1" {
			t.Errorf("Checkout() with a HEAD of 2 s ago = generation %d, %v, x is %q; want generation 1",
				v.Generation, err, got)
		}
	})
}
