package broker

import (
	"context"

	"github.com/codefleet/codefleet/internal/errcode"
)

// rate waits until the tenant's rate permits another call of the tool, or fails with the hook's error.
func rate(cfg Config) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		if cfg.Hooks.Rate == nil {
			return next(ctx, c)
		}
		if err := cfg.Hooks.Rate(ctx, c.def.Names()); err != nil {
			return Result{}, fail(c, errcode.OverBudget, "the call waited for the tenant's rate of calls: %s", err)
		}
		return next(ctx, c)
	}
}
