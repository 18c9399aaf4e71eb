package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/schemas"
)

// ErrNotEnded is returned by Result for a task that is queued, running, or waiting for a retry.
var ErrNotEnded = errors.New("the task has not ended")

// APIError is the error of a request that the fleet or the client refused, or to which a server that is not a fleet
// responded. Its JSON is the body of an HTTP error response. docs/errors.md lists the codes.
type APIError struct {
	Code    string `json:"code"`            // stable: bad_data, unknown_task, unauthorized, …
	Message string `json:"message"`         // what happened
	Cause   string `json:"cause,omitempty"` // why it happened
	Hint    string `json:"hint,omitempty"`  // what the caller can do
	Path    string `json:"path,omitempty"`  // a JSON Pointer into the request, or the name of a header or parameter
	// Paths are the files of a workspace that the error concerns.
	Paths []string `json:"paths,omitempty"`
	// Status is the HTTP status. Over NATS it is the status that the HTTP interface would have sent.
	Status int `json:"-"`
	// RetryAfter is the number of seconds after which the same request may succeed. It is 0 if that is unknown or the
	// request will not succeed.
	RetryAfter int `json:"-"`
}

func (e *APIError) Error() string {
	s := e.Code + ": "
	if e.Path != "" && !strings.HasPrefix(e.Message, e.Path) { // many messages begin with the path
		s += e.Path + ": "
	}
	s += e.Message
	if e.Cause != "" {
		s += ": " + e.Cause
	}
	return s
}

// OptionsError is the error of Locate, LocateNATS and New for a fleet.json, an address or credentials that cannot be
// used.
type OptionsError struct {
	message string
	err     error // its cause, if any
}

func (e *OptionsError) Error() string {
	if e.err == nil {
		return e.message
	}
	return e.message + ": " + e.err.Error()
}

func (e *OptionsError) Unwrap() error { return e.err }

func badOptions(format string, args ...any) error {
	return &OptionsError{message: fmt.Sprintf(format, args...)}
}

// TaskError is the error of Execute and ExecuteTask for a task that ended without success.
type TaskError struct {
	TaskID string
	Status Status
	Detail schemas.Error
}

func (e *TaskError) Error() string {
	return fmt.Sprintf("task %s: %s", e.Status, e.Detail.Message)
}
