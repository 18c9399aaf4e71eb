package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Handler runs one task. A result completes the task with the result's Status; jobs fills in the fields that it
// knows (ids, attempt, worker, times, timing_ms.queued and total). An error means that the fleet could not run
// the task: it is requeued with back-off while attempts are left, and ends dead after that. The result is
// recorded after Handler returns, so if the worker is lost in between, a later run repeats the work.
type Handler func(ctx context.Context, j *Job) (*schemas.Result, error)

// WorkerOptions configure a Worker. Handler is required.
type WorkerOptions struct {
	Name     string        // unique in the fleet; default: host name and a random suffix
	Pools    []string      // default: "default"
	Slots    int           // tasks at once; default 1
	AckWait  time.Duration // must be the same in the whole fleet; default: the client's
	Attempts int           // limit for tasks that set none; default 3
	Policy   Policy        // default: the client's
	Tenants  Tenants
	Handler  Handler
	Log      *slog.Logger // default: the client's
	Hooks
}

// Hooks are functions that a Worker calls besides its Handler. Each may be nil.
type Hooks struct {
	Info func() schemas.Worker // added to the worker's presence

	// Drain is called once when an operator has ordered the worker to drain. It should end Run's context accept, and
	// later its context work. Without Drain, the worker ignores the order.
	Drain func()

	// Prepare is called before the claim of a task's first run is written. It may start to read what the
	// run needs, without side effects because the claim may fail, and must return at once. It returns the
	// run's handler, or nil for Handler. stop ends the reads and waits for them; jobs calls it once, after
	// the handler or instead of it.
	Prepare func(ctx context.Context, rec schemas.Record) (handler Handler, stop func())

	// Fence returns the result that a run of the task has committed. If none has, it ensures that no run can commit any
	// more, and returns nil. It is called, perhaps repeatedly, before a task that has run is completed, unless the
	// task's first run returned the result. If Fence is nil, runs do not commit.
	Fence func(ctx context.Context, j *Job) (*schemas.Result, error)

	// Ended is called with each ended task of a workflow run, before the task's message is acknowledged. After
	// an error the message is delivered again, and Ended called again; it may also be called again after a crash.
	Ended func(ctx context.Context, rec schemas.Record) error

	SessionText SessionText

	// Catalogue returns the catalogue version for a tenant's task that is being claimed. The record keeps
	// it for all runs of the task. If Catalogue is nil or returns "", no version is recorded.
	Catalogue func(ctx context.Context, tenant string) string
}

// Tenants selects whose tasks a Worker claims, and which first.
type Tenants struct {
	// Accept reports whether the worker claims the tenant's tasks. Nil accepts all tenants.
	Accept func(tenant string) bool
	// Declined are the known tenants that Accept rejects, for lists of workers.
	Declined []string
	// SettingsOnly makes the worker claim no tasks of tenants that operators have created at run time.
	SettingsOnly bool

	// Warm returns the tenants that have an idle box while a task of any other tenant would have to wait
	// for a new one. Their tasks go first, but the tenant whose turn it is waits at most 250 ms for them.
	// With many tenants, these delays add up. If Warm is nil or returns an empty map, tenants take turns.
	Warm func() map[string]bool
}

// Worker claims tasks and runs them.
type Worker struct {
	opts    WorkerOptions
	c       *Client
	log     *slog.Logger
	host    string
	started time.Time
	lanes   *lanes
	leases  *leases
	tally   tally

	busy     atomic.Int64 // slots in use
	draining atomic.Bool
	ordered  atomic.Bool // whether an operator has ordered the worker to drain
}

const defaultAttempts = 3

// NewWorker returns a worker that Run starts.
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
	if opts.Tenants.Warm == nil {
		opts.Tenants.Warm = func() map[string]bool { return nil }
	}
	opts.Log = cmp.Or(opts.Log, c.opts.Log)
	w := &Worker{
		opts: opts, c: c, host: host, started: time.Now().UTC(),
		log: opts.Log.With("worker", opts.Name),
	}
	w.lanes = &lanes{c: c, ackWait: opts.AckWait, maxRunning: w.maxRunning, consumers: map[lane]bool{}}
	w.leases = &leases{c: c, worker: opts.Name, ackWait: opts.AckWait, log: w.log, held: map[string]*lease{}}
	return w
}

// limitsOf returns the limits of a tenant that apply now.
func (w *Worker) limitsOf(tenant string) schemas.TenantLimits {
	return w.c.controls.Load().limitsOf(w.opts.Policy, tenant)
}

// maxRunning returns how many tasks of a tenant may run at once in a lane.
func (w *Worker) maxRunning(tenant string) int {
	if limit := w.limitsOf(tenant).MaxRunning; limit != nil {
		return *limit
	}
	return defaultMaxRunning
}

// weight returns the tenant's share of the slots in relation to other tenants.
func (w *Worker) weight(tenant string) float64 {
	if weight := w.limitsOf(tenant).Weight; weight != nil {
		return float64(*weight)
	}
	return 1
}

// accepts reports whether this worker claims messages of a lane. Besides those of its pools and tenants, it accepts
// messages that a tenant may not send: any worker can refuse them, and perhaps none serves their pool.
func (w *Worker) accepts(l lane) bool {
	if w.opts.Policy == nil {
		return w.runs(l, false)
	}
	p, ok := w.opts.Policy(l.tenant)
	created := !ok && w.c.controls.Load().hasTenant(l.tenant)
	if slices.Contains(w.opts.Pools, l.pool) {
		return w.runs(l, created)
	}
	return !ok && !created || len(p.Pools) > 0 && !slices.Contains(p.Pools, l.pool)
}

// runs reports whether this worker may run tasks of a lane. created is whether an operator has created the tenant at
// run time.
func (w *Worker) runs(l lane, created bool) bool {
	return slices.Contains(w.opts.Pools, l.pool) && (!created || !w.opts.Tenants.SettingsOnly) &&
		(w.opts.Tenants.Accept == nil || w.opts.Tenants.Accept(l.tenant))
}

// logError logs err, if it is not nil, with msg.
func (w *Worker) logError(ctx context.Context, msg string, err error) {
	if err != nil {
		w.log.WarnContext(ctx, msg, "error", err) //nolint:sloglint // msg is a constant of the caller
	}
}
