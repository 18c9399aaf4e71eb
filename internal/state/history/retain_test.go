package history_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/repo"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// readRetained reads file n of a generation as artifacts are read.
func readRetained(t *testing.T, bucket objects.Objects, generation int64) (string, error) {
	t.Helper()
	f, _, err := history.OpenRetained(t.Context(), state.New(bucket, state.Options{}).Repo(), ref, generation, "n")
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(f)
	return string(data), err
}

// fileOf reads a file of a workspace's newest version.
func fileOf(t *testing.T, r *repo.Repo, in state.Ref, path string) string {
	t.Helper()
	f, _, err := history.Open(t.Context(), r, in, 0, path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRetain checks that a retained version can be read until the promised time, whatever is committed and collected
// after it.
func TestRetain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.Committed(t, bucket, 60)
		const promised = 7 * 24 * time.Hour
		for _, g := range []int64{5, 6, 7} {
			if err := w.Store.Retain(t.Context(), ref, g, time.Now().Add(promised)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Store.Retain(t.Context(), ref, 61, time.Now()); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("Retain() of a missing version = %v, want %v", err, state.ErrNotFound)
		}
		collect := func() {
			t.Helper()
			if _, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme",
				maintenance.GCOptions{Retention: maintenance.Retention{Daily: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		for range 6 { // commits and garbage collection continue for six days
			statetest.Advance(t, 25*time.Hour)
			w.Checkout()
			w.Write("n", "later")
			w.Write("day", time.Now().String())
			w.Commit(time.Now().Format("task-02-15"))
			collect()
		}
		if _, err := readRetained(t, bucket, 20); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("read of a version that was not retained = %v, want %v", err, state.ErrNotFound)
		}
		for g, want := range map[int64]string{5: "5", 6: "6", 7: "7", 66: "later"} {
			if got, err := readRetained(t, bucket, g); got != want || err != nil {
				t.Errorf("file of generation %d = %q, %v, want %q", g, got, err, want)
			}
		}
		store := state.New(bucket, state.Options{}).Repo()
		if _, err := history.Fork(t.Context(), store, ref, 6, "again", ""); err != nil {
			t.Fatal(err)
		}
		if got := fileOf(t, store, state.Ref{Tenant: ref.Tenant, Workspace: "again"}, "n"); got != "6" {
			t.Errorf("file of the fork of generation 6 = %q, want 6", got)
		}
		if _, err := history.Fork(t.Context(), store, ref, 20, "gone", ""); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("fork of a version that was not retained = %v, want %v", err, state.ErrNotFound)
		}
		for range 3 {
			statetest.Advance(t, 25*time.Hour)
			collect()
		}
		if _, err := readRetained(t, bucket, 5); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("read after the promised time = %v, want %v", err, state.ErrNotFound)
		}
		report, err := maintenance.Check(t.Context(), state.New(bucket, state.Options{}).Repo(), ref,
			maintenance.CheckOptions{ReadData: true})
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("Check() = %+v, %v, want no problems", report, err)
		}
		if err := bucket.Violations(); err != nil {
			t.Error(err)
		}
	})
}

func TestRetainEndsWithTheWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.Committed(t, bucket, 3)
		if err := w.Store.Retain(t.Context(), ref, 2, time.Now().Add(30*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := history.Delete(t.Context(), w.Store.Repo(), ref); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			statetest.Advance(t, 25*time.Hour)
			if _, err := maintenance.CollectGarbage(t.Context(), w.Store.Repo(), "acme",
				maintenance.GCOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := readRetained(t, bucket, 2); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("file of a deleted workspace = %q, %v, want %v", got, err, state.ErrNotFound)
		}
	})
}
