package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/assembly/models"
	"github.com/codefleet/codefleet/internal/assembly/queue"
	"github.com/codefleet/codefleet/internal/assembly/sandbox"
	"github.com/codefleet/codefleet/internal/assembly/storage"
	"github.com/codefleet/codefleet/internal/assembly/tooling"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/environments"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/drivers"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/pluginhost"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/worker"
)

// WorkerOptions configure Worker. All fields but Plugins, Drain and Pool are required.
type WorkerOptions struct {
	Config    *config.Config
	Version   string // of codefleet, shown in lists of workers
	Telemetry *telemetry.Telemetry
	Plugins   *pluginhost.Set

	// Join is called once, while the first boxes are created, and returns the connected queue. When it
	// returns, the settings nats and s3 of Config must be complete.
	Join func(context.Context) (*jobs.Client, error)
	// Ready is called once, as soon as the worker can start a task without delay.
	Ready func()
	// Drain, if not nil, is called once when an operator has ordered the worker to drain. It must end the context in
	// which the worker claims tasks, and after worker.drain the context in which it runs them.
	Drain func()
	// Pool, if not nil, is called once with the worker's pool, before it runs.
	Pool func(*executor.Pool)
}

// Worker constructs a worker. The caller calls release when the worker has stopped. ctx bounds the choice of
// the sandbox, and the removal of what ended workers have left, which continues after Worker has returned.
func Worker(ctx context.Context, o WorkerOptions) (p worker.Parts, release func() error, err error) {
	var opened closers
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	c, t := o.Config, o.Telemetry
	dir, err := worker.OpenDir(c.Data)
	if err != nil {
		return p, nil, err
	}
	opened.add(func() error { dir.Close(); return nil })
	cleaning, stopCleaning := context.WithCancel(ctx)
	var cleaned sync.WaitGroup
	cleaned.Go(func() { removeRemains(cleaning, c, t.Logger) })
	opened.add(func() error { stopCleaning(); cleaned.Wait(); return nil })
	driver, err := sandbox.Choose(ctx, c, dir.Microsandbox(), dir.GVisor(), t.Logger)
	if err != nil {
		return p, nil, err
	}
	opened.add(driver.Close)
	bucket := storage.CatalogueObjects(c)
	tools, err := tooling.ForWorker(c, dir.Catalogue(), bucket, t)
	if err != nil {
		return p, nil, err
	}
	opened.add(func() error { tools.Close(); return nil })
	writer, profiles, err := models.Writers(c)
	if err != nil {
		return p, nil, err
	}
	joined := make(chan struct{})
	envs := environments.New(environments.Options{
		Config: c, Driver: driver.Driver, Info: driver.Info, Objects: bucket, Joined: joined, Log: t.Logger,
	})
	opened.add(func() error { envs.Close(); return nil })
	envs.RemoveUnusedImages(ctx)
	if err := checkTenants(ctx, o, driver.Info, envs.SharedWithHost()); err != nil {
		return p, nil, err
	}
	rules, err := guard(c)
	if err != nil {
		return p, nil, err
	}
	filter, err := openPrivacy(c)
	if err != nil {
		return p, nil, err
	}
	pool, err := executor.NewPool(driver.Driver, poolOptions(c, t, dir, tools.Mount, envs.List()))
	if err != nil {
		return p, nil, err
	}
	if o.Pool != nil {
		o.Pool(pool)
	}
	join := func(ctx context.Context) (*jobs.Client, error) {
		client, err := o.Join(ctx)
		if err == nil {
			err = tools.Toolbox.Join(client)
		}
		if err == nil {
			close(joined)
		}
		return client, err
	}
	return worker.Parts{
		Version: o.Version,
		Queue: jobs.WorkerOptions{
			Name: c.Worker.Name, Pools: c.WorkerPools(), Slots: c.Slots(), Attempts: c.Queue.Attempts,
			AckWait: c.Queue.AckWait, Policy: queue.Policy(c),
			Tenants: jobs.Tenants{
				Accept: serves(c, driver.Info.Tier), Declined: unserved(c, driver.Info.Tier),
				SettingsOnly: len(envs.SharedWithHost()) > 0,
			}, Log: t.Logger, Hooks: jobs.Hooks{Drain: o.Drain},
		},
		Pipeline: pipeline.Parts{
			Pool: pool, Tools: tools.Parts,
			Codegen: pipeline.Codegen{
				Writer: writer, Profiles: profiles, Repairs: c.LLM.RepairAttempts, TaskTokens: c.LLM.TaskTokens,
			},
			Plugins: o.Plugins, Guard: rules, Privacy: filter,
			Limits: pipeline.Limits{
				Task:    func(tenant string) executor.Limits { return limits(c, tenant) },
				Network: egress.Options{Bytes: c.Limits.NetworkMB << 20},
			},
			State: pipeline.StateDocuments{
				Enabled: c.Execution.State.Enabled, File: c.DefaultState(), Save: c.Execution.State.AutoSave,
			},
			Log: t.Logger, Tracer: t.TracerProvider.Tracer("codefleet/pipeline"),
		},
		DailyTokens: models.DailyTokens(c),
		Join:        Join(c, dir.Cache(), t, join),
		Live:        live(c),
		Cleaning: worker.Cleaning{
			Tenants: slices.Sorted(maps.Keys(c.Tenants)), Every: c.Workspaces.CleanEvery,
			Collect: storage.CollectOptions(c),
		},
		Meter: t.MeterProvider, Ready: o.Ready, WebhookNetworks: c.Webhooks.Networks(),
	}, opened.close, nil
}

