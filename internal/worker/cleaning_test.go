package worker

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
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
)

// Several workers delete unneeded objects and an inactive workspace, and keep the rest.
func TestCleaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		store := state.New(bucket, state.Options{})
		fill(t, store, "main", 25)
		fill(t, store, "old", 2)

		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		created := func() []string { return []string{"acme"} }
		c := Cleaning{Tenants: []string{"other"}, Every: 6 * time.Hour, Collect: maintenance.GCOptions{
			Retention: maintenance.Retention{Newest: 1, All: time.Hour, Daily: -1}, Inactive: 10 * 24 * time.Hour,
		}}
		for range 3 {
			workers.Go(func() {
				c.run(ctx, state.New(bucket, state.Options{}), created, slog.New(slog.DiscardHandler))
			})
		}
		for range 15 { // days; main is in use
			<-time.After(24 * time.Hour)
			fill(t, store, "main", 1)
		}
		cancel()
		workers.Wait()
		ref := state.Ref{Tenant: "acme", Workspace: "main"}
		if log, err := history.Log(t.Context(), store.Repo(), ref, 0); err != nil || len(log) == 0 || len(log) > 20 {
			t.Errorf("Log(main) = %d versions, %v, want 1 to 20 of 40", len(log), err)
		}
		if files, err := store.List(t.Context(), ref, 0, ""); err != nil || len(files) != 1 {
			t.Errorf("List(main) = %v, %v, want one file", files, err)
		}
		var old []string
		for info, err := range bucket.List(t.Context(), "acme/w/old/", "") {
			if err != nil {
				t.Fatal(err)
			}
			old = append(old, strings.TrimPrefix(info.Key, "acme/w/old/"))
		}
		if !slices.Equal(old, []string{"HEAD"}) {
			t.Errorf("objects of the inactive workspace = %q, want only HEAD", old)
		}
		for range bucket.List(t.Context(), "other/w/", "") {
			t.Error("a tenant without workspaces has an object, want none")
		}
		if err := bucket.Violations(); err != nil {
			t.Errorf("Violations() = %v, want nil", err)
		}
	})
}

// slowTenant is an object store that never lists the objects of the tenant "slow".
type slowTenant struct{ *mem.Objects }

func (s slowTenant) List(ctx context.Context, prefix, after string) iter.Seq2[objects.ObjectInfo, error] {
	if prefix != "slow/" {
		return s.Objects.List(ctx, prefix, after)
	}
	return func(yield func(objects.ObjectInfo, error) bool) {
		<-ctx.Done()
		yield(objects.ObjectInfo{}, ctx.Err())
	}
}

// A tenant whose garbage collection never ends does not keep other tenants waiting.
func TestCleaningIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		store := state.New(slowTenant{bucket}, state.Options{})
		fill(t, store, "main", 25)
		ctx, cancel := context.WithCancel(t.Context())
		var worker sync.WaitGroup
		c := Cleaning{Tenants: []string{"slow", "acme"}, Every: time.Hour, Collect: maintenance.GCOptions{
			Retention: maintenance.Retention{Newest: 1, All: time.Minute, Daily: -1}, Grace: time.Hour,
		}}
		worker.Go(func() { c.run(ctx, store, func() []string { return nil }, slog.New(slog.DiscardHandler)) })
		<-time.After(5 * time.Hour)
		cancel()
		worker.Wait()
		ref := state.Ref{Tenant: "acme", Workspace: "main"}
		fresh := state.New(bucket, state.Options{})
		if log, err := history.Log(t.Context(), fresh.Repo(), ref, 0); err != nil || len(log) > 4 {
			t.Errorf("Log() = %d versions, %v, want at most 4", len(log), err)
		}
	})
}

// fill commits n versions of one file.
func fill(t *testing.T, store *state.Store, workspace string, n int) {
	t.Helper()
	tree, err := store.Tree(t.TempDir(), state.Ref{Tenant: "acme", Workspace: workspace})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for i := range n {
		if _, err := store.Checkout(t.Context(), tree, nil); err != nil {
			t.Fatal(err)
		}
		if err := tree.WriteFile("file", fmt.Append(nil, time.Now(), i), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Commit(t.Context(), tree, state.CommitOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
