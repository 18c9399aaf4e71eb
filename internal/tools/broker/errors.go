package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools"
)

// Error is the reason why a program got no result. In Python it becomes a ToolError.
type Error struct {
	Server  string `json:"server"`
	Tool    string `json:"tool"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do next
	Sent    bool   `json:"sent"`           // the call may have taken effect

	// What the tool sent with its error: structured content, and a list of all content blocks. Both may be nil.
	Structured json.RawMessage `json:"structured,omitempty"`
	Content    json.RawMessage `json:"content,omitempty"`
}

// Error omits server and tool, because Python's ToolError adds them.
func (e *Error) Error() string {
	if e.Hint != "" {
		return e.Message + " (" + e.Hint + ")"
	}
	return e.Message
}

// size returns the bytes of what the tool sent with the error, without its files. It is 0 for nil.
func (e *Error) size() int {
	if e == nil {
		return 0
	}
	return len(e.Structured) + len(e.Content)
}

func fail(c Call, code string, format string, args ...any) *Error {
	return &Error{Server: c.Server, Tool: c.Tool, Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) hint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// markSent marks an *Error as one that occurred after the call was made.
func markSent(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Sent = true
	}
	return err
}

// asError converts a layer's error to an *Error or the cause of ctx.
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
