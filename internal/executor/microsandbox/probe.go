package microsandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/drivers"
)

// Version is the version of msb that this package is tested with. Older ones are refused; newer ones must pass
// the probe.
const Version = "0.7.2"

// released are the release dates of versions of msb. The program does not print them.
var released = map[string]time.Time{
	Version: time.Date(2026, time.September, 23, 0, 0, 0, 0, time.UTC),
}

// EngineVersion returns the version of msb and the date of its release, or the zero time if that is unknown.
func (d *Driver) EngineVersion(ctx context.Context) (version string, release time.Time, err error) {
	out, err := d.msb(ctx, d.opts.Timeout, "--version")
	if err != nil {
		return "", time.Time{}, err
	}
	version = strings.TrimSpace(strings.TrimPrefix(string(out), "msb "))
	return version, released[version], checkVersion(version)
}

// checkVersion refuses older versions: they have another command line.
func checkVersion(version string) error {
	got, err := parseVersion(version)
	if err != nil {
		return &executor.HostError{
			Reason: executor.ReasonEngineOld, Err: err, Fix: "install version " + Version + " of msb",
		}
	}
	minimum, err := parseVersion(Version)
	if err != nil {
		return err
	}
	for i := range got {
		if got[i] > minimum[i] {
			return nil
		}
		if got[i] < minimum[i] {
			return &executor.HostError{
				Reason: executor.ReasonEngineOld,
				Err:    fmt.Errorf("msb is version %s, at least %s is needed", version, Version),
				Fix:    "npm install --prefix DIR @superradcompany/microsandbox-linux-x64-gnu@" + Version,
			}
		}
	}
	return nil
}

func parseVersion(s string) (v [3]int, err error) {
	release, _, _ := strings.Cut(s, "-")
	parts := strings.Split(release, ".")
	if len(parts) != len(v) {
		return v, fmt.Errorf("msb prints %.40q as its version", s)
	}
	for i, p := range parts {
		if v[i], err = strconv.Atoi(p); err != nil || v[i] < 0 {
			return v, fmt.Errorf("msb prints %.40q as its version", s)
		}
	}
	return v, nil
}

// probeOwner is the prefix of the owner names of probes. Each belongs to one process.
const probeOwner = "probe-"

// Probe boots a box and runs Python in it: on some hosts /dev/kvm opens and no machine boots. A success is kept
// for the life of the driver.
func (d *Driver) Probe(ctx context.Context) (executor.Info, error) {
	info, err := d.probe.Do(func() (executor.Info, error) { return d.bootProbe(ctx) })
	if err != nil {
		return info, fmt.Errorf("probe microsandbox: %w", err)
	}
	return info, nil
}

func (d *Driver) bootProbe(ctx context.Context) (info executor.Info, err error) {
	if err := d.prepareHome(); err != nil {
		return info, err
	}
	version, _, err := d.EngineVersion(ctx)
	if err != nil {
		return info, err
	}
	if err := d.checkHost(ctx, "/dev/kvm"); err != nil {
		return info, err
	}
	if err := d.withBox(ctx, executor.Spec{}, func(*box) error { return nil }); err != nil {
		return info, err
	}
	return executor.Info{
		Driver: drivers.Microsandbox, Tier: drivers.Microsandbox, EngineVersion: version, Limits: "cgroup",
		Environment: displayName(d.opts.Image), MultiTenant: true, ImageMultiTenant: true,
	}, nil
}

// checkHost finds common problems before an image is fetched: no device, no permission for it, or no
// virtualisation, which msb doctor detects.
func (d *Driver) checkHost(ctx context.Context, device string) error {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		return &executor.HostError{
			Reason: executor.ReasonNoVirtual, Err: fmt.Errorf("use %s: %w", device, err),
			Fix: "sudo usermod -aG kvm $USER, then log in again",
		}
	case err != nil:
		return noVirtualisation(fmt.Errorf("use %s: %w", device, err))
	}
	file.Close()
	_, err = d.msb(ctx, d.opts.Timeout, "doctor")
	if host := (*executor.HostError)(nil); err == nil || errors.As(err, &host) || ctx.Err() != nil {
		return err
	}
	return noVirtualisation(err)
}

func noVirtualisation(err error) error {
	return &executor.HostError{
		Reason: executor.ReasonNoVirtual, Err: err,
		Fix: "use a host with hardware virtualisation (a virtual machine needs nested virtualisation), " +
			"or set execution.sandbox_type: gvisor",
	}
}

// bootError marks an error of a boot, unless it has a reason.
func bootError(err error) error {
	if host := (*executor.HostError)(nil); errors.As(err, &host) {
		return err
	}
	return &executor.HostError{Reason: executor.ReasonBootFailed, Err: fmt.Errorf("boot a box: %w", err)}
}
