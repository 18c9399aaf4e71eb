package microsandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// modeAttribute is the attribute in which msb keeps a file's owner and mode in the box.
const modeAttribute = "user.msb.override_stat"

// destroyWait bounds how long the destruction of a sandbox may take.
const destroyWait = time.Minute

// box is one sandbox. It is an executor.Box, Limiter, StatsReporter, OOMReporter, ModeResetter and GuestReporter.
type box struct {
	driver *Driver
	spec   executor.Spec
	name   string // the sandbox's name in msb
	image  *image

	mu        sync.Mutex
	sessions  []*session
	destroyed bool
}

// boot fetches the image, and creates and prepares the sandbox.
func (b *box) boot(ctx context.Context) (err error) {
	d := b.driver
	if b.image, err = d.prepareImage(ctx, b.spec.Image); err != nil {
		return err
	}
	args, err := d.createArgs(b.name, b.spec, b.image.ref)
	if err != nil {
		return err
	}
	if _, err := d.msb(ctx, d.opts.Timeout, args...); err != nil {
		return err
	}
	return b.image.prepare(ctx, b)
}

// Exec starts a process over a new connection to the sandbox's agent.
func (b *box) Exec(ctx context.Context, argv []string) (executor.Session, error) {
	s, err := b.start(ctx, argv)
	if err != nil {
		return nil, fmt.Errorf("start in microsandbox box %s: %w", b.spec.Name, err)
	}
	return s, nil
}

func (b *box) start(ctx context.Context, argv []string) (*session, error) {
	switch {
	case len(argv) == 0:
		return nil, errors.New("empty command")
	case b.isDestroyed():
		return nil, fmt.Errorf("the box is destroyed: %w", os.ErrClosed)
	}
	s, err := start(ctx, agentSocket(b.driver.home, b.name), argv, b.spec.Env)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.sessions = append(b.sessions, s)
	destroyed := b.destroyed
	b.mu.Unlock()
	if destroyed { // while the process was starting
		s.stop()
		return nil, fmt.Errorf("the box is destroyed: %w", os.ErrClosed)
	}
	return s, nil
}

func (b *box) isDestroyed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.destroyed
}

// output runs a command to its end and returns the beginning of its standard output.
func (b *box) output(ctx context.Context, argv ...string) (string, error) {
	s, err := b.start(ctx, argv)
	if err != nil {
		return "", err
	}
	detach := context.AfterFunc(ctx, s.stop)
	defer detach()
	var out, errs capped
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&errs, s.Stderr()) })
	_, _ = io.Copy(&out, s.Stdout())
	reading.Wait()
	code, err := s.Wait()
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %.400s", code, strings.TrimSpace(errs.buffer.String()))
	}
	return out.buffer.String(), errors.Join(err, context.Cause(ctx))
}

// Limit returns an error if the box, whose size is fixed, has less memory than the limit.
func (b *box) Limit(_ context.Context, limits executor.Limits) error {
	limit, size := limits.OrDefaults().MemoryMB, cmp.Or(b.spec.MemoryMB, b.driver.opts.MemoryMB)
	if limit > size {
		return &executor.HostError{
			Reason: executor.ReasonBootFailed,
			Err:    fmt.Errorf("the task may use %d MB of memory; a microsandbox box has %d MB", limit, size),
			Fix:    "raise guardrails.max_memory_mb, which determines the size of boxes",
		}
	}
	return nil
}

// Stats returns the sandbox's resource use on the host.
func (b *box) Stats(ctx context.Context) (executor.Stats, error) {
	out, err := b.driver.msb(ctx, b.driver.opts.Timeout, "metrics", b.name, "--format", "json")
	if err != nil {
		return executor.Stats{}, err
	}
	return parseStats(out)
}

func parseStats(text []byte) (executor.Stats, error) {
	var m struct {
		VCPUTime float64 `json:"vcpu_time_ns"`
		Resident float64 `json:"memory_host_resident_bytes"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return executor.Stats{}, fmt.Errorf("decode msb's metrics: %w", err)
	}
	return executor.Stats{MemoryMB: m.Resident / (1 << 20), CPUMS: m.VCPUTime / 1e6}, nil
}

// OutOfMemory returns false: the machine's kernel kills single processes, and the machine continues.
func (b *box) OutOfMemory() bool { return false }

// ResetModes makes the box use the modes of the workspace's files on the host. It removes the attribute in which msb
// keeps the mode of each file that was created or changed in the box. On the host, such a file has the same mode,
// except that its owner can always read and write it.
func (b *box) ResetModes() error { return removeAttribute(b.spec.Workspace, modeAttribute) }

// Guest describes the box: the image's interpreter, and a kernel that caches file names and counts kills.
func (b *box) Guest() executor.Guest {
	guest := executor.DefaultGuest()
	guest.Python, guest.StaleCaches, guest.OOMEvents = b.image.python, true, oomEvents
	return guest
}

// Destroy kills the sandbox and removes its files. It may be called again, even after an error.
func (b *box) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, destroyWait+b.driver.opts.Timeout)
	defer cancel()
	b.mu.Lock()
	again := b.destroyed
	b.destroyed = true
	sessions := slices.Clone(b.sessions)
	b.mu.Unlock()
	for _, s := range sessions {
		s.stop()
	}
	if err := b.driver.remove(ctx, b.name, again); err != nil {
		return fmt.Errorf("destroy microsandbox box %s: %w", b.spec.Name, err)
	}
	b.driver.freeName(b.spec.Owner, b.name)
	return nil
}

// remove kills and removes a sandbox in any state. If msb fails, or the sandbox may already be gone, it kills the
// sandbox's process itself and checks that msb no longer lists the sandbox.
func (d *Driver) remove(ctx context.Context, name string, mayBeGone bool) error {
	_, removing := d.msb(ctx, d.opts.Timeout, "remove", "--force", "--quiet", name)
	if removing != nil || mayBeGone {
		d.killMachine(name)
		names, err := d.list(ctx, "")
		if err != nil {
			return errors.Join(removing, err)
		}
		if slices.Contains(names, name) {
			return errors.Join(removing, errors.New("msb still lists it"))
		}
	}
	return hostdir.Remove(filepath.Join(d.boxes, name))
}

// list returns the names of an owner's sandboxes, or of all sandboxes if owner is empty.
func (d *Driver) list(ctx context.Context, owner string) ([]string, error) {
	args := []string{"list", "--quiet"}
	if owner != "" {
		args = append(args, "--label", "owner="+owner)
	}
	out, err := d.msb(ctx, d.opts.Timeout, args...)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(out)), nil
}
