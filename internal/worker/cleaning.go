package worker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
)

// Cleaning is a worker's part in the garbage collection of workspaces. All workers of a fleet take part,
// without a leader: for each tenant and interval, one of them collects.
type Cleaning struct {
	Tenants []string
	Every   time.Duration // interval; 0: never
	Collect maintenance.GCOptions
}

// firstClean is the longest time before a new worker tries for the first time.
const firstClean = time.Minute

// run collects when it is due, until ctx ends. Workers try at different times.
func (c Cleaning) run(ctx context.Context, store *state.Store, log *slog.Logger) {
	if c.Every <= 0 || len(c.Tenants) == 0 {
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
		for _, tenant := range c.Tenants {
			c.clean(ctx, store, tenant, log)
		}
		next.Reset(c.Every/4 + spread(c.Every/4))
	}
}

func spread(d time.Duration) time.Duration {
	return rand.N(max(1, d)) //nolint:gosec // no secret
}

// clean logs errors: the next collection does what this one did not.
func (c Cleaning) clean(ctx context.Context, store *state.Store, tenant string, log *slog.Logger) {
	out, ours, err := maintenance.CollectIfDue(ctx, store.Repo(), tenant, c.Every, c.Collect)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.WarnContext(ctx, "garbage collection failed", "tenant", tenant, "error", err)
	case ours:
		log.InfoContext(ctx, "workspaces cleaned", "tenant", tenant, "workspaces", out.Workspaces,
			"inactive", out.Inactive, "purged", out.Purged,
			"marked", out.Marked, "removed", out.Removed, "bytes", out.Bytes, "compacted", out.Compacted)
	}
}
