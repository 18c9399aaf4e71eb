package worker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
)

// Cleaning is a worker's share in removing what workspaces no longer need. All workers of a fleet do
// it and none leads: for each tenant, one of them collects in a turn.
type Cleaning struct {
	Tenants []string
	Every   time.Duration // from one turn to the next; 0: never
	Collect maintenance.GCOptions
}

// firstClean is how long a worker that starts waits at most before it looks whether it is its turn.
const firstClean = time.Minute

// run looks now and then, at times that differ from worker to worker, until ctx ends.
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
	return rand.N(max(1, d)) //nolint:gosec // spreads workers, hides nothing
}

// clean never stops the worker: what one run leaves is the next one's.
func (c Cleaning) clean(ctx context.Context, store *state.Store, tenant string, log *slog.Logger) {
	out, ours, err := maintenance.CollectIfDue(ctx, store.Repo(), tenant, c.Every, c.Collect)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.WarnContext(ctx, "cleaning of workspaces broke off", "tenant", tenant, "error", err)
	case ours:
		log.InfoContext(ctx, "workspaces cleaned", "tenant", tenant, "workspaces", out.Workspaces, "inactive", out.Inactive, "purged", out.Purged,
			"marked", out.Marked, "removed", out.Removed, "bytes", out.Bytes, "emptied", out.Emptied)
	}
}
