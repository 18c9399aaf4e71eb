package gvisor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/drivers"
)

// probeTimeout bounds a boot on a busy machine.
const probeTimeout = 30 * time.Second

// probeProgram prints the version of the box's Python.
const probeProgram = "import sys; print('python', *sys.version_info[:3])"

// Probe boots a box and runs Python in it. The driver keeps the first successful result. The error says what to
// install or change.
func (d *Driver) Probe(ctx context.Context) (executor.Info, error) {
	info, err := d.probe.Do(func() (executor.Info, error) { return d.bootProbe(ctx) })
	if err != nil {
		return info, fmt.Errorf("probe gvisor: %w", err)
	}
	return info, nil
}

// Inspect returns, without a boot, what a successful Probe returns. But only Probe finds out that cgroups cannot be
// used.
func (d *Driver) Inspect(ctx context.Context) (executor.Info, error) {
	info, err := d.inspect(ctx)
	if err != nil {
		return executor.Info{}, fmt.Errorf("inspect gvisor: %w", err)
	}
	return info, nil
}

func (d *Driver) bootProbe(ctx context.Context) (executor.Info, error) {
	if _, err := d.inspect(ctx); err != nil { // its error is clearer than a boot's
		return executor.Info{}, err
	}
	output, err := d.probeCgroups(ctx)
	if err != nil {
		return executor.Info{}, err
	}
	if err := checkVersion(output); err != nil {
		return executor.Info{}, err
	}
	return d.inspect(ctx)
}

func (d *Driver) inspect(ctx context.Context) (executor.Info, error) {
	if _, err := os.Stat(d.opts.Runsc); err != nil {
		return executor.Info{}, fmt.Errorf("%w; build the pinned engine: make bin/runsc", err)
	}
	version, _, err := EngineVersion(ctx, d.opts.Runsc)
	if err != nil {
		return executor.Info{}, err
	}
	info := executor.Info{
		Driver: drivers.GVisor, Tier: drivers.GVisor, EngineVersion: version, Limits: "rlimit",
		Environment: "host /usr", MultiTenant: !d.rootless && d.opts.Rootfs != "", ImageMultiTenant: !d.rootless,
	}
	if d.groups().enabled() {
		info.Limits = "cgroup"
	}
	if d.opts.Rootfs != "" {
		info.Environment = d.opts.Rootfs
	}
	return info, nil
}

// probeCgroups runs probeProgram in a box. If cgroups are mounted but cannot be used, as in a container, it disables
// them and tries again.
func (d *Driver) probeCgroups(ctx context.Context) (output string, err error) {
	output, err = d.runProbe(ctx, nil)
	var denied *os.PathError
	if !d.groups().enabled() || !errors.As(err, &denied) || !strings.HasPrefix(denied.Path, "/sys/fs/cgroup") {
		return output, err
	}
	d.log.WarnContext(ctx, "cgroups are not usable; boxes have rlimits only", "error", err)
	d.mu.Lock()
	d.cgroups = cgroups{}
	d.mu.Unlock()
	return d.runProbe(ctx, nil)
}

// runProbe boots a box from an image, or from the driver's default root if image is nil, and returns what
// probeProgram prints.
func (d *Driver) runProbe(ctx context.Context, image *imageRoot) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	owner := executor.ProbeOwner(probeOwner)
	b, err := d.create(ctx, executor.Spec{Name: "p", Owner: owner, Env: []string{"PATH=/usr/bin:/bin"}}, image)
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx)), d.unlockOwner(owner))
	}()
	s, err := b.Exec(ctx, []string{b.Guest().Python, "-I", "-S", "-c", probeProgram})
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = b.main.process.Kill() })
	defer stop()
	stdout, stderr := drain(s)
	code, err := s.Wait()
	if err != nil {
		return "", err
	}
	if code != 0 {
		cause := cmp.Or(context.Cause(ctx), fmt.Errorf("exit status %d", code))
		var hints []string
		if d.rootless {
			hints = namespaceHints("/proc/sys")
		}
		return "", bootError(cause, stderr, hints)
	}
	return stdout, nil
}

// drain reads both streams of a session to their ends, and keeps the first 8 KiB of each.
func drain(s executor.Session) (stdout, stderr string) {
	var out, errs bytes.Buffer
	var wg sync.WaitGroup
	for _, stream := range []struct {
		to   *bytes.Buffer
		from io.Reader
	}{{&out, s.Stdout()}, {&errs, s.Stderr()}} {
		wg.Go(func() {
			_, _ = io.CopyN(stream.to, stream.from, 8<<10)
			_, _ = io.Copy(io.Discard, stream.from)
		})
	}
	wg.Wait()
	return out.String(), strings.TrimSpace(errs.String())
}

// bootError returns the error of a sandbox that did not boot, with hints about host settings that are a likely
// cause.
func bootError(err error, stderr string, hints []string) error {
	if stderr != "" {
		err = fmt.Errorf("%w: %s", err, stderr)
	}
	for _, hint := range hints {
		err = fmt.Errorf("%w\n%s", err, hint)
	}
	return fmt.Errorf("boot a sandbox: %w", err)
}

// userNamespaceSettings may restrict user namespaces, which rootless sandboxes need.
var userNamespaceSettings = []struct{ file, restricted, fix string }{
	{"kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"},
	{"kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},
	{"user/max_user_namespaces", "0", "user.max_user_namespaces=15000"},
}

// namespaceHints returns how to change the settings of this host that keep an ordinary user from creating user
// namespaces.
func namespaceHints(sysctls string) []string {
	var hints []string
	for _, s := range userNamespaceSettings {
		value, err := os.ReadFile(filepath.Join(sysctls, s.file))
		if err == nil && strings.TrimSpace(string(value)) == s.restricted {
			hints = append(hints, "this system does not let ordinary users create user namespaces; "+
				"to allow it: sudo sysctl -w "+s.fix)
		}
	}
	return hints
}

// checkVersion checks the output of probeProgram.
func checkVersion(output string) error {
	var major, minor, patch int
	if _, err := fmt.Sscanf(output, "python %d %d %d", &major, &minor, &patch); err != nil {
		return fmt.Errorf("read the version of the box's Python from %.80q: %w", output, err)
	}
	if executor.SupportedPython(major, minor) {
		return nil
	}
	return fmt.Errorf("the box's Python is %d.%d.%d; want at least 3.9; "+
		"install a newer version at %s, or configure a root file system that has it",
		major, minor, patch, executor.DefaultGuest().Python)
}
