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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
)

// probeTimeout is for a boot on a machine that is busy with other things.
const probeTimeout = 30 * time.Second

// probeProgram prints the version of the box's Python.
const probeProgram = "import sys; print('python', *sys.version_info[:3])"

// Probe boots a box and runs Python in it. Success is remembered for the life of the
// driver. The error says what to install or to change.
func (d *Driver) Probe(ctx context.Context) (executor.Info, error) {
	d.probing.Lock()
	defer d.probing.Unlock()
	if d.info != nil {
		return *d.info, nil
	}
	info, err := d.probe(ctx)
	if err != nil {
		return executor.Info{}, fmt.Errorf("probe gvisor: %w", err)
	}
	d.info = &info
	return info, nil
}

// Inspect tells what Probe would if it succeeded.
func (d *Driver) Inspect(ctx context.Context) (executor.Info, error) {
	info, err := d.inspect(ctx)
	if err != nil {
		return executor.Info{}, fmt.Errorf("inspect gvisor: %w", err)
	}
	return info, nil
}

func (d *Driver) probe(ctx context.Context) (executor.Info, error) {
	if _, err := d.inspect(ctx); err != nil { // before a boot, as it tells more
		return executor.Info{}, err
	}
	python, err := d.bootProbe(ctx)
	if err != nil {
		return executor.Info{}, err
	}
	if err := checkVersion(python); err != nil {
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
		Driver: "gvisor", Tier: "gvisor", EngineVersion: version, Limits: "rlimit",
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

// bootProbe runs the probe's program in a box of its own. Where cgroups cannot be
// used although they are mounted, as in a container, it goes on without them.
func (d *Driver) bootProbe(ctx context.Context) (string, error) {
	out, err := d.runOnce(ctx, nil)
	var denied *os.PathError
	if err != nil && d.groups().enabled() && errors.As(err, &denied) && strings.HasPrefix(denied.Path, "/sys/fs/cgroup") {
		d.log.WarnContext(ctx, "cgroups cannot be used, boxes have rlimits only", "error", err)
		d.mu.Lock()
		d.cgroups = cgroups{}
		d.mu.Unlock()
		return d.runOnce(ctx, nil)
	}
	return out, err
}

// runOnce boots a box for probeProgram, of an image or of the driver's own root, and returns what it
// printed.
func (d *Driver) runOnce(ctx context.Context, image *imageRoot) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	owner := probeOwner + strconv.Itoa(os.Getpid()) + "-" + shortHash(strconv.FormatInt(time.Now().UnixNano(), 10))
	b, err := d.create(ctx, executor.Spec{Name: "p", Owner: owner, Env: []string{"PATH=/usr/bin:/bin"}}, image)
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx)), d.disown(owner))
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
		return "", bootError(cmp.Or(context.Cause(ctx), fmt.Errorf("exit status %d", code)), stderr, hostHints("/proc/sys"))
	}
	return stdout, nil
}

// drain reads both streams of a session to their ends, and keeps a little of each.
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

// bootError says why a sandbox did not boot, and what to do about it where the host's
// settings are a likely reason.
func bootError(err error, stderr string, hints []string) error {
	if stderr != "" {
		err = fmt.Errorf("%w: %s", err, stderr)
	}
	for _, hint := range hints {
		err = fmt.Errorf("%w\n%s", err, hint)
	}
	return fmt.Errorf("boot a sandbox: %w", err)
}

// userNamespaceSettings restrict what an ordinary user's sandbox is made of.
var userNamespaceSettings = []struct{ file, restricted, fix string }{
	{"kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"},
	{"kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},
	{"user/max_user_namespaces", "0", "user.max_user_namespaces=15000"},
}

// hostHints are the fixes for settings of this host that keep an ordinary user from
// making user namespaces. Root needs none.
func hostHints(sysctls string) []string {
	if os.Geteuid() == 0 {
		return nil
	}
	return namespaceHints(sysctls)
}

func namespaceHints(sysctls string) []string {
	var hints []string
	for _, s := range userNamespaceSettings {
		value, err := os.ReadFile(filepath.Join(sysctls, s.file))
		if err == nil && strings.TrimSpace(string(value)) == s.restricted {
			hints = append(hints, "this system keeps ordinary users from making user namespaces; to allow it: sudo sysctl -w "+s.fix)
		}
	}
	return hints
}

// checkVersion takes what probeProgram printed.
func checkVersion(output string) error {
	var major, minor, patch int
	if _, err := fmt.Sscanf(output, "python %d %d %d", &major, &minor, &patch); err != nil {
		return fmt.Errorf("read the version of the box's Python from %.80q: %w", output, err)
	}
	if major != 3 || minor < 9 {
		return fmt.Errorf("the box's Python is %d.%d.%d, at least 3.9 is needed: install a newer one at %s, or configure a root file system that has it",
			major, minor, patch, executor.DefaultGuest().Python)
	}
	return nil
}
