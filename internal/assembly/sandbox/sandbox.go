// Package sandbox constructs the configured driver, or the strongest one that works on this host.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/drivers"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/executor/microsandbox"
)

// Driver is a driver with the interfaces that a worker and codefleet doctor need.
type Driver interface {
	executor.Driver
	executor.Prober
	executor.Sweeper
	Close() error
}

// Choice is the chosen driver.
type Choice struct {
	Driver
	Info executor.Info
	// Rejected says why microsandbox was not chosen. It is nil if microsandbox was chosen or ruled out by
	// execution.sandbox_type, or if msb is neither installed nor configured.
	Rejected error
}

// Choose returns the strongest driver that the settings permit and this host supports: microsandbox if a box
// boots, or else gVisor. It does not boot a gVisor box: the worker's first one shows whether gVisor works. The
// drivers keep their state below msbDir and gvisorDir, whose paths must be short because sockets are created
// there.
func Choose(ctx context.Context, c *config.Config, msbDir, gvisorDir string, log *slog.Logger) (Choice, error) {
	kind, rejected := c.Execution.SandboxType, error(nil)
	if kind != drivers.GVisor {
		chosen, err := chooseMicrosandbox(ctx, c, msbDir, log)
		if err == nil || kind == drivers.Microsandbox {
			return chosen, err
		}
		if executor.ReasonOf(err) != executor.ReasonEngineMissing || c.Execution.Msb != "" {
			rejected = err
			log.WarnContext(ctx, "gVisor chosen, because microsandbox does not work on this host",
				"reason", executor.ReasonOf(err), "error", err)
		}
	}
	driver, err := GVisor(c, gvisorDir, log)
	if err != nil {
		return Choice{}, errors.Join(err, rejected)
	}
	info, err := driver.Inspect(ctx)
	if err != nil {
		return Choice{}, errors.Join(err, rejected, driver.Close())
	}
	if state := gvisor.HugePages(); os.Geteuid() == 0 && gvisor.LacksHugePages(state) {
		log.InfoContext(ctx, "huge pages for shared memory are off on this host, which slows tasks down",
			"setting", state, "fix", "codefleet doctor --fix")
	}
	return Choice{Driver: driver, Info: info, Rejected: rejected}, nil
}

// chooseMicrosandbox boots a box, because only that proves that microsandbox works.
func chooseMicrosandbox(ctx context.Context, c *config.Config, dir string, log *slog.Logger) (Choice, error) {
	driver, err := Microsandbox(c, dir, log)
	if err != nil {
		return Choice{}, err
	}
	info, err := driver.Probe(ctx)
	if err != nil {
		return Choice{}, errors.Join(err, driver.Close())
	}
	return Choice{Driver: driver, Info: info}, nil
}

// Microsandbox returns the microsandbox driver. Its Probe reports whether boxes boot.
func Microsandbox(c *config.Config, dir string, log *slog.Logger) (*microsandbox.Driver, error) {
	msb, err := Msb(c)
	if err != nil {
		return nil, err
	}
	memory := c.Guardrails.MaxMemoryMB
	for _, t := range c.Tenants { // all boxes have the same size, so it must be enough for every tenant
		memory = max(memory, t.Limits.MemoryMB)
	}
	return microsandbox.New(microsandbox.Options{
		Msb: msb, Dir: dir, Image: c.Execution.SandboxImage, MaxImageMB: c.Execution.MaxImageMB,
		MemoryMB: memory, CPUs: c.Limits.CPUs, Log: log,
	})
}

// Msb returns the path of microsandbox's binary: from the settings, beside this binary, or on PATH.
func Msb(c *config.Config) (string, error) {
	return enginePath("msb", c.Execution.Msb, "npm install --prefix DIR @superradcompany/microsandbox-linux-x64-gnu@"+
		microsandbox.Version+", then set execution.msb to its bin/msb")
}

// GVisor returns the gVisor driver. Its Probe reports whether boxes boot.
func GVisor(c *config.Config, dir string, log *slog.Logger) (*gvisor.Driver, error) {
	runsc, err := Runsc(c)
	if err != nil {
		return nil, err
	}
	return gvisor.New(gvisor.Options{Runsc: runsc, Dir: dir, Rootfs: c.Execution.Rootfs, Log: log})
}

// Runsc returns the path of the gVisor engine: from the settings, beside this binary, or on PATH.
func Runsc(c *config.Config) (string, error) {
	return enginePath("runsc", c.Execution.Runsc, "make build, or set execution.runsc")
}

// enginePath returns the path of an engine: the configured one, or else one beside this binary or on PATH. install says
// how to get the engine.
func enginePath(name, configured, install string) (string, error) {
	if configured != "" {
		path, err := exec.LookPath(configured)
		if err != nil {
			err = missing(fmt.Errorf("execution.%s: %w", name, err), "set it to the path of the engine, or remove it")
		}
		return path, err
	}
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		err = missing(fmt.Errorf("the engine %s is neither beside this binary nor on PATH: %w", name, err), install)
	}
	return path, err
}

func missing(err error, fix string) error {
	return &executor.HostError{Reason: executor.ReasonEngineMissing, Err: err, Fix: fix}
}

// MemoryMBTotal returns how much memory a worker's tasks may use together: execution.memory_mb_total, or three
// quarters of the host's memory. 0 means no limit.
func MemoryMBTotal(c *config.Config) int {
	return cmp.Or(c.Execution.MemoryMBTotal, memoryMB()*3/4)
}

// IdleMemoryMB returns how much memory a worker's idle boxes may use together: execution.idle_memory_mb, or a quarter
// of the host's memory. 0 means that the host's memory is unknown.
func IdleMemoryMB(c *config.Config) int {
	return cmp.Or(c.Execution.IdleMemoryMB, memoryMB()/4)
}
