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
)

// Version is the version of msb that this package is written for and tested with. An older one is
// refused; a newer one has to show in the probe's boot that it still does what is needed.
const Version = "0.7.2"

// released are the days on which versions of msb came out; its program does not say.
var released = map[string]time.Time{
	Version: time.Date(2026, time.September, 23, 0, 0, 0, 0, time.UTC),
}

// EngineVersion returns the version of msb and the day of its release, or the zero time where that
// is unknown.
func (d *Driver) EngineVersion(ctx context.Context) (version string, made time.Time, err error) {
	out, err := d.msb(ctx, d.opts.Timeout, "--version")
	if err != nil {
		return "", time.Time{}, err
	}
	version = strings.TrimSpace(strings.TrimPrefix(string(out), "msb "))
	return version, released[version], checkVersion(version)
}

// checkVersion refuses versions whose command line is another.
func checkVersion(version string) error {
	got, err := parseVersion(version)
	if err != nil {
		return &executor.HostError{Reason: executor.ReasonEngineOld, Err: err, Fix: "install version " + Version + " of msb"}
	}
	least, err := parseVersion(Version)
	if err != nil {
		return err
	}
	for i := range got {
		if got[i] > least[i] {
			return nil
		}
		if got[i] < least[i] {
			return &executor.HostError{
				Reason: executor.ReasonEngineOld, Err: fmt.Errorf("msb is version %s, at least %s is needed", version, Version),
				Fix: "npm install --prefix DIR @superradcompany/microsandbox-linux-x64-gnu@" + Version,
			}
		}
	}
	return nil
}

func parseVersion(s string) (v [3]int, err error) {
	release, _, _ := strings.Cut(s, "-")
	parts := strings.Split(release, ".")
	if len(parts) != len(v) {
		return v, fmt.Errorf("msb says %.40q for a version", s)
	}
	for i, p := range parts {
		if v[i], err = strconv.Atoi(p); err != nil || v[i] < 0 {
			return v, fmt.Errorf("msb says %.40q for a version", s)
		}
	}
	return v, nil
}

// probeOwner begins the owner names of probes, each of which is one process's.
const probeOwner = "probe-"

// Probe boots a box and runs Python in it: there are hosts where /dev/kvm opens and no machine
// boots. Success is remembered for the life of the driver.
func (d *Driver) Probe(ctx context.Context) (executor.Info, error) {
	d.probing.Lock()
	defer d.probing.Unlock()
	if d.info != nil {
		return *d.info, nil
	}
	info, err := d.probe(ctx)
	if err != nil {
		return executor.Info{}, fmt.Errorf("probe microsandbox: %w", err)
	}
	d.info = &info
	return info, nil
}

func probeName() string {
	return probeOwner + strconv.Itoa(os.Getpid()) + "-" + shortHash(strconv.FormatInt(time.Now().UnixNano(), 10))
}

func (d *Driver) probe(ctx context.Context) (info executor.Info, err error) {
	if err := d.prepare(); err != nil {
		return info, err
	}
	version, _, err := d.EngineVersion(ctx)
	if err != nil {
		return info, err
	}
	if err := d.checkHost(ctx, "/dev/kvm"); err != nil {
		return info, err
	}
	if err := d.brief(ctx, executor.Spec{}, func(*box) error { return nil }); err != nil {
		return info, err
	}
	return executor.Info{
		Driver: "microsandbox", Tier: "microsandbox", EngineVersion: version, Limits: "cgroup",
		Environment: shown(d.opts.Image), MultiTenant: true, ImageMultiTenant: true,
	}, nil
}

// checkHost finds the usual reasons before an image is fetched and a boot fails: no device, no right
// to it, no virtualisation behind it, which msb's own doctor sees.
func (d *Driver) checkHost(ctx context.Context, device string) error {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		return &executor.HostError{Reason: executor.ReasonNoVirtual, Err: fmt.Errorf("no use of %s: %w", device, err), Fix: "sudo usermod -aG kvm $USER, then log in again"}
	case err != nil:
		return noVirtualisation(fmt.Errorf("no use of %s: %w", device, err))
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
		Fix: "use a host with hardware virtualisation (a virtual one needs nested virtualisation), or set execution.sandbox_type: gvisor",
	}
}

// bootError is for a box that did not boot where nothing spoke against it.
func bootError(err error) error {
	if host := (*executor.HostError)(nil); errors.As(err, &host) {
		return err
	}
	return &executor.HostError{Reason: executor.ReasonBootFailed, Err: fmt.Errorf("a box does not boot: %w", err)}
}
