package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/worker"
)

// ErrOneTenant is returned by Worker on a host whose sandboxes are good for one tenant only.
var ErrOneTenant = errors.New("this host's sandboxes are for one tenant, and the settings name several")

// Worker makes and runs one worker as the settings say, until take ends and its tasks have; see
// worker.Run. It calls ready when the first sandboxes are warm.
func Worker(take, work context.Context, c *config.Config, queue *jobs.Client, t *telemetry.Telemetry, version string, ready func()) error {
	driver, err := Driver(c, t)
	if err != nil {
		return err
	}
	info, err := driver.Probe(take)
	if err != nil {
		return err
	}
	if !info.MultiTenant && !c.SingleTenant() {
		return fmt.Errorf("%w: run the worker as root and give execution.sandbox_image, or serve one tenant here", ErrOneTenant)
	}
	store, err := Store(c, t)
	if err != nil {
		return err
	}
	caps, err := store.Probe(take)
	if err != nil {
		return fmt.Errorf("object store %s: %w", c.S3.Endpoint, err)
	}
	t.Logger.InfoContext(take, "object store probed", "verdict", caps.Verdict, "latency_ms", float64(caps.Latency.Microseconds())/1000)
	return worker.Run(take, work, worker.Options{
		Name: c.Worker.Name, Version: version, Pools: c.Worker.Pools, Slots: c.Slots(),
		Attempts: c.Queue.Attempts, AckWait: c.Queue.AckWait, Policy: Policy(c),
		Limits: executor.Limits{
			Timeout: c.Guardrails.MaxExecutionTime, MemoryMB: c.Guardrails.MaxMemoryMB, CPUs: c.Limits.CPUs,
			OutputBytes: c.Limits.OutputBytes, WorkspaceMB: c.Limits.WorkspaceMB,
			Processes: c.Limits.Processes, OpenFiles: c.Limits.OpenFiles,
		},
		Pool: executor.PoolOptions{
			MinReady: cmp.Or(c.Optimizations.ReadyBoxes(), -1), Max: c.Execution.MaxBoxes, Reuse: c.Execution.Reuse,
			Dir: filepath.Join(c.Data, "boxes"), MemoryMBTotal: c.Execution.MemoryMBTotal, DiskMB: c.Limits.WorkspaceMB,
		},
		Driver: driver, Queue: queue, Store: store,
		Log: t.Logger, Tracer: t.TracerProvider, Meter: t.MeterProvider, Ready: ready,
	})
}

// ProbingDriver is a driver that can say whether it works here.
type ProbingDriver interface {
	executor.Driver
	executor.Prober
}

// Driver is the sandbox that the settings choose.
func Driver(c *config.Config, t *telemetry.Telemetry) (ProbingDriver, error) {
	switch c.Execution.SandboxType {
	case "", "auto", "gvisor":
	default:
		return nil, fmt.Errorf("execution.sandbox_type %q is not in this build: use gvisor", c.Execution.SandboxType)
	}
	runsc, err := Runsc(c)
	if err != nil {
		return nil, err
	}
	return gvisor.New(gvisor.Options{
		Runsc: runsc, Rootfs: c.Execution.SandboxImage, Dir: filepath.Join(c.Data, "gvisor"), Log: t.Logger,
	})
}

// Runsc is the path of the gVisor engine: the one that the settings name, the one beside this
// program, or the one on PATH.
func Runsc(c *config.Config) (string, error) {
	if c.Execution.Runsc != "" {
		return c.Execution.Runsc, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "runsc")
		if info, err := os.Stat(beside); err == nil && !info.IsDir() {
			return beside, nil
		}
	}
	path, err := exec.LookPath("runsc")
	if err != nil {
		return "", errors.New("the gVisor engine runsc is neither beside this program nor on PATH: `make build` makes bin/runsc, or name it with execution.runsc")
	}
	return path, nil
}

// Store is the workspace store in the settings' bucket, with its cache in the data directory.
func Store(c *config.Config, t *telemetry.Telemetry) (*state.Store, error) {
	objects, err := s3.Open(s3.Options{
		Endpoint: c.S3.Endpoint, Region: c.S3.Region, Bucket: c.S3.Bucket, Prefix: c.S3.Prefix,
		AccessKey: c.S3.AccessKey, SecretKey: string(c.S3.SecretKey),
	})
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	opts := state.Options{CacheDir: filepath.Join(c.Data, "cache"), Log: t.Logger}
	if os.Geteuid() == 0 {
		guest := executor.DefaultGuest()
		opts.Owner = &state.Owner{UID: guest.UID, GID: guest.UID}
	}
	return state.New(objects, opts), nil
}
