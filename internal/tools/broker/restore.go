package broker

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/codefleet/codefleet/internal/errcode"
)

// restore replaces privacy tokens in the arguments with their values, for tools that may receive them. In the errors of
// the later layers, it replaces the values with tokens again.
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
		r, err := next(ctx, c)
		if err != nil {
			err = withoutValues(ctx, h, c, asError(ctx, c, err))
		}
		return r, err
	}
}

// withoutValues returns an error whose texts have privacy tokens in place of values.
func withoutValues(ctx context.Context, h Hooks, c Call, err error) error {
	failure, ok := errors.AsType[*Error](err)
	if !ok || h.Tokenise == nil {
		return err
	}
	out := *failure
	out.Message, out.Hint = tokenText(ctx, h, c, out.Message), tokenText(ctx, h, c, out.Hint)
	return &out
}

const leftOut = "(left out: personal data in this text could not be replaced)"

// tokenText returns a text with privacy tokens in place of values.
func tokenText(ctx context.Context, h Hooks, c Call, text string) string {
	data, err := json.Marshal(text)
	if err == nil {
		data, err = h.Tokenise(ctx, c, data)
	}
	if err != nil || json.Unmarshal(data, &text) != nil {
		return leftOut
	}
	return text
}
