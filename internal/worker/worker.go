// Package worker is one worker, wired: a pool of warm sandboxes, the pipeline that runs a task in
// one of them, and the loop that takes tasks from the queue. It keeps nothing that matters: a worker
// may be killed at any moment, and its tasks run elsewhere.
package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/pluginhost"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/schemas"
)

// Options are what a worker is made of. Join, Driver and Pool.Dir are required.
type Options struct {
	Name        string                              // unique in the fleet
	Version     string                              // of the program, for lists
	Pools       []string                            // that it takes tasks from
	Slots       int                                 // tasks at a time
	Attempts    int                                 // runs of a task that says nothing about it
	AckWait     time.Duration                       // the same in the whole fleet
	Limits      func(tenant string) executor.Limits // of a task that says nothing about them; nil: the executor's
	Policy      jobs.Policy                         // nil: the queue client's
	Serves      func(tenant string) bool            // whose tasks it takes; nil: everybody's
	Pool        executor.PoolOptions                // Owner and Log default to the worker's
	Driver      executor.Driver
	Join        Join
	Live        *Live                                  // a directory kept in step with a workspace; nil: none
	Tools       pipeline.Tools                         // Journal and Audit default to those of the queue
	Index       func(*tools.Listing) *toolsearch.Index // of the tools
	Writer      *codegen.Writer                        // nil: programs are written by rules
	Models      map[string]*codegen.Writer             // those that a task may name, by profile
	Repairs     int                                    // of a program of a model's
	TaskTokens  int                                    // of models, that one task may spend; 0: any
	DailyTokens func(tenant string) int                // of models, in a day of UTC, in the whole fleet; nil, and 0: any
	Log         *slog.Logger
	Tracer      trace.TracerProvider
	Meter       metric.MeterProvider
	Ready       func() // called once, when a task would run at once

	Network egress.Options // of runs that may use it

	Cleaning Cleaning        // the worker's share of it; zero: none
	Plugins  *pluginhost.Set // nil: none
}

// mirrorTimeout is how long a worker that stops waits for the mirror of its last commits. The next commit mirrors what
// is left.
const mirrorTimeout = 10 * time.Second

// Join reaches the fleet. It is called once, while the first sandboxes are made.
type Join func(context.Context) (Fleet, error)

// Fleet is what a worker shares with others.
type Fleet struct {
	Queue  *jobs.Client
	Store  *state.Store
	Mirror *mirror.Mirror // of Store; nil: there is none
}

// Run takes and runs tasks until take ends, then lets those that it has end; when work ends too, they
// are cut and go back to the queue uncounted. At last it destroys its sandboxes. It returns an error
// when sandboxes cannot be made on this host or the queue is gone for good.
func Run(take, work context.Context, opts Options) error {
	opts = opts.orDefaults()
	pool, err := executor.NewPool(opts.Driver, opts.Pool)
	if err != nil {
		return err
	}
	unregister, err := observe(opts.Meter.Meter("codefleet/worker"), pool)
	if err != nil {
		return err
	}
	defer unregister()

	boxes, closePool := context.WithCancel(context.WithoutCancel(take))
	defer closePool()
	take, stopTaking := context.WithCancel(take)
	defer stopTaking()
	var poolErr error
	var running sync.WaitGroup
	running.Go(func() {
		poolErr = pool.Run(boxes)
		stopTaking() // without boxes there is nothing to take tasks for
	})
	fleet, err := opts.Join(take)
	if err == nil {
		taking := make(chan struct{}) // closed once tasks are taken: a live folder is imported by then
		running.Go(func() {
			for _, part := range []<-chan struct{}{pool.Ready(), taking} {
				select {
				case <-part:
				case <-boxes.Done():
					return
				}
			}
			opts.Ready()
		})
		running.Go(func() { opts.Cleaning.run(take, fleet.Store, opts.Log) })
		err = opts.loop(take, work, pool, fleet.Queue, fleet.Store, func() { close(taking) })
		stopTaking()
	}
	closePool()
	running.Wait()
	mirrored, cancel := context.WithTimeout(context.WithoutCancel(take), mirrorTimeout)
	defer cancel()
	fleet.Mirror.Close(mirrored)
	return cmp.Or(poolErr, err)
}

func (o Options) orDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Slots = max(1, o.Slots)
	if o.Tracer == nil {
		o.Tracer = nooptrace.NewTracerProvider()
	}
	if o.Meter == nil {
		o.Meter = noopmetric.NewMeterProvider()
	}
	if o.Limits == nil {
		o.Limits = func(string) executor.Limits { return executor.Limits{} }
	}
	if o.Ready == nil {
		o.Ready = func() {}
	}
	o.Pool.Owner = cmp.Or(o.Pool.Owner, o.Name)
	o.Pool.Log = cmp.Or(o.Pool.Log, o.Log)
	o.Pool.Max = cmp.Or(o.Pool.Max, o.Slots+o.Pool.TotalReady())
	return o
}

