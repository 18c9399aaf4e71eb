package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/environments"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/drivers"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/pluginhost"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/toolbox"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/internal/worker"
)

// WorkerParts are what the process around a worker gives it.
type WorkerParts struct {
	Config    *config.Config
	Version   string // of the program, for lists
	Telemetry *telemetry.Telemetry
	Plugins   *pluginhost.Set // nil: none

	// Join is called once, while the first boxes are created, and returns the connected queue. nats.* and
	// s3.* of Config must be set when it returns.
	Join func(context.Context) (*jobs.Client, error)
	// Ready is called once, when a task would run at once.
	Ready func()
}

// RunWorker runs one worker: it claims tasks until accept ends, then lets running tasks finish until work
// ends.
func RunWorker(accept, work context.Context, p WorkerParts) (err error) {
	c, t := p.Config, p.Telemetry
	dir, release, err := workerDir(c.Data)
	if err != nil {
		return err
	}
	defer release()
	box, err := Choose(accept, c, filepath.Join(dir, MsbDir), filepath.Join(dir, "g"), t.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	objects := CatalogueObjects(c)
	mytools, err := Toolbox(c, objects, t.Logger)
	if err != nil {
		return err
	}
	defer mytools.Close()
	shelf, err := tools.OpenVersionStore(tools.VersionStoreOptions{
		Source: mytools.Source(), Dir: filepath.Join(dir, "catalogue"), Overlay: mytools.Overlay, Objects: objects, Log: t.Logger,
	})
	if err != nil {
		return err
	}
	upstreams, err := Upstreams(c, mcp.Options{Log: t.Logger})
	if err != nil {
		return err
	}
	defer upstreams.Close()
	unobserve, err := upstreams.Observe(t.MeterProvider.Meter("codefleet/tools"))
	if err != nil {
		return err
	}
	defer unobserve()
	writer, models, err := Writers(c)
	if err != nil {
		return err
	}
	joined := make(chan struct{})
	kinds := environments.New(environments.Options{
		Config: c, Driver: box.Sandbox, Info: box.Info, Objects: objects, Joined: joined, Log: t.Logger,
	})
	defer kinds.Close()
	kinds.RemoveUnusedImages(accept)
	if info, pools := box.Info, kinds.SharedWithHost(); len(pools) > 0 && len(c.Tenants) > 1 {
		return fmt.Errorf("the settings name %d tenants, and sandboxes on this host (%s, %s; pools %s) may serve one only: run as root with execution.rootfs, or with an image for each pool (pools.NAME.image)",
			len(c.Tenants), info.Driver, info.Environment, strings.Join(pools, ", "))
	}
	if left := unserved(c, box.Info.Tier); len(left) > 0 {
		t.Logger.WarnContext(accept, "tasks of these tenants are left to other workers: they demand a stronger sandbox", "tenants", left, "tier", box.Info.Tier)
	}
	pool := executor.PoolOptions{
		MinReady: cmp.Or(c.Optimizations.ReadyBoxes(), -1), Max: c.Execution.MaxBoxes, Reuse: c.Execution.Reuse,
		Dir: filepath.Join(dir, "boxes"), Owner: "f", MemoryMBTotal: MemoryMBTotal(c),
		DiskMB: c.Limits.WorkspaceMB, Log: t.Logger,
		Mounts:       []executor.Mount{{Source: shelf.Dir(), Target: executor.DefaultGuest().Catalogue, ReadOnly: true}},
		Environments: kinds.List(),
	}
	return worker.Run(accept, work, worker.Options{
		Name: c.Worker.Name, Version: p.Version, Pools: c.TakesFrom(), Slots: c.Slots(),
		Attempts: c.Queue.Attempts, AckWait: c.Queue.AckWait, Limits: func(tenant string) executor.Limits { return limits(c, tenant) }, Policy: Policy(c),
		Serves: serves(c, box.Info.Tier),
		Pool:   pool, Network: egress.Options{Bytes: c.Limits.NetworkMB << 20},
		Tools: pipeline.Tools{Catalogue: shelf, Upstream: mytools.Upstream(upstreams), Policy: toolPolicy(c), Budget: toolBudget(c), Allow: toolsOf(c), Approval: c.Tools.ApprovalTimeout},
		Index: mytools.Index, Writer: writer, Models: models, Repairs: c.LLM.RepairAttempts,
		TaskTokens: c.LLM.TaskTokens, DailyTokens: dailyTokens(c),
		Driver: box.Sandbox, Join: Join(c, filepath.Join(dir, "cache"), t, announced(joinToolbox(mytools, p.Join), joined)),
		Live: liveFolder(c), Cleaning: cleaning(c), Plugins: p.Plugins,
		Log: t.Logger, Tracer: t.TracerProvider, Meter: t.MeterProvider, Ready: p.Ready,
	})
}

// MemoryMBTotal is how much memory the tasks of a worker have together: three quarters of the host's
// where execution.memory_mb_total does not say. 0: nobody counts.
func MemoryMBTotal(c *config.Config) int {
	return cmp.Or(c.Execution.MemoryMBTotal, memoryMB()*3/4)
}

// cleaning is a worker's share in removing what workspaces no longer need.
func cleaning(c *config.Config) worker.Cleaning {
	return worker.Cleaning{Tenants: slices.Sorted(maps.Keys(c.Tenants)), Every: c.Workspaces.CleanEvery, Collect: Collect(c)}
}

// Collect says what of workspaces is kept.
func Collect(c *config.Config) maintenance.GCOptions {
	w := c.Workspaces
	retention := maintenance.Retention{Newest: w.KeepNewest, All: max(w.KeepAll, 1), Daily: w.KeepDays}
	if w.KeepDays == 0 {
		retention.Daily = -1
	}
	return maintenance.GCOptions{Retention: retention, Grace: w.Grace, Inactive: w.Inactive, Deleted: w.KeepDeleted}
}

// Join makes what a worker needs of its fleet, once connect has returned: until then the settings
// may not say where the object store is. cache is a directory of the worker's own.
func Join(c *config.Config, cache string, t *telemetry.Telemetry, connect func(context.Context) (*jobs.Client, error)) worker.Join {
	return func(ctx context.Context) (worker.Fleet, error) {
		queue, err := connect(ctx)
		if err != nil {
			return worker.Fleet{}, err
		}
		store, err := Store(c, cache, t.Logger)
		if err == nil {
			err = CheckStore(ctx, c, store)
		}
		if err != nil {
			return worker.Fleet{Queue: queue}, err
		}
		mirror, err := Mirror(c, store)
		return worker.Fleet{Queue: queue, Store: store, Mirror: mirror}, err
	}
}

// joinToolbox is connect, and joins the toolbox to the queue that it returns.
func joinToolbox(b *toolbox.Toolbox, connect func(context.Context) (*jobs.Client, error)) func(context.Context) (*jobs.Client, error) {
	return func(ctx context.Context) (*jobs.Client, error) {
		queue, err := connect(ctx)
		if err == nil {
			err = b.Join(queue)
		}
		return queue, err
	}
}

// announced is connect, and closes joined when it has succeeded.
func announced(connect func(context.Context) (*jobs.Client, error), joined chan<- struct{}) func(context.Context) (*jobs.Client, error) {
	return func(ctx context.Context) (*jobs.Client, error) {
		queue, err := connect(ctx)
		if err == nil {
			close(joined)
		}
		return queue, err
	}
}

// MsbDir is where in its directory a worker keeps what is microsandbox's, images among it.
const MsbDir = "m"

// liveFolder is the directory of the settings that is kept in step with the main workspace; nil: none.
func liveFolder(c *config.Config) *worker.Live {
	if c.Execution.WorkspaceDir == "" {
		return nil
	}
	dir, err := filepath.Abs(c.Execution.WorkspaceDir)
	if err != nil {
		dir = c.Execution.WorkspaceDir
	}
	return &worker.Live{Dir: dir, Memory: filepath.Join(c.Data, "live.json"), Ref: state.Ref{Tenant: config.DefaultTenant, Workspace: "main"}}
}

// workerDir takes the first directory below data that no living worker has. So a worker that starts
// after a crash finds, and cleans, what its predecessor left. Its name is short: sockets lie below.
func workerDir(data string) (dir string, release func(), err error) {
	const most = 64
	if data, err = filepath.Abs(data); err != nil { // boxes have another working directory
		return "", nil, err
	}
	for i := range most {
		dir := filepath.Join(data, "w"+strconv.Itoa(i))
		lock, err := hostdir.Acquire(dir)
		if errors.Is(err, hostdir.ErrLocked) {
			continue
		}
		return dir, lock.Release, err
	}
	return "", nil, fmt.Errorf("%d workers use the data directory %s already", most, data)
}

// serves tells whose tasks may run in sandboxes of a tier.
func serves(c *config.Config, tier string) func(tenant string) bool {
	return func(tenant string) bool { return drivers.TierSatisfies(tier, c.Tenants[tenant].MinTier) }
}

// unserved are the tenants of the settings whose tasks may not run in sandboxes of a tier.
func unserved(c *config.Config, tier string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.Tenants)), serves(c, tier))
}

