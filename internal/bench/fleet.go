package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/assembly/queue"
	"github.com/codefleet/codefleet/internal/assembly/sandbox"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/internal/worker"
)

// SmallestProgram is a short program that proves that it ran by printing SmallestOutput.
const (
	SmallestProgram = "print(6*7)"
	SmallestOutput  = "42\n"
)

// StartFleet starts a fleet in this process, with its data on disk. change modifies the user's settings, and run runs
// the fleet's worker. stop stops the fleet.
func (b *Bench) StartFleet(ctx context.Context, change func(*config.Config), run up.Worker) (f *up.Fleet,
	stop func() error, err error,
) {
	c, err := b.Settings(b.NewDir())
	if err != nil {
		return nil, nil, err
	}
	change(c)
	t, err := telemetry.Setup(ctx, assembly.Telemetry(c, "bench", "", io.Discard))
	if err != nil {
		return nil, nil, err
	}
	flush := func() error { return t.Shutdown(context.WithoutCancel(ctx)) }
	f, err = up.Start(ctx, up.Options{
		Config: c, Telemetry: t, Worker: run, Private: true,
		Step: func(what string) { b.Progress("starting a fleet: " + what) },
	})
	if err != nil {
		return nil, nil, errors.Join(err, flush())
	}
	return f, func() error { return errors.Join(f.Close(), flush()) }, nil
}

// StartClient starts a fleet and a client of its first tenant. stop stops both.
func (b *Bench) StartClient(ctx context.Context, change func(*config.Config)) (c *client.Client, stop func() error,
	err error,
) {
	f, end, err := b.StartFleet(ctx, change, process.RunWorker)
	if err != nil {
		return nil, nil, err
	}
	if c, err = tenantClient(ctx, f, f.File.Tenant); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return c, func() error { return errors.Join(c.Close(), end()) }, nil
}

// tenantClient returns a client over NATS with a tenant's credentials.
func tenantClient(ctx context.Context, f *up.Fleet, tenant string) (*client.Client, error) {
	user, ok := f.File.NATS.Tenants[tenant]
	if !ok {
		return nil, fmt.Errorf("the fleet has no tenant %q", tenant)
	}
	return client.New(ctx, client.Options{
		URL: f.File.NATS.URL, Tenant: tenant, Source: "codefleet/bench", NATSUser: user.User,
		NATSPassword: user.Password,
	})
}

// RunTask runs a task. It returns an error unless the task succeeds with the given output.
func RunTask(ctx context.Context, c *client.Client, s client.Submission, output string) (client.Result, error) {
	res, err := requireSuccess(ctx, c, s)
	if err == nil && res.Output != output {
		err = fmt.Errorf("the task printed %.300q, want %q", res.Output, output)
	}
	return res, err
}

// requireSuccess runs a task. It returns an error unless the task succeeds.
func requireSuccess(ctx context.Context, c *client.Client, s client.Submission) (client.Result, error) {
	rec, err := c.Run(ctx, s)
	switch {
	case err != nil:
		return client.Result{}, err
	case rec.Result == nil:
		return client.Result{}, fmt.Errorf("task %s is %s", rec.TaskID, rec.Status)
	case rec.Result.Status != client.Succeeded:
		return client.Result{}, fmt.Errorf("task %s ended %s: %w", rec.TaskID, rec.Status, rec.Result.Error)
	}
	return *rec.Result, nil
}

// Connect returns a client of the fleet that a fleet.json describes.
func Connect(ctx context.Context, fleetFile string) (*client.Client, error) {
	o, err := client.ReadFleetFile(fleetFile)
	if err != nil {
		return nil, err
	}
	return client.New(ctx, o)
}

// newDriver returns a driver for boxes without a fleet, and the settings. It creates their data directory, which also
// contains the driver's files.
func (b *Bench) newDriver() (*config.Config, *gvisor.Driver, error) {
	dir := b.NewDir()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, nil, err
	}
	c, err := b.Settings(dir)
	if err != nil {
		return nil, nil, err
	}
	driver, err := sandbox.GVisor(c, filepath.Join(dir, "g"), slog.New(slog.DiscardHandler))
	return c, driver, err
}

// startPool starts a pool without a queue and without workspaces. Its boxes are like a fleet's.
func (b *Bench) startPool(ctx context.Context, minReady, maxBoxes int) (p *executor.Pool, stop func() error,
	err error,
) {
	c, driver, err := b.newDriver()
	if err != nil {
		return nil, nil, err
	}
	p, err = executor.NewPool(driver, executor.PoolOptions{
		MinReady: minReady, Max: maxBoxes, Dir: filepath.Join(c.Data, "boxes"), Owner: "b",
		DiskMB: c.Limits.WorkspaceMB,
	})
	if err != nil {
		return nil, nil, errors.Join(err, driver.Close())
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(running) }()
	stop = func() error {
		cancel()
		return errors.Join(<-ended, driver.Close())
	}
	b.Progress("starting a pool of sandboxes")
	select {
	case <-p.Ready():
		return p, stop, nil
	case <-ctx.Done():
		return nil, nil, errors.Join(context.Cause(ctx), stop())
	case err := <-ended:
		cancel()
		return nil, nil, errors.Join(err, driver.Close())
	}
}

// runDirect runs the smallest program in an acquired box.
func runDirect(ctx context.Context, box *executor.AcquiredBox) error {
	v, err := box.Run(ctx, executor.Program{TaskID: "bench", Code: SmallestProgram}, executor.Hooks{})
	if err != nil {
		return err
	}
	if v.Output != SmallestOutput {
		return fmt.Errorf("the program ended %s: %w", v.Status, v.Error)
	}
	return nil
}

// runSharedWorker runs a worker with boxes, the queue and the workspaces, but without tools, models and guardrails.
// process.RunWorker refuses to run several tenants if their boxes share the host's /usr. Here they may share it,
// because all tenants are the same user.
func runSharedWorker(accept, work context.Context, p assembly.WorkerOptions) (err error) {
	c, t := p.Config, p.Telemetry
	driver, err := sandbox.GVisor(c, filepath.Join(c.Data, "g"), t.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	o := executor.PoolOptions{
		MinReady: c.Optimizations.ReadyBoxes(), Max: c.Execution.MaxBoxes,
		Dir: filepath.Join(c.Data, "boxes"), Owner: "f", DiskMB: c.Limits.WorkspaceMB, Log: t.Logger,
		IdleMemoryMB: sandbox.IdleMemoryMB(c),
	}
	pool, err := executor.NewPool(driver, o)
	if err != nil {
		return err
	}
	return worker.Run(accept, work, worker.Parts{
		Version: p.Version,
		Queue: jobs.WorkerOptions{
			Name: c.Worker.Name, Pools: c.WorkerPools(), Slots: c.Slots(), Attempts: c.Queue.Attempts,
			AckWait: c.Queue.AckWait, Policy: queue.Policy(c), Log: t.Logger,
		},
		Pipeline: pipeline.Parts{Pool: pool, Log: t.Logger, Tracer: t.TracerProvider.Tracer("codefleet/pipeline")},
		Join:     assembly.Join(c, filepath.Join(c.Data, "cache"), t, p.Join),
		Meter:    t.MeterProvider, Ready: p.Ready,
	})
}
