package broker

import (
	"cmp"
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools"
)

// upstream makes the call and converts its errors.
func upstream(cfg Config) handler {
	return func(ctx context.Context, c Call) (Result, error) {
		res, err := cfg.Upstream(ctx, tools.Request{
			Server: c.Server, Tool: c.Tool, Tenant: cfg.Task.Tenant, Session: cfg.Task.Session, Args: c.Args,
			Hash: c.def.Hash, Repeatable: c.def.Annotations.Repeatable(), Progress: c.Progress,
		})
		if err == nil {
			return Result{raw: &res}, nil
		}
		conv := &converter{cfg: cfg, call: c}
		err = upstreamError(ctx, conv, err)
		return Result{files: conv.files}, err
	}
}

var reasonCodes = map[tools.Reason]string{
	tools.Down: errcode.Unavailable, tools.Lost: errcode.Unavailable, tools.Timeout: errcode.Timeout,
	tools.TooLarge: errcode.ResultTooLarge,
	tools.Drifted:  errcode.ToolChanged, tools.Refused: errcode.ToolFailed, tools.Protocol: errcode.Unavailable,
}

func upstreamError(ctx context.Context, conv *converter, err error) error {
	u, ok := errors.AsType[*tools.UpstreamError](err)
	if !ok {
		if ctx.Err() != nil {
			return context.Cause(ctx) // the call may have been made
		}
		return err
	}
	c := conv.call
	e := fail(c, cmp.Or(reasonCodes[u.Reason], errcode.Unavailable), "%v", u.Err)
	e.Sent = u.Sent
	switch u.Reason {
	case tools.Drifted:
		e.Hint = "an operator must generate the tools again, and approve the change"
		if c.def.State == tools.Registered {
			e.Hint = "submit the task again: it will use the definition that the tenant's processes register now"
		}
	case tools.Lost, tools.Timeout, tools.TooLarge, tools.Protocol:
		if u.Sent && c.def.Annotations.Mutates() {
			e.Hint = "the call may have taken effect"
		}
	case tools.Refused: // the server wrote the message
		e.Message = cmp.Or(quoted(ctx, conv.cfg, c, e.Message), withoutMessage)
		return conv.attach(ctx, e, tools.Result{Structured: u.Data})
	case tools.Down:
	}
	return e
}
