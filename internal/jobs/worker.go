package jobs

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/schemas"
)

// Causes with which the context of a Handler ends. After ErrLeaseLost the task may already run
// elsewhere: drop everything and commit nothing. After the others the handler may still return the
// result of what it has; with an error jobs writes the fitting one itself.
var (
	ErrCancelled = errors.New("cancelled by its owner")
	ErrLeaseLost = errors.New("lease lost")
	ErrDeadline  = errors.New("expiry time passed")
	ErrDraining  = errors.New("worker is shutting down") // the task goes back to the queue, uncounted
)

// Permanent marks an error of the fleet that another attempt would meet again: the task ends dead.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Handler runs one task. A result ends the task with the result's Status (jobs fills in the fields
// that it knows: ids, attempt, worker, times, timing_ms.queued and total). An error means that the
// fleet could not run it: it is tried again with back-off while attempts are left, then the task is
// dead. The result is recorded, published and acknowledged after Handler returns; what Handler has
// committed itself must bear being committed by a later attempt again.
type Handler func(ctx context.Context, j *Job) (*schemas.Result, error)

// WorkerOptions configure a Worker. Handler is required.
type WorkerOptions struct {
	Name     string        // unique in the fleet; default: host name and a random suffix
	Pools    []string      // default: "default"
	Slots    int           // tasks at once; default 1
	AckWait  time.Duration // default: the client's. The same in the whole fleet
	Attempts int           // runs of a task that says nothing about it; default 3
	Policy   Policy        // default: the client's
	Handler  Handler
	Info     func() WorkerInfo // what presence shows beyond what the Worker knows; may be nil
	Log      *slog.Logger      // default: the client's
}

// Job is one run of one task, for its Handler.
type Job struct {
	Task       schemas.Task
	Record     schemas.Record // as claimed; SaveProgram keeps it up to date
	Event      event.Event    // without data
	FirstClaim time.Time      // of the first run: when effects of this task can have begun

	w *Worker
}
