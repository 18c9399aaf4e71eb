package broker

import (
	"context"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools"
)

// definition checks that the definition for which the program was written is the approved one. The
// upstream checks that the server still lists it.
func definition(cfg Config) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		t, err := cfg.Catalogue.Lookup(c.Server, c.Tool)
		switch {
		case err != nil:
			return Result{}, unknown(cfg, c)
		case t.State == tools.Local:
			return Result{}, fail(c, errcode.Unknown, "this tool is a Python function, not an MCP tool").
				hint("%s", t.Import())
		case t.State == tools.Pending:
			return Result{}, fail(c, errcode.Forbidden, "this tool is not approved").
				hint("an operator must approve it: tools approve %s", t.ID())
		case t.State == tools.Changed:
			return Result{}, toolChanged(c, t, "its definition changed after it was approved").
				hint("an operator must approve the change: tools approve %s", t.ID())
		case c.Hash != "" && c.Hash != t.Hash:
			return Result{}, toolChanged(c, t, "the program was written for a different definition").
				hint("the module has the current definition: %s", t.Import())
		}
		c.def = t
		return next(ctx, c)
	}
}

func toolChanged(c Call, t tools.Tool, what string) *Error {
	return fail(c, errcode.ToolChanged, "%s; it is now %s", what, t.Signature)
}
