package faulttest_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/filelock"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/state/statetest"
	"github.com/codefleet/codefleet/internal/worker"
)

// ackWait is the ack wait of these fleets: a worker loses its task after this long without a heartbeat. TestChaos
// overrides it.
const ackWait = 2 * time.Second

// ackWaitOfRole returns the ack wait in this process's environment, or else ackWait.
func ackWaitOfRole() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("ACK_WAIT")); err == nil {
		return d
	}
	return ackWait
}

// loopback are the networks of webhooks in these tests.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

const (
	bucket   = "fleet"
	password = "fault-test"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	if path := os.Getenv(ledgerVariable); path != "" {
		if err := upstream(context.Background(), path); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(0)
	}
	faulttest.Main(m, map[string]faulttest.Role{
		"nats": natsRole, "s3": s3Role, "worker": workerRole, "binary": binaryRole, "slow": slowRole,
	})
}

// slowRole is ready at once, and exits, if the directory STARTED does not exist. Else it is ready after the duration
// RESTART.
func slowRole(ctx context.Context, ready func()) error {
	if os.Mkdir(os.Getenv("STARTED"), 0o700) == nil {
		ready()
		return nil
	}
	restart, err := time.ParseDuration(os.Getenv("RESTART"))
	if err == nil {
		err = clock.Sleep(ctx, restart)
	}
	ready()
	<-ctx.Done()
	return err
}

