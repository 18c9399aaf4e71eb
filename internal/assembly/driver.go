package assembly

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

// Sandbox is a driver as a whole process has it.
type Sandbox interface {
	executor.Driver
	executor.Prober
	executor.Sweeper
	Close() error
}

// Choice says which sandbox was taken, and why not a stronger one.
type Choice struct {
	Sandbox
	Info   executor.Info
	Passed error // why it is not microsandbox; nil when it is, or when msb is not there and nobody asked for it
}

// Choose takes the strongest sandbox of the settings that this host has: microsandbox where a box of
// it boots, else gVisor. The state of boxes goes below msbDir or gvisorDir; their paths should be
// short, because sockets lie below. What gVisor needs is looked at here, and shown by the first box.
func Choose(ctx context.Context, c *config.Config, msbDir, gvisorDir string, log *slog.Logger) (Choice, error) {
	kind, passed := c.Execution.SandboxType, error(nil)
	if kind != drivers.GVisor {
		chosen, err := chooseMicrosandbox(ctx, c, msbDir, log)
		if err == nil || kind == drivers.Microsandbox {
			return chosen, err
		}
		if executor.ReasonOf(err) != executor.ReasonEngineMissing || c.Execution.Msb != "" {
			passed = err
			log.WarnContext(ctx, "no microsandbox on this host, taking gVisor", "reason", executor.ReasonOf(err), "error", err)
		}
	}
	driver, err := Driver(c, gvisorDir, log)
	if err != nil {
		return Choice{}, errors.Join(err, passed)
	}
	info, err := driver.Inspect(ctx)
	if err != nil {
		return Choice{}, errors.Join(err, passed, driver.Close())
	}
	return Choice{Sandbox: driver, Info: info, Passed: passed}, nil
}

// chooseMicrosandbox boots a box, which is the only proof that one boots.
func chooseMicrosandbox(ctx context.Context, c *config.Config, dir string, log *slog.Logger) (Choice, error) {
	driver, err := Microsandbox(c, dir, log)
	if err != nil {
		return Choice{}, err
	}
	info, err := driver.Probe(ctx)
	if err != nil {
		return Choice{}, errors.Join(err, driver.Close())
	}
	return Choice{Sandbox: driver, Info: info}, nil
}

// Microsandbox is the driver of the settings. Whether it boots here is for its Probe to say.
func Microsandbox(c *config.Config, dir string, log *slog.Logger) (*microsandbox.Driver, error) {
	msb, err := Msb(c)
	if err != nil {
		return nil, err
	}
	largest := limits(c, "")
	for name := range c.Tenants { // a box of a fixed size serves whoever comes
		if l := c.Tenants[name].Limits; l.MemoryMB > largest.MemoryMB {
			largest.MemoryMB = l.MemoryMB
		}
	}
	return microsandbox.New(microsandbox.Options{
		Msb: msb, Dir: dir, Image: c.Execution.SandboxImage, MaxImageMB: c.Execution.MaxImageMB, MemoryMB: largest.MemoryMB, CPUs: largest.CPUs, Log: log,
	})
}

// Msb finds the program of microsandbox: the one of the settings, beside this program, or on PATH.
func Msb(c *config.Config) (string, error) {
	path, err := program("msb", c.Execution.Msb)
	if err != nil {
		return "", &executor.HostError{
			Reason: executor.ReasonEngineMissing, Err: fmt.Errorf("no program %s: %w", cmp.Or(c.Execution.Msb, "msb"), err),
			Fix: "npm install --prefix DIR @superradcompany/microsandbox-linux-x64-gnu@" + microsandbox.Version + ", then set execution.msb to its bin/msb",
		}
	}
	return path, nil
}

// Driver is gVisor with the settings. Whether it boots here is for its Probe to say.
func Driver(c *config.Config, dir string, log *slog.Logger) (*gvisor.Driver, error) {
	runsc, err := Runsc(c)
	if err != nil {
		return nil, err
	}
	return gvisor.New(gvisor.Options{Runsc: runsc, Dir: dir, Rootfs: c.Execution.Rootfs, Log: log})
}

// Runsc finds the gVisor engine: the one of the settings, beside this program, or on PATH.
func Runsc(c *config.Config) (string, error) {
	path, err := program("runsc", c.Execution.Runsc)
	if err != nil {
		return "", &executor.HostError{
			Reason: executor.ReasonEngineMissing, Err: fmt.Errorf("the gVisor engine is neither beside this program nor on PATH: %w", err),
			Fix: "make build, or set execution.runsc",
		}
	}
	return path, nil
}

// program finds a program: as configured, else beside this one, else on PATH.
func program(name, configured string) (string, error) {
	if configured != "" {
		return exec.LookPath(configured)
	}
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath(name)
}
