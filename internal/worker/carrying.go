package worker

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/schemas"
)

// Carrying says whether HEADs of workspaces may carry commits. Workers of older versions cannot read such HEADs, so all
// live workers must be known to read them.
type Carrying struct{ allowed atomic.Bool }

// carryingEvery is the interval at which the presences are read. A worker publishes its presence when it starts, while
// its first box is created, so that the other workers know its version before it reads a HEAD.
const carryingEvery = time.Second

// Allowed reports whether HEADs may carry commits, because all live workers can read such HEADs.
func (c *Carrying) Allowed() bool { return c != nil && c.allowed.Load() }

// follow reads the presences of all workers until ctx ends or stop is called. While they are unknown, Allowed returns
// false.
func (c *Carrying) follow(
	ctx context.Context, workers func(context.Context) ([]schemas.Worker, error),
) (stop func()) {
	if c == nil {
		return func() {}
	}
	return clock.Repeat(ctx, carryingEvery, func() {
		limited, cancel := context.WithTimeout(ctx, carryingEvery)
		defer cancel()
		live, err := workers(limited)
		c.allowed.Store(err == nil && allReadCarried(live))
	})
}

func allReadCarried(workers []schemas.Worker) bool {
	old := func(w schemas.Worker) bool { return !w.ReadsCarried }
	return len(workers) > 0 && !slices.ContainsFunc(workers, old)
}