// loop takes tasks until take ends and waits for those it has. It calls taking when it begins to.
func (o Options) loop(take, work context.Context, pool *executor.Pool, queue *jobs.Client, store *state.Store, taking func()) error {
	if o.Tools.Audit == nil {
		o.Tools.Audit = audit{queue, o.Log}
	}
	if o.Tools.Journal == nil {
		o.Tools.Journal = journal{queue}
	}
	story := pipeline.New(pipeline.Stages{
		Pool: pool, Store: store, Tools: o.Tools, Index: o.Index, History: toolsearch.NewHistory(queue, o.Log),
		Writer: o.Writer, Models: o.Models, Repairs: o.Repairs, TaskTokens: o.TaskTokens, Ledger: o.ledger(queue),
		Limits: o.Limits, Network: o.Network, Log: o.Log, Trace: o.Tracer.Tracer("codefleet/pipeline"), Plugins: o.Plugins,
	})
	live := state.Ref{}
	handle := story.Handle
	if o.Live != nil {
		folder, err := openLive(take, *o.Live, store, o.Log)
		if err != nil {
			return err
		}
		following, stop := context.WithCancel(take)
		var run sync.WaitGroup
		run.Go(func() { folder.run(following) })
		defer func() { stop(); run.Wait(); _ = folder.close() }()
		live, handle = o.Live.Ref, folder.around(handle)
	}
	w := jobs.NewWorker(queue, jobs.WorkerOptions{
		Name: o.Name, Pools: o.Pools, Slots: o.Slots, Attempts: o.Attempts, AckWait: o.AckWait,
		Policy: o.Policy, Tenants: jobs.Tenants{Accept: o.Serves, Warm: pool.WarmTenants}, Handler: handle, Log: o.Log,
		Info: func() schemas.Worker { return info(o.Version, pool) }, Catalogue: o.pin, Prepare: prefetchExcept(live, story),
	})
	var warming sync.WaitGroup // the first task is not to wait for the catalogue, while the first sandbox is made
	warming.Go(func() { o.pin(take, "") })
	defer warming.Wait()
	taking()
	if err := w.Run(take, work); err != nil {
		return fmt.Errorf("worker %s: %w", o.Name, err)
	}
	return nil
}

// prefetchExcept returns the pipeline's Prepare for all workspaces but live: the live folder is imported
// into that one after the claim, so a prefetched HEAD would be outdated.
func prefetchExcept(live state.Ref, p *pipeline.Pipeline) func(context.Context, schemas.Record) (jobs.Handler, func()) {
	return func(ctx context.Context, rec schemas.Record) (jobs.Handler, func()) {
		if (state.Ref{Tenant: rec.Tenant, Workspace: rec.Workspace}) == live {
			return nil, func() {}
		}
		return p.Prepare(ctx, rec)
	}
}

// pin names the tools that a task begun now uses. Without an answer the task is none the worse: it
// takes them when it runs.
func (o Options) pin(ctx context.Context, tenant string) string {
	if o.Tools.Catalogue == nil {
		return ""
	}
	version, _, err := o.Tools.Catalogue.Current(ctx, tenant)
	if err != nil {
		o.Log.WarnContext(ctx, "catalogue not read", "tenant", tenant, "error", err)
	}
	return version
}

// info is what the fleet's lists show of this worker's sandboxes.
func info(version string, pool *executor.Pool) schemas.Worker {
	box, s := pool.Info(), pool.Stats()
	out := schemas.Worker{
		Version: version,
		Sandbox: map[string]any{
			"driver": box.Driver, "engine_version": box.EngineVersion, "tier": box.Tier,
			"limits": box.Limits, "environment": box.Environment, "multi_tenant": box.MultiTenant,
		},
		Boxes: map[string]int{
			"warming": s.Warming, "ready": s.Ready, "bound": s.Bound, "acquired": s.Acquired,
			"waiting": s.Waiting, "max": s.Max,
		},
	}
	for _, e := range pool.Environments() {
		out.Environments = append(out.Environments, schemas.Environment{
			Name: e.Name, What: e.Description, Packages: e.Modules, Error: e.LastError, Reason: string(e.LastReason), Restored: e.Restored, MadeMS: float64(e.CreateTime.Microseconds()) / 1000,
			Boxes: map[string]int{"warming": e.Warming, "ready": e.Ready, "bound": e.Bound, "acquired": e.Acquired, "waiting": e.Waiting, "waiting_memory": e.WaitingMemory},
		})
	}
	if s.LastError != "" {
		out.Extra = map[string]any{"error": s.LastError, "reason": string(s.LastReason)}
	}
	return out
}
