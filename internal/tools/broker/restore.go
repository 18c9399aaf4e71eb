package broker

import (
	"context"
	"encoding/json"

	"github.com/codefleet/codefleet/internal/errcode"
)

// restore puts values in the place of privacy tokens, for tools that may have them.
func restore(h Hooks) func(handler) handler {
	return func(next handler) handler {
		return func(ctx context.Context, c Call) (Result, error) {
			if h.Restore == nil {
				return next(ctx, c)
			}
			args, err := h.Restore(ctx, c)
			if err != nil {
				return Result{}, fail(c, errcode.Forbidden, "%v", err)
			}
			if !json.Valid(args) {
				return Result{}, fail(c, errcode.Internal, "the privacy filter left no JSON")
			}
			c.Args = args
			return next(ctx, c)
		}
	}
}
