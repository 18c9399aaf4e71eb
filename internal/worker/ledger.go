package worker

import (
	"context"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
)

// ledger is a pipeline.Ledger: it counts tokens by tenant and day of UTC, in the queue's server.
type ledger struct {
	queue *jobs.Client
	limit func(tenant string) int
}

// Left returns what the tenant has not spent today.
func (l ledger) Left(ctx context.Context, tenant string) (left int, unlimited bool, err error) {
	limit := l.limit(tenant)
	if limit <= 0 {
		return 0, true, nil
	}
	spent, err := l.queue.Spent(ctx, tenant, time.Now())
	return max(0, limit-spent), false, err
}

// Spend adds tokens. Those of a tenant without a limit count too, for a limit that is set later.
func (l ledger) Spend(ctx context.Context, tenant string, tokens int) error {
	_, err := l.queue.Spend(ctx, tenant, time.Now(), tokens)
	return err
}
