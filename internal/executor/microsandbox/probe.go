package microsandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/drivers"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// Version is the version of msb that this package is tested with. Older versions are refused; newer versions must
// pass the probe.
const Version = "0.7.2"

// releaseDates has the release dates of msb versions, which msb does not print.
var releaseDates = map[string]time.Time{
	Version: time.Date(2026, time.September, 23, 0, 0, 0, 0, time.UTC),
}

// EngineVersion returns the version of msb and its release date, or the zero time if the date is unknown.
func (d *Driver) EngineVersion(ctx context.Context) (version string, release time.Time, err error) {
	out, err := d.msb(ctx, d.opts.Timeout, "--version")
	if err != nil {
		return "", time.Time{}, err
	}
	version = strings.TrimSpace(strings.TrimPrefix(string(out), "msb "))
	return version, releaseDates[version], checkVersion(version)
}

// checkVersion refuses versions older than Version, whose command line is different.
func checkVersion(version string) error {
	got, err := parseVersion(version)
	minimum, _ := parseVersion(Version) // cannot fail
	if err == nil && slices.Compare(got, minimum) >= 0 {
		return nil
	}
	err = cmp.Or(err, fmt.Errorf("msb is version %s; want at least %s", version, Version))
	return &executor.HostError{
		Reason: executor.ReasonEngineOld, Err: err,
		Fix: "npm install --prefix DIR @superradcompany/microsandbox-linux-x64-gnu@" + Version,
	}
}

func parseVersion(s string) (v []int, err error) {
	release, _, _ := strings.Cut(s, "-")
	for part := range strings.SplitSeq(release, ".") {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("msb printed %.40q instead of its version", s)
		}
		v = append(v, int(n))
	}
	return v, nil
}

// probeOwner is how the owner names of probes begin. Each process has its own name.
const probeOwner = "probe-"

// Probe boots a box and runs Python in it, because on some hosts /dev/kvm opens but no machine boots. The driver
// keeps the first successful result.
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
		Environment: "image " + hostdir.ImageName(d.opts.Image), MultiTenant: true, ImageMultiTenant: true,
	}, nil
}

// checkHost finds common problems before an image is fetched: a missing device, no permission to use it, or no
// virtualisation, which `msb doctor` detects.
func (d *Driver) checkHost(ctx context.Context, device string) error {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		return &executor.HostError{
			Reason: executor.ReasonNoVirtualisation, Err: fmt.Errorf("use %s: %w", device, err),
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
		Reason: executor.ReasonNoVirtualisation, Err: err,
		Fix: "use a host with hardware virtualisation (a virtual machine needs nested virtualisation), " +
			"or set execution.sandbox_type: gvisor",
	}
}

// bootError returns the error of a boot as a HostError. It does not change an error that already is one.
func bootError(err error) error {
	if host := (*executor.HostError)(nil); errors.As(err, &host) {
		return err
	}
	return &executor.HostError{Reason: executor.ReasonBootFailed, Err: fmt.Errorf("boot a box: %w", err)}
}