// limits are those of a tenant's tasks that say nothing about them: the fleet's, and never more than
// the tenant's own.
func limits(c *config.Config, tenant string) executor.Limits {
	own, l := c.Tenants[tenant].Limits, c.Limits
	return executor.Limits{
		Timeout: atMost(c.Guardrails.MaxExecutionTime, own.Timeout), MemoryMB: atMost(c.Guardrails.MaxMemoryMB, own.MemoryMB),
		CPUs: atMost(l.CPUs, own.CPUs), OutputBytes: atMost(l.OutputBytes, own.OutputBytes),
		WorkspaceMB: atMost(l.WorkspaceMB, own.WorkspaceMB), Processes: l.Processes, OpenFiles: l.OpenFiles,
	}
}

// atMost is v, or the limit where there is a lower one.
func atMost[T int | int64 | float64 | time.Duration](v, limit T) T {
	if limit > 0 && limit < v {
		return limit
	}
	return v
}

// openBucket reaches a bucket of the object store of the settings.
func openBucket(c *config.Config, bucket, prefix string) (*s3.Objects, error) {
	return s3.Open(s3.Options{
		Endpoint: c.S3.Endpoint, Region: c.S3.Region, Bucket: bucket, Prefix: prefix,
		AccessKey: c.S3.AccessKey, SecretKey: string(c.S3.SecretKey),
	})
}