// roleLog returns the log of a role. It is printed only with FAULTTEST_LOG=1.
func roleLog() *slog.Logger {
	if os.Getenv("FAULTTEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil)).With("pid", os.Getpid())
}

func natsRole(ctx context.Context, ready func()) error {
	if os.Getenv("NATS_ROUTES") != "" {
		return nodeRole(ctx, ready)
	}
	opts := embedded.NATSOptions{
		Dir: os.Getenv("NATS_DIR"), Addr: os.Getenv("NATS_ADDR"), Log: roleLog(),
		Fleet: embedded.NATSUser{User: embedded.FleetUser, Password: password},
	}
	if os.Getenv("NATS_DISK_MB") != "" {
		opts.MaxStoreBytes = 16 << 30 // the limits of the streams together are larger than the disk
	}
	srv, err := embedded.StartNATS(ctx, opts)
	if err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	srv.Close()
	return nil
}

// s3Role runs the S3 server. It retries while the server of its killed predecessor, which outlives its parent briefly,
// still uses the directory.
func s3Role(ctx context.Context, ready func()) error {
	opts := embedded.S3Options{
		Dir: os.Getenv("S3_DIR"), Addr: os.Getenv("S3_ADDR"), AccessKey: bucket, SecretKey: password,
		Bucket: bucket,
		NoSync: true, // writes of a killed process survive in the page cache
		Log:    roleLog(),
	}
	srv, err := embedded.StartS3(ctx, opts)
	for deadline := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(deadline); {
		srv, err = embedded.StartS3(ctx, opts)
	}
	if err != nil {
		return err
	}
	ready()
	select {
	case <-ctx.Done():
		return srv.Close()
	case <-srv.Exited():
		return fmt.Errorf("the S3 server exited by itself: %w", srv.Close())
	}
}

// connect connects to the queue at addr.
func connect(ctx context.Context, addr string) (*jobs.Client, error) {
	replicas, err := strconv.Atoi(cmp.Or(os.Getenv("REPLICAS"), "0"))
	if err != nil {
		return nil, err
	}
	return jobs.Connect(ctx, jobs.Options{
		Server:      jobs.Server{URL: "nats://" + addr, Wait: true},
		Credentials: jobs.Credentials{User: embedded.FleetUser, Password: password},
		Storage:     jobs.Storage{Revisions: 1000, Replicas: replicas},
		AckWait:     ackWaitOfRole(), Log: roleLog(),
	})
}

func openObjects(addr string) (objects.Objects, error) {
	return s3.Open(s3.Options{Endpoint: "http://" + addr, Bucket: bucket, AccessKey: bucket, SecretKey: password})
}

// workerRole runs a worker. Environment variables make its object store crash, stop or lose updates.
func workerRole(ctx context.Context, ready func()) error {
	queue, err := connect(ctx, os.Getenv("NATS_ADDR"))
	if err != nil {
		return err
	}
	defer queue.Close()
	bucket, err := openObjects(os.Getenv("S3_ADDR"))
	if err != nil {
		return err
	}
	if os.Getenv("MUTANT") == mutantNoIfMatch {
		bucket = blindSwap{bucket}
	}
	if id := os.Getenv("CRASH_AFTER_COMMIT_OF"); id != "" {
		bucket = crashAfterCommit{bucket, id}
	}
	if id := os.Getenv("STOP_BEFORE_COMMIT_OF"); id != "" {
		bucket = stopBeforeCommit{bucket, id, os.Getenv("STOPPED")}
	}
	dir, name := os.Getenv("WORKER_DIR"), os.Getenv("WORKER")
	lock, err := lockDir(ctx, dir)
	if err != nil {
		return err
	}
	defer lock.Release()
	driver, owner, closeDriver, err := openDriver(filepath.Join(dir, "g"))
	if err != nil {
		return err
	}
	tools, mounts, closeTools, err := openTools(dir)
	if err != nil {
		return err
	}
	defer closeTools()
	trace, closeTrace, err := traceBoxes(os.Getenv("TRACE"))
	if err != nil {
		return err
	}
	defer closeTrace()
	ready()
	diskMB, err := strconv.ParseInt(cmp.Or(os.Getenv("DISK_MB"), "16"), 10, 64)
	if err != nil {
		return err
	}
	slots, err := strconv.Atoi(os.Getenv("SLOTS"))
	if err != nil {
		return err
	}
	attempts, err := strconv.Atoi(cmp.Or(os.Getenv("ATTEMPTS"), "0"))
	if err != nil {
		return err
	}
	pool, err := executor.NewPool(driver, executor.PoolOptions{
		MinReady: 1, Max: slots + 2, Dir: filepath.Join(dir, "boxes"), Owner: cmp.Or(os.Getenv("OWNER"), name),
		DiskMB: diskMB, Mounts: mounts, Reuse: os.Getenv("REUSE"), Trace: trace, Log: roleLog(),
	})
	if err != nil {
		return err
	}
	carrying := &worker.Carrying{}
	err = worker.Run(ctx, ctx, worker.Parts{
		WebhookNetworks: loopback,
		Queue: jobs.WorkerOptions{
			Name: name, Slots: slots, Attempts: attempts, AckWait: ackWaitOfRole(), Log: roleLog(),
		},
		Pipeline: pipeline.Parts{Pool: pool, Tools: tools, Log: roleLog()},
		Join: func(context.Context) (worker.Fleet, error) {
			return worker.Fleet{Queue: queue, Carrying: carrying, Store: state.New(bucket, state.Options{
				Carry:    carrying.Allowed,
				CacheDir: filepath.Join(dir, "cache"), Owner: owner, Log: roleLog(),
				Secrets: statetest.Secrets(os.Getenv("SECRET")),
			})}, nil
		},
	})
	if err != nil {
		return err
	}
	return closeDriver()
}

// lockDir locks a worker's directory, like the binary worker. Otherwise, any worker of this host removes what is in it
// after a kill, while this process starts again.
func lockDir(ctx context.Context, dir string) (*hostdir.Lock, error) {
	for {
		lock, err := hostdir.Acquire(dir)
		if !errors.Is(err, filelock.ErrLocked) {
			return lock, err
		}
		if err := clock.Sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// traceBoxes returns a function that writes events of boxes to a file, one JSON object per line. Without a path it
// returns nil.
func traceBoxes(path string) (trace func(executor.PoolEvent), stop func(), err error) {
	if path == "" {
		return nil, func() {}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, nil, err
	}
	lines := json.NewEncoder(file)
	// An error is ignored, because a missing line fails the test.
	return func(e executor.PoolEvent) { _ = lines.Encode(e) }, func() { _ = file.Close() }, nil
}

// openDriver returns the driver gvisor if the test has found runsc, or else a driver without a sandbox.
func openDriver(dir string) (executor.Driver, *state.Owner, func() error, error) {
	runsc := os.Getenv("RUNSC")
	if runsc == "" {
		return executortest.Host{}, nil, func() error { return nil }, nil
	}
	d, err := gvisor.New(gvisor.Options{Runsc: runsc, Dir: dir, Log: roleLog()})
	if err != nil {
		return nil, nil, nil, err
	}
	guest := executor.DefaultGuest()
	return d, &state.Owner{UID: guest.UID, GID: guest.UID}, d.Close, nil
}
