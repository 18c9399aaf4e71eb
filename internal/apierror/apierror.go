// Package apierror is how the fleet says no: the one shape of an error at every door, and the one
// table from the queue's errors to it. It does not log and does not know who asked.
package apierror

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
)

// Error is a refusal. Its JSON is the body of every HTTP answer that is an error.
type Error struct {
	Code    string `json:"code"`            // stable, for programs
	Message string `json:"message"`         // what happened
	Cause   string `json:"cause,omitempty"` // why
	Hint    string `json:"hint,omitempty"`  // what to do next
	Path    string `json:"path,omitempty"`  // JSON Pointer into the request, or the name of a header or parameter
	// Paths are the files of a workspace that it is about.
	Paths []string `json:"paths,omitempty"`
	// Status is the HTTP status, and RetryAfter the seconds after which the same request may succeed
	// (0: it will not, or nobody knows).
	Status     int `json:"-"`
	RetryAfter int `json:"-"`
}

func (e *Error) Error() string {
	if e.Cause == "" {
		return e.Code + ": " + e.Message
	}
	return e.Code + ": " + e.Message + ": " + e.Cause
}

// New returns a refusal with a message and the HTTP status of its code.
func New(code, format string, args ...any) *Error {
	return &Error{Status: errcode.HTTPStatus(code), Code: code, Message: fmt.Sprintf(format, args...)}
}

// Of makes a refusal of an error of package jobs. What it does not know is an answer that the queue
// did not give: 503, and the caller may try again. It leaves out the text of such an error, which
// may name hosts; the caller logs it.
func Of(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if r, ok := errors.AsType[*jobs.RefusedError](err); ok {
		e := &Error{Status: errcode.HTTPStatus(r.Code), Code: r.Code, Message: r.Message, Path: r.Path, Hint: r.Hint}
		if e.Path == "/" { // how jobs writes the whole; as a JSON Pointer it would be a field without a name
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
			Hint: "ended tasks are kept for some days only",
		}
	case errors.Is(err, jobs.ErrKeyReused):
		return &Error{
			Status: http.StatusConflict, Code: errcode.OtherData, Message: "this source and key were used for another task",
			Hint: "use a new id or idempotency key for a new task",
		}
	case errors.Is(err, jobs.ErrBacklogFull):
		return &Error{
			Status: http.StatusTooManyRequests, Code: errcode.BacklogFull, Message: "too many tasks of this tenant are waiting",
			Hint: "try again later, or add workers", RetryAfter: 5,
		}
	case errors.Is(err, context.Canceled):
		return &Error{
			Status: http.StatusServiceUnavailable, Code: errcode.Stopping, Message: "the request was cut short",
			Hint: "send it again", RetryAfter: 1,
		}
	}
	return &Error{
		Status: http.StatusServiceUnavailable, Code: errcode.Unavailable, Message: "the queue did not answer",
		Hint: "try again; submissions with an idempotency key or event id are safe to repeat", RetryAfter: 1,
	}
}

// ofAnswer is the refusal of an answer for a tool call that does not wait for it.
func ofAnswer(a *jobs.AnswerError) *Error {
	e := New(jobs.AnswerCode(a), "%s", a.Message)
	if errors.Is(a, jobs.ErrApprovalNotFound) {
		e.Hint = "GET /v1/approvals (codefleet approvals) lists what waits"
	}
	return e
}
