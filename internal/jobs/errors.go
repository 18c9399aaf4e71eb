package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Errors of Connect, Submit and the methods that read a record.
var (
	ErrUnknownTask  = errors.New("unknown task")
	ErrBacklogFull  = errors.New("backlog of the tenant is full")              // try again later
	ErrStorageFull  = errors.New("storage of the tenant in the queue is full") // try again when tasks have ended
	ErrKeyReused    = errors.New("the task exists with different data")
	ErrServerTooOld = errors.New("NATS server is older than supported") // see MinServer
)

// Causes with which a Handler's context ends. After ErrLeaseLost the task may already run elsewhere: commit
// nothing. After the others the handler may still return a result. If it returns an error, the result follows
// from the cause.
var (
	ErrCancelled = errors.New("cancelled by its owner")
	ErrLeaseLost = errors.New("lease lost")
	ErrExpired   = errors.New("expiry time passed")
	ErrDraining  = errors.New("worker is shutting down") // the task is requeued; the run is not an attempt
)

// Permanent marks an error of the fleet that every further attempt would encounter too: the task ends dead.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// Unavailable marks an error that occurred before the task began to execute and that another worker, or this one
// later, may not encounter. The task is requeued until it can begin; such runs are not attempts.
func Unavailable(err error) error { return &unavailableError{err} }

type unavailableError struct{ error }

func (e *unavailableError) Unwrap() error { return e.error }

func isUnavailable(err error) bool {
	_, ok := errors.AsType[*unavailableError](err)
	return ok
}

// WithDetails adds details to an error of the fleet: the error that the task's result reports once no attempt is left.
// Until then the task is retried as after any other error.
func WithDetails(err error, details schemas.Error) error { return &detailedError{err, details} }

type detailedError struct {
	error
	details schemas.Error
}

func (e *detailedError) Unwrap() error { return e.error }

// RefusedError says why a request, such as an event that is to become a task, is refused. Nothing was stored. Code is
// one of package errcode.
type RefusedError struct {
	Code    string
	Message string
	Path    string // JSON Pointer into the data, or the name of an attribute; "" for the whole event
	Hint    string
}

// NotRedrivableError says why a task cannot be redriven. Nothing was changed.
type NotRedrivableError struct{ Reason, Hint string }

func (e *NotRedrivableError) Error() string { return e.Reason }

func refuse(code, path, format string, args ...any) *RefusedError {
	return &RefusedError{Code: code, Path: path, Message: fmt.Sprintf(format, args...)}
}

func (e *RefusedError) Error() string { return e.Code + ": " + e.text() }

// text returns the message, prefixed with the path unless it begins with it already.
func (e *RefusedError) text() string {
	if e.Path == "" || strings.HasPrefix(e.Message, e.Path) {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

func (e *RefusedError) asError() *schemas.Error {
	return &schemas.Error{Code: e.Code, Message: text.Truncate(e.text(), maxText), Hint: e.Hint}
}

// logged returns the text for the log of an error about an event that is not a task. It omits the message of a refusal,
// which may contain values of the event.
func logged(err error) string {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Code + ": " + cmp.Or(refused.Path, "the event")
	}
	return err.Error()
}

// spanStatus returns the text of an error for a trace. It omits the message of a refusal, which may contain values of
// the event.
func spanStatus(err error) string {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Code
	}
	return err.Error()
}

// maxText bounds the text of an error in a record, in bytes.
const maxText = 1000
