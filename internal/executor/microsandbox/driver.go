// Package microsandbox makes boxes with msb: a virtual machine with a kernel of its own for each box,
// on hosts with hardware virtualisation.
//
// [Driver] is an executor.Driver, Prober and Sweeper. It calls the program msb to make and to remove
// sandboxes, a few at a time, and speaks with what runs in them over the agent's socket of each
// sandbox. All of msb's state lies in Options.Dir, which is the driver's alone; what sandboxes log,
// which is all that programs say, lies in memory, below /dev/shm where that has the attributes that
// msb needs (Linux 6.6). Names of
// sandboxes are few and used again, since msb keeps a lock file for each name ever used.
//
// Two things that msb 0.7.2 can do are of no use here. A sandbox that `msb branch` makes of a warm one,
// in less time and with less than half the memory (29 to 36 MB instead of 75 to 83), cannot have a
// workspace of its own: it shares the directories that the source has mounted; one that is mapped to
// another is stale in it (ESTALE); one that the source has not is refused, and so is a source that has
// unmounted its own. And `msb pause` gives back no memory, and of an emulated processor, 60 times slower
// than a real one, the twentieth that an idle machine costs; the next task would wait for msb to resume
// it, for longer than a small one runs.
//
// A sandbox outlives the worker that made it. It has the label owner, by which Sweep finds it, and
// stops by itself when nobody has been connected for a while.
package microsandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// Options of New.
type Options struct {
	Msb        string        // path of the program; empty: msb on PATH
	Dir        string        // state on this host; short, because sockets lie in it
	Image      string        // of boxes whose Spec names none; see DefaultImage
	MaxImageMB int64         // of an image, unpacked; 4096
	MemoryMB   int           // of a box's machine; what its programs may use together; 768
	CPUs       float64       // of a box's machine, rounded up; 1
	Timeout    time.Duration // for one call of msb; 60 s. Getting an image may take ten times as long
	Log        *slog.Logger  // default: none
}

// DefaultImage has Python 3.12 and is fetched from its registry when it is first needed.
const DefaultImage = "docker.io/library/python:3.12-slim"

// Driver makes boxes. Its methods may be called from several goroutines.
type Driver struct {
	opts   Options
	home   string        // MSB_HOME
	boxes  string        // msb's state of each sandbox, logs included
	calls  chan struct{} // as many as may call msb at a time
	gets   chan struct{} // one, which may get an image: that takes long
	log    *slog.Logger
	images images

	probing sync.Mutex     // one probe at a time
	info    *executor.Info // of the first successful one

	mu     sync.Mutex
	owners map[string]*owner // those whose lock this process holds
}

// owner is what this process holds in the name of one owner.
type owner struct {
	lock  *hostdir.Lock
	boxes map[string]bool // sandboxes made by this process
}

// New returns a driver. Whether it works is for Probe to say.
func New(opts Options) (*Driver, error) {
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("microsandbox state directory: %w", err)
	}
	opts.Dir = dir
	opts.Msb = cmp.Or(opts.Msb, "msb")
	opts.Image = cmp.Or(opts.Image, DefaultImage)
	opts.MaxImageMB = cmp.Or(opts.MaxImageMB, 4096)
	opts.MemoryMB = cmp.Or(opts.MemoryMB, 768)
	opts.CPUs = cmp.Or(opts.CPUs, 1)
	opts.Timeout = cmp.Or(opts.Timeout, time.Minute)
	if socket := agentSocket(dir, ""); len(socket) > maxSocket {
		return nil, fmt.Errorf("microsandbox: the path %s is %d bytes long, at most %d fit: choose a shorter state directory", socket, len(socket), maxSocket)
	}
	d := &Driver{
		opts: opts, home: dir,
		boxes:  filepath.Join(dir, "sandboxes"),
		calls:  make(chan struct{}, max(2, runtime.NumCPU())),
		gets:   make(chan struct{}, 1),
		log:    cmp.Or(opts.Log, slog.New(slog.DiscardHandler)),
		owners: map[string]*owner{},
	}
	if takesAttributes(memoryDir) {
		d.boxes = filepath.Join(memoryDir, "codefleet-msb-"+shortHash(dir))
	}
	d.images.known = map[string]*image{}
	return d, nil
}

const (
	memoryDir = "/dev/shm"
	maxSocket = 107 // bytes of a socket's path
)

// Create boots a sandbox and connects to its agent.
func (d *Driver) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	if !plainName(spec.Name) || !plainName(spec.Owner) {
		return nil, fmt.Errorf("create microsandbox box: name %q and owner %q must be plain names", spec.Name, spec.Owner)
	}
	b, err := d.create(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("create microsandbox box %s: %w", spec.Name, err)
	}
	return b, nil
}