// Objects is the object store of the settings, with its heads kept as they say.
func Objects(c *config.Config) (objects.Objects, error) {
	bucket, err := openBucket(c, c.S3.Bucket, c.S3.Prefix)
	if err != nil {
		return nil, err
	}
	return withHeads(c, bucket)
}

// Store is the workspace store of the settings. cache is a directory of this process, or empty.
func Store(c *config.Config, cache string, log *slog.Logger) (*state.Store, error) {
	bucket, err := Objects(c)
	if err != nil {
		return nil, err
	}
	o := state.Options{CacheDir: cache, Log: log, Quota: state.Quota{Bytes: c.Limits.WorkspaceMB << 20}}
	if guest := executor.DefaultGuest(); os.Geteuid() == 0 { // programs run as this user then
		o.Owner = &state.Owner{UID: guest.UID, GID: guest.UID}
	}
	o.Secrets = func(tenant string) state.Secrets { return secrets(c, tenant) }
	return state.New(bucket, o), nil
}

// Mirror is the mirror that the settings name, brought up to date after each commit to store; nil: there is none.
func Mirror(c *config.Config, store *state.Store) (*mirror.Mirror, error) {
	if c.Workspaces.Mirror == "" {
		return nil, nil
	}
	bucket, prefix, err := c.Workspaces.MirrorAt()
	if err != nil {
		return nil, fmt.Errorf("workspaces.mirror: %w", err)
	}
	target, err := openBucket(c, bucket, prefix)
	if err != nil {
		return nil, err
	}
	return mirror.Follow(store.Repo(), target, mirror.Options{}), nil
}

// secrets are what a tenant's workspaces are encrypted with.
func secrets(c *config.Config, tenant string) state.Secrets {
	current, old := c.EncryptionOf(tenant)
	s := state.Secrets{Current: []byte(current)}
	for _, o := range old {
		s.Old = append(s.Old, []byte(o))
	}
	return s
}
