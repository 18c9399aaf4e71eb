package broker

import (
	"context"
	"encoding/json"

	"github.com/codefleet/codefleet/internal/errcode"
)

// restore replaces privacy tokens with their values, for tools that may receive them.
func restore(h Hooks) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		if h.Restore == nil {
			return next(ctx, c)
		}
		args, err := h.Restore(ctx, c)
		if err != nil {
			return Result{}, fail(c, errcode.Forbidden, "%v", err)
		}
		if !json.Valid(args) {
			return Result{}, fail(c, errcode.Internal, "the privacy filter returned invalid JSON")
		}
		c.Args = args
		return next(ctx, c)
	}
}
