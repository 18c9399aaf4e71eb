package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Causes with which the context of a Handler ends. After ErrLeaseLost the task may already run
// elsewhere: drop everything and commit nothing. After the others the handler may still return the
// result of what it has; with an error jobs writes the fitting one itself.
var (
	ErrCancelled = errors.New("cancelled by its owner")
	ErrLeaseLost = errors.New("lease lost")
	ErrExpired   = errors.New("expiry time passed")
	ErrDraining  = errors.New("worker is shutting down") // the task goes back to the queue, uncounted
)

// Permanent marks an error of the fleet that every further attempt would meet too: the task ends dead.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// WithDetails adds to an error of the fleet what the task's result says when no attempt is left: what is
// wrong and what to do about it. The task is retried like after any other error.
func WithDetails(err error, details schemas.Error) error { return &detailedError{err, details} }

type detailedError struct {
	err     error
	details schemas.Error
}

func (e *detailedError) Error() string { return e.err.Error() }
func (e *detailedError) Unwrap() error { return e.err }

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
	Attempts int           // of a task that sets no limit; default 3
	Policy   Policy        // default: the client's
	Tenants  Tenants
	Handler  Handler
	Info     func() schemas.Worker // added to the worker's presence; may be nil
	Log      *slog.Logger          // default: the client's

	// Prepare is called before the claim of a task's first run is written and returns that run's handler
	// (nil: Handler), which may use what Prepare began to read meanwhile. It must return at once, and what
	// it begins must have no effect: the claim may fail. stop ends it and waits for its end; jobs calls it
	// once, after the handler or instead of it. Prepare may be nil.
	Prepare func(ctx context.Context, rec schemas.Record) (handler Handler, stop func())

	// Catalogue returns the version of the catalogue for a tenant's task that is claimed now. The record
	// keeps it for all runs of the task. nil, or an empty version: nothing is recorded.
	Catalogue func(ctx context.Context, tenant string) string
}

// Tenants selects whose tasks a Worker claims, and which first.
type Tenants struct {
	// Accept reports whether the worker claims the tenant's tasks; others are left to other workers.
	// nil: all.
	Accept func(tenant string) bool

	// Warm returns the tenants that have an idle box while a task of any other tenant would have to wait
	// for a new one. Their tasks may overtake the tenant whose turn it is for 250 ms at most; with many
	// tenants, these delays add up. nil, or an empty map: tenants take turns.
	Warm func() map[string]bool
}

// Worker takes tasks and runs them.
type Worker struct {
	opts    WorkerOptions
	c       *Client
	log     *slog.Logger
	host    string
	started time.Time
	lanes   *lanes

	// unfenced makes a worker complete and claim whatever the record says by now. Only the tests of
	// this package can set it, to prove that they can fail.
	unfenced bool

	mu      sync.Mutex
	leases  map[string]*lease // by tenant.task, of what runs
	busy    int
	drained bool
}

const defaultAttempts = 3

// NewWorker returns a worker that has not started.
func NewWorker(c *Client, opts WorkerOptions) *Worker {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	opts.Name = cmp.Or(opts.Name, host+"-"+strings.ToLower(rand.Text()[:6]))
	if len(opts.Pools) == 0 {
		opts.Pools = []string{defaultPool}
	}
	opts.Slots = max(1, opts.Slots)
	opts.AckWait = cmp.Or(opts.AckWait, c.opts.AckWait)
	opts.Attempts = cmp.Or(opts.Attempts, defaultAttempts)
	if opts.Policy == nil {
		opts.Policy = c.opts.Policy
	}
	opts.Log = cmp.Or(opts.Log, c.opts.Log)
	w := &Worker{
		opts: opts, c: c, host: host, started: time.Now().UTC(),
		log:    opts.Log.With("worker", opts.Name),
		leases: map[string]*lease{},
	}
	w.lanes = &lanes{c: c, ackWait: opts.AckWait, limit: w.limit, made: map[lane]bool{}}
	return w
}

func (w *Worker) warmTenants() map[string]bool {
	if w.opts.Tenants.Warm == nil {
		return nil
	}
	return w.opts.Tenants.Warm()
}

// limit is how many tasks of a tenant may run at once in a lane.
func (w *Worker) limit(tenant string) int {
	if w.opts.Policy != nil {
		if p, _ := w.opts.Policy(tenant); p.MaxRunning > 0 {
			return p.MaxRunning
		}
	}
	return defaultCap
}

// Run takes and runs tasks until take ends, then finishes what it has. When work ends too (it should
// outlive take by the grace time), handlers are cut with ErrDraining and their tasks go back to the
// queue. Run returns when everything is settled.
func (w *Worker) Run(take, work context.Context) error {
	if w.opts.Handler == nil {
		return errors.New("worker without a handler")
	}
	for _, pool := range w.opts.Pools {
		if err := schemas.CheckName("pool", pool); err != nil {
			return err
		}
	}
	f, err := newFeed(w)
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.opts.Name, err)
	}
	defer f.close()
	unserve, err := w.c.serveApprovals()
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.opts.Name, err)
	}
	defer unserve()
	stop, cancel := context.WithCancel(context.WithoutCancel(take))
	var side sync.WaitGroup
	defer side.Wait()
	defer cancel() // presence goes on while tasks are finished
	side.Go(func() { w.present(stop) })
	side.Go(func() { f.scan(take) })
	side.Go(func() { w.promote(take) })
	f.dispatch(take, work)
	w.logged(work, "unsubscribe", w.lanes.close())
	return nil
}
