package worker

import (
	"context"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
)

// ledger is a pipeline.Ledger. It keeps the number of spent tokens in the queue, by tenant and UTC day.
type ledger struct {
	queue *jobs.Client
	limit func(tenant string) int
}

// Left returns how many tokens the tenant may still spend today.
func (l ledger) Left(ctx context.Context, tenant string) (left int, unlimited bool, err error) {
	limit := l.limit(tenant)
	if limit <= 0 {
		return 0, true, nil
	}
	spent, err := l.queue.Spent(ctx, tenant, time.Now())
	return max(0, limit-spent), false, err
}

// Spend adds tokens, even for a tenant without a limit, because one may be set later in the day.
func (l ledger) Spend(ctx context.Context, tenant string, tokens int) error {
	_, err := l.queue.Spend(ctx, tenant, time.Now(), tokens)
	return err
}
