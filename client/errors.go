package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/schemas"
)

// ErrNotEnded is returned by Result for a task that is still queued or running.
var ErrNotEnded = errors.New("the task has not ended")

// APIError is an error with which the fleet refused a request. Its JSON is the body of every HTTP error
// response; docs/errors.md lists the codes.
type APIError struct {
	Code    string `json:"code"`            // stable, for programs: bad_data, unknown_task, unauthorized, …
	Message string `json:"message"`         // what happened
	Cause   string `json:"cause,omitempty"` // why
	Hint    string `json:"hint,omitempty"`  // what to do next
	Path    string `json:"path,omitempty"`  // JSON Pointer into the request, or the name of a header or parameter
	// Paths are the files of a workspace that the error is about.
	Paths []string `json:"paths,omitempty"`
	// Status is the HTTP status; over NATS, the one that HTTP would have had. RetryAfter is in how many seconds
	// the same request may succeed; 0 if it will not, or if that is unknown.
	Status     int `json:"-"`
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

// TaskError is the error of ExecuteTask for a task that ended without success.
type TaskError struct {
	TaskID string
	Status Status
	Detail schemas.Error
}

func (e *TaskError) Error() string {
	return fmt.Sprintf("task %s: %s", e.Status, e.Detail.Message)
}