func (d *Driver) create(ctx context.Context, spec executor.Spec) (*box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name, err := d.claim(spec.Owner, spec.Name)
	if err != nil {
		return nil, err
	}
	b := &box{driver: d, spec: spec, name: name}
	if err := b.boot(ctx); err != nil {
		return nil, errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// plainName is what msb takes as a part of a name.
func plainName(s string) bool {
	for _, c := range s {
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != "" && len(s) <= 60
}

// claim takes the owner's lock, where this process has not yet, and the name of a sandbox.
func (d *Driver) claim(ownerName, boxName string) (name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, err := d.own(ownerName)
	if err != nil {
		return "", err
	}
	name = ownerName + "." + boxName
	if o.boxes[name] {
		return "", fmt.Errorf("there is a box of this name: %w", os.ErrExist)
	}
	o.boxes[name] = true
	return name, nil
}

// own returns the owner whose lock this process holds; d.mu is held.
func (d *Driver) own(name string) (*owner, error) {
	if o := d.owners[name]; o != nil {
		return o, nil
	}
	if err := d.prepare(); err != nil {
		return nil, err
	}
	lock, err := hostdir.Acquire(filepath.Join(d.home, "owners", name))
	if err != nil {
		return nil, fmt.Errorf("boxes of owner %s: %w", name, err)
	}
	o := &owner{lock: lock, boxes: map[string]bool{}}
	d.owners[name] = o
	return o, nil
}

// prepare makes msb's directories and the settings that keep its logs out of them.
func (d *Driver) prepare() error {
	if err := errors.Join(os.MkdirAll(d.home, 0o700), os.MkdirAll(d.boxes, 0o700)); err != nil {
		return err
	}
	settings, err := json.Marshal(map[string]any{"paths": map[string]string{"sandboxes": d.boxes}})
	if err != nil {
		return err
	}
	path := filepath.Join(d.home, "config.json")
	if old, err := os.ReadFile(path); err == nil && string(old) == string(settings) {
		return nil
	}
	return os.WriteFile(path, settings, 0o600)
}

// forget gives a sandbox's name back after it was removed.
func (d *Driver) forget(ownerName, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.owners[ownerName]; o != nil {
		delete(o.boxes, name)
	}
}

// Close gives up the owners of this driver, whose boxes are destroyed by now. Boxes that are left
// keep running until Sweep.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, name := range slices.Collect(maps.Keys(d.owners)) {
		errs = append(errs, d.disown(name))
	}
	if entries, err := os.ReadDir(d.boxes); err == nil && len(entries) == 0 {
		errs = append(errs, os.Remove(d.boxes))
	}
	return errors.Join(errs...)
}

// disown gives up one owner; d.mu is held.
func (d *Driver) disown(name string) error {
	o := d.owners[name]
	if o == nil {
		return nil
	}
	delete(d.owners, name)
	defer o.lock.Release()
	if len(o.boxes) > 0 {
		return nil
	}
	return hostdir.Remove(filepath.Join(d.home, "owners", name))
}

// createArgs is the command line that makes a box: no network, nothing writable on this host but the
// workspace, a root in memory that goes with it.
func (d *Driver) createArgs(name string, spec executor.Spec, ref string) ([]string, error) {
	args := []string{
		"create", "--quiet", "--name", name, "--label", "owner=" + spec.Owner, "--pull", "never",
		"--no-net", "--security", "restricted", "--deployment-profile", "multi-tenant", "--hostname", "box", "--workdir", "/",
		"--cpus", strconv.Itoa(max(1, int(math.Ceil(cmp.Or(spec.CPUs, d.opts.CPUs))))),
		"--memory", strconv.Itoa(cmp.Or(spec.MemoryMB, d.opts.MemoryMB)+guestMB) + "M",
		"--root-disk", "tmpfs:" + strconv.Itoa(rootMB) + "M", "--tmpfs", "/tmp:" + strconv.Itoa(tmpMB) + "M",
		"--idle-timeout", "5m", "--log-level", "error",
	}
	guest := executor.DefaultGuest()
	if spec.Workspace != "" {
		// Links are real links on the host, and permission bits real bits.
		mount, err := mountArg(spec.Workspace, guest.Workspace, "rw", "nosuid", "nodev", "stat-virt=relaxed", "host-perms=mirror",
			"uid="+strconv.Itoa(guest.UID), "gid="+strconv.Itoa(guest.UID), "quota="+strconv.Itoa(workspaceMB)+"M")
		if err != nil {
			return nil, err
		}
		args = append(args, "--mount-dir", mount)
	}
	for _, m := range spec.Mounts {
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		mount, err := mountArg(m.Source, m.Target, access, "nosuid", "nodev", "stat-virt=off")
		if err != nil {
			return nil, err
		}
		args = append(args, "--mount-dir", mount)
	}
	return append(args, ref), nil
}

// Sizes in MiB. Root and /tmp are the box's memory; the workspace's limit is the pool's to keep, and
// this one is behind it.
const (
	guestMB     = 192 // kernel, agent, runner
	rootMB      = 64
	tmpMB       = 64
	workspaceMB = 64 << 10
)

// mountArg is SOURCE:TARGET:OPTIONS, which has no way to write a colon or a comma.
func mountArg(source, target string, options ...string) (string, error) {
	if strings.ContainsAny(source+target, ":,;=\n") {
		return "", fmt.Errorf("msb cannot mount %q at %q: the names may have none of : , ; =", source, target)
	}
	return source + ":" + target + ":" + strings.Join(options, ","), nil
}
