// Package worker runs one worker: a pool of warm boxes, the pipeline that runs a task in one of them, and
// the loop that claims tasks from the queue. It keeps no state that matters: a worker may be killed at any
// moment, and its tasks run elsewhere. The key function is Run.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"

	"github.com/codefleet/codefleet/internal/automation"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

// Parts are the dependencies and settings of a worker. Pipeline.Pool and Join are required.
type Parts struct {
	Version string // codefleet's version, shown in lists of workers

	// Queue configures which tasks the worker claims. Run sets Handler, Prepare, Fence, Ended, Catalogue, Info,
	// SessionText if Pipeline.Privacy is set, and Tenants.Warm.
	Queue jobs.WorkerOptions

	// Pipeline runs the tasks. Run sets the parts that need the fleet: Store, Queue, Tools.History,
	// Codegen.Ledger if DailyTokens is set, and Tools.Journal and Tools.Audit if they are nil.
	Pipeline pipeline.Parts

	DailyTokens func(tenant string) int // limit of model tokens per UTC day; nil or 0 means no limit
	Join        Join
	Live        *Live    // a live folder; may be nil
	Cleaning    Cleaning // the worker's part in garbage collection; the zero value takes no part
	Meter       metric.MeterProvider

	WebhookNetworks []netip.Prefix // private networks in which webhooks may be

	Ready func() // called once, as soon as a task would start without delay; may be nil
}

// Join connects to the fleet. Run calls it once, while the first boxes are created.
type Join func(context.Context) (Fleet, error)

// Fleet is what the workers of a fleet share.
type Fleet struct {
	Queue  *jobs.Client
	Store  *state.Store
	Mirror *mirror.Mirror // mirror of Store's workspaces; may be nil
	// Carrying says whether HEADs may carry commits: its method Allowed is the option Carry of Store. If Carrying is
	// nil, they never may.
	Carrying *Carrying
}

// mirrorTime bounds how long a stopping worker waits until its last commits are mirrored, and foldTime until they are
// folded. The next commit mirrors and folds the rest.
const (
	mirrorTime = 10 * time.Second
	foldTime   = 3 * time.Second
)

// Run claims and runs tasks until accept ends, then waits for running tasks. When work ends too, they are
// interrupted and requeued, and the interrupted runs do not count as attempts. Finally Run destroys the
// boxes. It returns an error if boxes cannot be created on this host, the worker cannot join the fleet, or the
// live folder cannot be opened.
func Run(accept, work context.Context, p Parts) error {
	if p.Ready == nil {
		p.Ready = func() {}
	}
	p.Pipeline.Log = cmp.Or(p.Pipeline.Log, slog.New(slog.DiscardHandler))
	pool := p.Pipeline.Pool
	meters := cmp.Or(p.Meter, metric.MeterProvider(noopmetric.NewMeterProvider()))
	unregister, err := observe(meters.Meter("codefleet/worker"), pool)
	if err != nil {
		return err
	}
	defer unregister()

	late, cancel := clock.After(work, 2*jobs.FinishTime)
	defer cancel()
	boxes, closePool := context.WithCancel(context.WithoutCancel(accept))
	defer closePool()
	accept, stopClaiming := context.WithCancel(accept)
	defer stopClaiming()
	var poolErr error
	var running sync.WaitGroup
	running.Go(func() {
		poolErr = pool.Run(boxes)
		stopClaiming() // without boxes no task can run
	})
	fleet, err := p.Join(accept)
	fold := func(context.Context) {}
	if err == nil {
		fold = fleet.Store.Repo().StartFolding()
		defer fleet.Carrying.follow(boxes, fleet.Queue.Workers)()
		claiming := make(chan struct{}) // closed when claiming starts, after the live folder was imported
		running.Go(func() {
			for _, part := range []<-chan struct{}{pool.Ready(), claiming} {
				select {
				case <-part:
				case <-boxes.Done():
					return
				}
			}
			p.Ready()
		})
		running.Go(func() { p.Cleaning.run(accept, fleet.Store, fleet.Queue.CreatedTenants, p.Pipeline.Log) })
		runs := engine.New(fleet.Queue, p.Pipeline.Log)
		runs.Retain = retainVersion(fleet.Store)
		running.Go(func() { automation.New(fleet.Queue, runs, p.WebhookNetworks, p.Pipeline.Log).Run(accept) })
		err = p.claim(accept, work, fleet, runs, func() { close(claiming) })
		stopClaiming()
	}
	closePool()
	running.Wait()
	folding, stopFolding := context.WithTimeout(late, foldTime)
	defer stopFolding()
	fold(folding)
	mirroring, stopMirroring := context.WithTimeout(late, mirrorTime)
	defer stopMirroring()
	fleet.Mirror.Close(mirroring)
	return cmp.Or(poolErr, err)
}

