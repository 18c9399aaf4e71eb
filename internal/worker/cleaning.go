package worker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
)

// Cleaning is a worker's part in the garbage collection of workspaces. All workers of a fleet take part,
// without a leader: for each tenant and interval, one of them collects.
type Cleaning struct {
	Tenants []string      // tenants in the settings
	Every   time.Duration // interval; 0 disables collection
	Collect maintenance.GCOptions
}

const (
	firstClean    = time.Minute // a new worker first tries to collect within this time
	cleanParallel = 2           // tenants whose garbage is collected at once
	// cleanLimit bounds the collection of one tenant, so that other tenants have their turn. An
	// interrupted collection keeps its progress.
	cleanLimit = 15 * time.Minute
)

// run collects the garbage of c.Tenants and of the tenants that created() lists, when it is due, until ctx ends. The
// delays are random, so that workers try at different times.
func (c Cleaning) run(ctx context.Context, store *state.Store, created func() []string, log *slog.Logger) {
	if c.Every <= 0 {
		return
	}
	next := time.NewTimer(min(firstClean, c.Every)/2 + spread(min(firstClean, c.Every)/2))
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
		tenants := slices.Concat(c.Tenants, created())
		slices.Sort(tenants)
		c.cleanAll(ctx, store, slices.Compact(tenants), log)
		next.Reset(c.Every/4 + spread(c.Every/4))
	}
}

// cleanAll collects the garbage of the tenants, in random order.
func (c Cleaning) cleanAll(ctx context.Context, store *state.Store, tenants []string, log *slog.Logger) {
	var collecting errgroup.Group
	collecting.SetLimit(cleanParallel)
	for _, i := range rand.Perm(len(tenants)) { //nolint:gosec // no secret
		collecting.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, cleanLimit)
			defer cancel()
			c.clean(limited, store, tenants[i], log)
			return nil
		})
	}
	_ = collecting.Wait() // no function returns an error
}

// spread returns a random part of d, so that workers do not begin at the same time.
func spread(d time.Duration) time.Duration {
	return rand.N(max(1, d)) //nolint:gosec // no secret
}

// clean collects a tenant's garbage if it is due. It only logs errors: the next collection does the rest.
func (c Cleaning) clean(ctx context.Context, store *state.Store, tenant string, log *slog.Logger) {
	out, collected, err := maintenance.CollectIfDue(ctx, store.Repo(), tenant, c.Every, c.Collect)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case err != nil:
		log.WarnContext(ctx, "garbage collection failed", "tenant", tenant, "error", err)
	case collected:
		log.InfoContext(ctx, "garbage collected", "tenant", tenant, "workspaces", out.Workspaces,
			"inactive", out.Inactive, "purged", out.Purged,
			"marked", out.Marked, "removed", out.Removed, "bytes", out.Bytes, "compacted", out.Compacted)
	}
}
