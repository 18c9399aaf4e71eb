package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools"
)

// Error is why a program did not get an answer. It becomes a ToolError in Python.
type Error struct {
	Server  string `json:"server"`
	Tool    string `json:"tool"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do next
	Sent    bool   `json:"sent"`           // the tool may have been called
}

// Error does not name server and tool: Python's ToolError does.
func (e *Error) Error() string {
	if e.Hint != "" {
		return e.Message + " (" + e.Hint + ")"
	}
	return e.Message
}

func fail(c Call, code string, format string, args ...any) *Error {
	return &Error{Server: c.Server, Tool: c.Tool, Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) hint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// asError makes an *Error of whatever a layer returned.
func asError(ctx context.Context, c Call, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if u, ok := errors.AsType[*tools.UnknownError](err); ok {
		return fail(c, errcode.Unknown, "%v", u)
	}
	return fail(c, errcode.Internal, "%v", err)
}