func poolOptions(
	c *config.Config, t *telemetry.Telemetry, dir *worker.Dir, mount executor.Mount, envs []executor.Environment,
) executor.PoolOptions {
	return executor.PoolOptions{
		MinReady: cmp.Or(c.Optimizations.ReadyBoxes(), -1), // 0 would mean the default
		Max:      c.Execution.MaxBoxes, Reuse: c.Execution.Reuse,
		Dir: dir.Boxes(), Owner: "f", MemoryMBTotal: sandbox.MemoryMBTotal(c), IdleMemoryMB: sandbox.IdleMemoryMB(c),
		DiskMB: c.Limits.WorkspaceMB, Log: t.Logger,
		Mounts: []executor.Mount{mount}, Environments: envs,
	}
}

// checkTenants returns an error if there are several tenants but the boxes of some task pools, listed in shared, use
// the host's files and may therefore serve only one tenant. It logs the tenants whose tasks need a stronger sandbox
// than this host's.
func checkTenants(ctx context.Context, o WorkerOptions, info executor.Info, shared []string) error {
	c := o.Config
	if len(shared) > 0 && len(c.Tenants) > 1 {
		return fmt.Errorf("the settings name %d tenants, but sandboxes on this host (%s, %s; task pools %s) "+
			"may serve only one: run as root with execution.rootfs, or with an image for each task pool "+
			"(pools.NAME.image)",
			len(c.Tenants), info.Driver, info.Environment, strings.Join(shared, ", "))
	}
	if left := unserved(c, info.Tier); len(left) > 0 {
		o.Telemetry.Logger.WarnContext(ctx, "tenants left to other workers because they require a stronger sandbox",
			"tenants", left, "tier", info.Tier)
	}
	return nil
}

// closers are the functions that close what was opened.
type closers []func() error

func (l *closers) add(f func() error) { *l = append(*l, f) }

// close calls the functions in reverse order.
func (l *closers) close() error {
	var errs []error
	for _, f := range slices.Backward(*l) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Join returns a worker.Join that connects to the queue, and then opens and checks the workspace store with the given
// cache directory. Until connect returns, the settings may lack the address of the object store.
func Join(
	c *config.Config, cache string, t *telemetry.Telemetry, connect func(context.Context) (*jobs.Client, error),
) worker.Join {
	return func(ctx context.Context) (f worker.Fleet, err error) {
		if f.Queue, err = connect(ctx); err != nil {
			return f, err
		}
		if c.Workspaces.Carry && c.S3.Heads == config.HeadsCAS { // in other head modes, HEADs must stay small
			f.Carrying = &worker.Carrying{}
		}
		if f.Store, err = storage.Open(c, cache, t.Logger, f.Carrying.Allowed); err != nil {
			return f, err
		}
		if err = storage.Check(ctx, c, f.Store); err != nil {
			return f, err
		}
		f.Mirror, err = storage.Mirror(c, f.Store)
		return f, err
	}
}

// live returns the directory that is kept in sync with the workspace main, or nil if there is none.
func live(c *config.Config) *worker.Live {
	if c.Execution.WorkspaceDir == "" {
		return nil
	}
	return &worker.Live{
		Dir: c.LiveFolder(), StatePath: filepath.Join(c.Data, "live.json"),
		Ref: state.Ref{Tenant: config.DefaultTenant, Workspace: "main"},
	}
}

// serves returns a function that reports whether a tenant's tasks may run in sandboxes of the tier.
func serves(c *config.Config, tier string) func(tenant string) bool {
	return func(tenant string) bool { return drivers.TierSatisfies(tier, c.Tenants[tenant].MinTier) }
}

// unserved returns the tenants whose tasks may not run in sandboxes of the tier.
func unserved(c *config.Config, tier string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.Tenants)), serves(c, tier))
}

// limits returns the limits for a tenant's tasks that set none: the lower of the fleet's and the tenant's.
func limits(c *config.Config, tenant string) executor.Limits {
	t, l := c.Tenants[tenant].Limits, c.Limits
	return executor.Limits{
		Timeout:  atMost(c.Guardrails.MaxExecutionTime, t.Timeout),
		MemoryMB: atMost(c.Guardrails.MaxMemoryMB, t.MemoryMB),
		CPUs:     atMost(l.CPUs, t.CPUs), OutputBytes: atMost(l.OutputBytes, t.OutputBytes),
		WorkspaceMB: atMost(l.WorkspaceMB, t.WorkspaceMB), Processes: l.Processes, OpenFiles: l.OpenFiles,
	}
}

// atMost returns v, or limit if it is set and lower.
func atMost[T int | int64 | float64 | time.Duration](v, limit T) T {
	if limit > 0 && limit < v {
		return limit
	}
	return v
}
