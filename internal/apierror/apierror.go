// Package apierror defines the errors of all interfaces of the fleet, and translates errors of the queue into them.
// It does not log.
package apierror

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
)

// Error is an error with a code. Its JSON is the body of every HTTP error response.
type Error struct {
	Code    string `json:"code"`            // stable, for programs
	Message string `json:"message"`         // what happened
	Cause   string `json:"cause,omitempty"` // why
	Hint    string `json:"hint,omitempty"`  // what to do next
	Path    string `json:"path,omitempty"`  // JSON Pointer into the request, or the name of a header or parameter
	// Paths are the files of a workspace that the error is about.
	Paths []string `json:"paths,omitempty"`
	// Status is the HTTP status. RetryAfter is in how many seconds the same request may succeed; 0 if it will not,
	// or if that is unknown.
	Status     int `json:"-"`
	RetryAfter int `json:"-"`
}

func (e *Error) Error() string {
	if e.Cause == "" {
		return e.Code + ": " + e.Message
	}
	return e.Code + ": " + e.Message + ": " + e.Cause
}

// New returns an error with the HTTP status of its code.
func New(code, format string, args ...any) *Error {
	return &Error{Status: errcode.HTTPStatus(code), Code: code, Message: fmt.Sprintf(format, args...)}
}

// Of translates an error of package jobs. Any other error means that the queue did not respond: status 503, and
// the request may be repeated. The result does not contain the text of such an error, which may name hosts; the
// caller logs it.
func Of(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if r, ok := errors.AsType[*jobs.RefusedError](err); ok {
		e := &Error{Status: errcode.HTTPStatus(r.Code), Code: r.Code, Message: r.Message, Path: r.Path, Hint: r.Hint}
		if e.Path == "/" { // the whole document in jobs, but as a JSON Pointer the field with an empty name
			e.Path = ""
		}
		return e
	}
	if a, ok := errors.AsType[*jobs.AnswerError](err); ok {
		return ofAnswer(a)
	}
	switch {
	case errors.Is(err, jobs.ErrUnknownTask):
		return &Error{
			Status: http.StatusNotFound, Code: errcode.UnknownTask, Message: "there is no such task",
			Hint: "check the id; ended tasks are deleted after some days",
		}
	case errors.Is(err, jobs.ErrKeyReused):
		return &Error{
			Status:  http.StatusConflict,
			Code:    errcode.OtherData,
			Message: "this source and idempotency key belong to a task with other content",
			Hint:    "use a new event id or idempotency key for a new task",
		}
	case errors.Is(err, jobs.ErrBacklogFull):
		return &Error{
			Status:     http.StatusTooManyRequests,
			Code:       errcode.BacklogFull,
			Message:    "the tenant has too many queued tasks",
			Hint:       "try again later, or ask the operator for more workers",
			RetryAfter: 5,
		}
	case errors.Is(err, context.Canceled):
		return &Error{
			Status:     http.StatusServiceUnavailable,
			Code:       errcode.Stopping,
			Message:    "the process stopped before the request was complete",
			Hint:       "send the request again",
			RetryAfter: 1,
		}
	}
	return &Error{
		Status: http.StatusServiceUnavailable, Code: errcode.Unavailable, Message: "the queue does not respond",
		Hint: "try again; a submission with an idempotency key or event id is safe to repeat", RetryAfter: 1,
	}
}

// ofAnswer translates the error of an answer to a call that is not pending.
func ofAnswer(a *jobs.AnswerError) *Error {
	e := New(jobs.AnswerCode(a), "%s", a.Message)
	if errors.Is(a, jobs.ErrApprovalNotFound) {
		e.Hint = "codefleet approvals (GET /v1/approvals) lists pending calls"
	}
	return e
}
