package broker

import (
	"context"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools"
)

// definition checks that what the program was written against is what somebody has approved. That
// the server still means the same is checked with the call itself, on its connection.
func definition(cfg Config) func(handler) handler {
	return func(next handler) handler {
		return func(ctx context.Context, c Call) (Result, error) {
			t, err := cfg.Catalogue.Lookup(c.Server, c.Tool)
			switch {
			case err != nil:
				return Result{}, err
			case t.State == tools.Local:
				return Result{}, fail(c, errcode.Unknown, "this tool is a Python function, not an MCP tool").hint("%s", t.Import())
			case t.State == tools.Pending:
				return Result{}, fail(c, errcode.Forbidden, "nobody has approved this tool").hint("codefleet tools approve %s", t.ID())
			case t.State == tools.Changed:
				return Result{}, toolChanged(c, t, "its definition was changed after it was approved")
			case c.Hash != "" && c.Hash != t.Hash:
				return Result{}, toolChanged(c, t, "the program was written for another definition")
			}
			c.def = t
			return next(ctx, c)
		}
	}
}

func toolChanged(c Call, t tools.Tool, what string) *Error {
	return fail(c, errcode.ToolChanged, "%s; it is now %s", what, t.Signature).hint("codefleet tools approve %s shows the difference", t.ID())
}
