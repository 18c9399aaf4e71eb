// Package apierror defines the errors that all interfaces of the fleet return, and translates errors of package jobs
// into them. It does not log.
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
	Cause   string `json:"cause,omitempty"` // why it happened
	Hint    string `json:"hint,omitempty"`  // what to do next
	Path    string `json:"path,omitempty"`  // JSON Pointer into the request, or the name of a header or parameter
	// Paths are the files of a workspace that caused the error.
	Paths []string `json:"paths,omitempty"`
	// Status is the HTTP status.
	Status int `json:"-"`
	// RetryAfter is the number of seconds after which the same request may succeed. It is 0 if that is unknown or the
	// request will not succeed.
	RetryAfter int `json:"-"`
}

func (e *Error) Error() string {
	if e.Cause == "" {
		return e.Code + ": " + e.Message
	}
	return e.Code + ": " + e.Message + ": " + e.Cause
}

// New returns an error with the HTTP status that belongs to the code. With 429 and 503, RetryAfter is 1.
func New(code, format string, args ...any) *Error {
	e := &Error{Status: errcode.HTTPStatus(code), Code: code, Message: fmt.Sprintf(format, args...)}
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		e.RetryAfter = 1
	}
	return e
}

// Of returns an *Error unchanged, translates an error of package jobs, and reports a cancelled context as stopping.
// Any other error means that the queue did not respond: the result has status 503, and the request may be repeated.
// The result omits the text of such an error, which may contain host names. The caller logs the text.
func Of(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if r, ok := errors.AsType[*jobs.RefusedError](err); ok {
		e := New(r.Code, "%s", r.Message)
		e.Path, e.Hint = r.Path, r.Hint
		if e.Path == "/" { // package jobs means the whole document; as a JSON Pointer, "/" is a field without a name
			e.Path = ""
		}
		return e
	}
	if a, ok := errors.AsType[*jobs.ApprovalError](err); ok {
		e := New(jobs.AnswerCode(a), "%s", a.Message)
		if errors.Is(a, jobs.ErrApprovalNotFound) {
			e.Hint = "GET /v1/approvals lists pending calls"
		}
		return e
	}
	if n, ok := errors.AsType[*jobs.NotRetryableError](err); ok {
		e := New(errcode.NotRetryable, "%s", n.Reason)
		e.Hint = n.Hint
		return e
	}
	if n, ok := errors.AsType[*jobs.NotRedrivableError](err); ok {
		e := New(errcode.NotRedrivable, "%s", n.Reason)
		e.Hint = n.Hint
		return e
	}
	switch {
	case errors.Is(err, jobs.ErrUnknownTask):
		return &Error{
			Status: http.StatusNotFound, Code: errcode.UnknownTask, Message: "the task does not exist",
			Hint: "check the id; ended tasks are deleted after some days",
		}
	case errors.Is(err, jobs.ErrKeyReused):
		return &Error{
			Status: http.StatusConflict, Code: errcode.OtherData,
			Message: "another task already has this source and idempotency key",
			Hint:    "use a new event id or idempotency key for a new task",
		}
	case errors.Is(err, jobs.ErrBacklogFull):
		return &Error{
			Status: http.StatusTooManyRequests, Code: errcode.BacklogFull, RetryAfter: 5,
			Message: "the tenant has too many queued tasks",
			Hint:    "try again later, or ask the operator for more workers",
		}
	case errors.Is(err, jobs.ErrStorageFull):
		return &Error{
			Status: http.StatusTooManyRequests, Code: errcode.StorageFull, RetryAfter: 60,
			Message: "the large data of the tenant's unfinished tasks fills its share of the queue's storage",
			Hint:    "wait until tasks have ended, pass large data in a workspace, or ask the operator for more",
		}
	case errors.Is(err, context.Canceled):
		return &Error{
			Status: http.StatusServiceUnavailable, Code: errcode.Stopping, RetryAfter: 1,
			Message: "the process stopped before the request was complete",
			Hint:    "send the request again",
		}
	case errors.Is(err, jobs.ErrIndexing):
		return &Error{
			Status: http.StatusServiceUnavailable, Code: errcode.Unavailable, RetryAfter: 1,
			Message: "tasks cannot be listed yet: " + jobs.ErrIndexing.Error(), Hint: "try again",
		}
	}
	return &Error{
		Status: http.StatusServiceUnavailable, Code: errcode.Unavailable, Message: "the queue does not respond",
		Hint: "try again; a submission with an idempotency key or event id is safe to repeat", RetryAfter: 1,
	}
}
