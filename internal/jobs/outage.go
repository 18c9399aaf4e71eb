package jobs

import (
	"context"
	"log/slog"
)

// outage logs failures of repeated work, as during an outage of NATS: once when the work begins to fail, and once when
// it succeeds again.
type outage struct {
	log           *slog.Logger
	failed, again string // the messages
	failing       bool
}

// report logs the outcome of one attempt if it differs from that of the last one. An attempt that failed because ctx
// ended does not count.
func (o *outage) report(ctx context.Context, err error) {
	switch {
	case err != nil && ctx.Err() != nil:
		return
	case err != nil && !o.failing:
		o.log.WarnContext(ctx, o.failed, "error", err) //nolint:sloglint // a constant of the caller
	case err == nil && o.failing:
		o.log.InfoContext(ctx, o.again) //nolint:sloglint // a constant of the caller
	}
	o.failing = err != nil
}
