package worker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// Several workers delete unneeded objects and an inactive workspace, and keep the rest.
func TestCleaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := mem.New()
		store := state.New(objects, state.Options{})
		fill(t, store, "main", 25)
		fill(t, store, "old", 2)

		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		c := Cleaning{Tenants: []string{"acme", "other"}, Every: 6 * time.Hour, Collect: maintenance.GCOptions{
			Retention: maintenance.Retention{Newest: 1, All: time.Hour, Daily: -1}, Inactive: 10 * 24 * time.Hour,
		}}
		for range 3 {
			workers.Go(func() { c.run(ctx, state.New(objects, state.Options{}), slog.New(slog.DiscardHandler)) })
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
		for info, err := range objects.List(t.Context(), "acme/w/old/", "") {
			if err != nil || !strings.HasSuffix(info.Key, "/HEAD") {
				t.Errorf("object of the inactive workspace = %s, %v, want only HEAD", info.Key, err)
			}
		}
		for range objects.List(t.Context(), "other/w/", "") {
			t.Error("a tenant without workspaces has an object")
		}
		if err := objects.Violations(); err != nil {
			t.Error(err)
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
