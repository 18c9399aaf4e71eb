package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/tools"
)

// Error is why a program did not get an answer. It becomes a ToolError in Python.
type Error struct {
	Server  string `json:"server"`
	Tool    string `json:"tool"`
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do next
	Sent    bool   `json:"sent"`           // the tool may have been called
}

// Code classifies an Error, for programs.
type Code string

// The codes of an Error.
const (
	ToolFailed   Code = "tool_failed"       // the tool itself said so
	Unknown      Code = "unknown"           // no such tool, or argument
	BadArguments Code = "bad_arguments"     // they do not fit the schema
	Forbidden    Code = "forbidden"         // the task may not use the tool, or not so
	Approval     Code = "approval_required" // somebody has to say yes, and nobody could be asked
	ToolChanged  Code = "tool_changed"      // the definition is not the approved one
	OverBudget   Code = "over_budget"       // too many calls, bytes, or too much time
	InDoubt      Code = "in_doubt"          // an earlier attempt may have made the call
	Unavailable  Code = "unavailable"       // the server could not be reached, or answered badly
	TimedOut     Code = "timeout"           // the tool did not answer in time
	TooLarge     Code = "result_too_large"  // the answer is over the limit
	Internal     Code = "internal"          // the fleet failed
)

// Error does not name server and tool: Python's ToolError does.
func (e *Error) Error() string {
	if e.Hint != "" {
		return e.Message + " (" + e.Hint + ")"
	}
	return e.Message
}

func fail(c Call, code Code, format string, args ...any) *Error {
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
		return fail(c, Unknown, "%v", u)
	}
	return fail(c, Internal, "%v", err)
}