// claim claims and runs tasks until accept ends, then waits for running tasks. It calls claiming just before
// it claims the first.
func (p Parts) claim(accept, work context.Context, fleet Fleet, runs *engine.Engine, claiming func()) error {
	tasks := pipeline.New(p.pipelineParts(fleet, runs))
	live := state.Ref{}
	handle := tasks.Handle
	if p.Live != nil {
		dir, err := openLive(accept, *p.Live, fleet.Store, tasks.Log)
		if err != nil {
			return err
		}
		following, cancel := context.WithCancel(accept)
		stop := clock.Repeat(following, liveInterval, func() { dir.export(following) })
		defer func() { cancel(); stop(); _ = dir.folder.Close() }()
		live, handle = p.Live.Ref, dir.withSync(handle)
	}
	o := p.Queue
	o.Ended = runs.TaskEnded
	o.Handler, o.Prepare, o.Fence, o.Catalogue = handle, prefetchExcept(live, tasks), tasks.Fence, p.catalogueVersion
	o.Info = func() schemas.Worker { return presence(p.Version, p.Pipeline.Pool) }
	if p.Pipeline.Privacy != nil {
		o.SessionText = p.Pipeline.Privacy.Replacer
	}
	o.Tenants.Warm = p.Pipeline.Pool.WarmTenants
	w := jobs.NewWorker(fleet.Queue, o)
	var prefetch sync.WaitGroup // reads the catalogue while the first box is created
	prefetch.Go(func() { p.catalogueVersion(accept, "") })
	defer prefetch.Wait()
	claiming()
	if err := w.Run(accept, work); err != nil {
		return fmt.Errorf("worker %s: %w", o.Name, err)
	}
	return nil
}

// retainVersion returns the function with which workflow runs retain versions. A version that is already gone, such as
// that of a deleted workspace, cannot be kept.
func retainVersion(store *state.Store) func(context.Context, string, string, int64, time.Time) error {
	return func(ctx context.Context, tenant, workspace string, generation int64, until time.Time) error {
		err := store.Retain(ctx, state.Ref{Tenant: tenant, Workspace: workspace}, generation, until)
		if errors.Is(err, state.ErrNotFound) {
			return nil
		}
		return err
	}
}

// pipelineParts returns the pipeline's parts, including those that need the fleet.
func (p Parts) pipelineParts(fleet Fleet, runs *engine.Engine) pipeline.Parts {
	out, queue := p.Pipeline, fleet.Queue
	out.Store = fleet.Store
	out.Queue = pipeline.Queue{Sessions: queue, StartWorkflow: runs.StartTask}
	out.Tools.History = toolsearch.NewHistory(queue, out.Log)
	if out.Tools.Audit == nil {
		out.Tools.Audit = audit{queue, out.Log}
	}
	if out.Tools.Journal == nil {
		out.Tools.Journal = journal{queue}
	}
	if p.DailyTokens != nil {
		out.Codegen.Ledger = ledger{queue, p.DailyTokens}
	}
	return out
}

// prefetchExcept returns the pipeline's Prepare, for all workspaces except live: the live folder is imported
// into that workspace after the claim, so a prefetched HEAD would be outdated.
func prefetchExcept(
	live state.Ref, p *pipeline.Pipeline,
) func(context.Context, schemas.Record) (jobs.Handler, func()) {
	return func(ctx context.Context, rec schemas.Record) (jobs.Handler, func()) {
		if (state.Ref{Tenant: rec.Tenant, Workspace: rec.Workspace}) == live {
			return nil, func() {}
		}
		return p.Prepare(ctx, rec)
	}
}

// catalogueVersion returns the catalogue version for a task that is being claimed. If it cannot be read, the
// task gets its version when it runs.
func (p Parts) catalogueVersion(ctx context.Context, tenant string) string {
	if p.Pipeline.Tools.Catalogue == nil {
		return ""
	}
	v, release, err := p.Pipeline.Tools.Catalogue.Current(ctx, tenant)
	release() // the task holds its version when it runs
	if err != nil {
		p.Pipeline.Log.WarnContext(ctx, "read of catalogue version failed", "tenant", tenant, "error", err)
	}
	return v.ID
}
