// Package microsandbox creates boxes with msb: a virtual machine with its own kernel for each box, on hosts with
// hardware virtualisation.
//
// [Driver] is an executor.Driver, Prober, Sweeper and Interpreter. It runs msb to create and remove sandboxes, a few
// at a time, and talks to the processes in a sandbox over the socket of the sandbox's agent. All state of msb is in
// Options.Dir, which only the driver uses. But the directories of sandboxes, whose logs contain all output of programs,
// are kept in memory: below /dev/shm, if that supports the file attributes that msb needs (Linux 6.6). msb keeps a lock
// file for each sandbox name; the names are few because pools reuse the names of boxes.
//
// Two features of msb 0.7.2 are not used:
//
//   - `msb branch` creates a sandbox from a warm one, faster and with less than half the memory (29 to 36 MB
//     instead of 75 to 83). But the copy cannot have its own workspace: it shares the directories that the
//     source has mounted. A directory that is mapped to another one is stale in the copy (ESTALE); msb refuses a
//     directory that the source does not have, and a source that has unmounted its workspace.
//   - `msb pause` frees no memory. It saves only an idle machine's processor time: a twentieth of one emulated
//     processor, measured where emulation is 60 times slower than hardware. The next task would wait until msb has
//     resumed the sandbox, which takes longer than a small task.
//
// A sandbox outlives the worker that created it. Sweep finds it by its owner label. A sandbox without connections
// stops by itself after five minutes.
package microsandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// Options configure New. A zero field means the default.
type Options struct {
	Msb        string        // path of msb; default msb on PATH
	Dir        string        // directory for state; keep it short, because the length of socket paths is limited
	Image      string        // image of boxes without Spec.Image; default DefaultImage
	MaxImageMB int64         // unpacked size limit of an image; default 4096
	MemoryMB   int           // memory of a box for programs; default 768
	CPUs       float64       // processors of a box, rounded up; default 1
	Timeout    time.Duration // limit of an msb command, ten times as long for fetching an image; default 60 s
	Log        *slog.Logger  // default discards
}

// DefaultImage has Python 3.12. It is fetched from its registry when it is first used.
const DefaultImage = "docker.io/library/python:3.12-slim"

// Driver creates boxes. Its methods may be called from several goroutines.
type Driver struct {
	opts    Options
	home    string        // MSB_HOME
	boxes   string        // msb's state of each sandbox, including logs
	calls   chan struct{} // limits concurrent msb commands
	fetches chan struct{} // lets one msb command at a time fetch an image, which takes long
	log     *slog.Logger
	images  sync.Map // of *image, by name
	probe   executor.ProbeOnce

	mu     sync.Mutex
	owners map[string]*owner // by name
}

// owner is an owner of boxes whose lock this process holds.
type owner struct {
	lock  *hostdir.Lock
	boxes map[string]bool // sandboxes of this process by name; false if one is left of a failed creation
}

// New returns a driver. Probe tests whether it works.
func New(opts Options) (*Driver, error) {
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("microsandbox state directory: %w", err)
	}
	opts.Dir = dir
	opts.Msb = cmp.Or(opts.Msb, "msb")
	if strings.Contains(opts.Msb, "/") { // commands have another working directory
		if opts.Msb, err = filepath.Abs(opts.Msb); err != nil {
			return nil, fmt.Errorf("path of msb: %w", err)
		}
	}
	opts.Image = cmp.Or(opts.Image, DefaultImage)
	opts.MaxImageMB = cmp.Or(opts.MaxImageMB, 4096)
	opts.MemoryMB = cmp.Or(opts.MemoryMB, 768)
	opts.CPUs = cmp.Or(opts.CPUs, 1)
	opts.Timeout = cmp.Or(opts.Timeout, time.Minute)
	if socket := agentSocket(dir, ""); len(socket) > maxSocket {
		return nil, fmt.Errorf("microsandbox: path %s is %d bytes; the limit is %d; choose a shorter state directory",
			socket, len(socket), maxSocket)
	}
	d := &Driver{
		opts: opts, home: dir,
		boxes:   filepath.Join(dir, "sandboxes"),
		calls:   make(chan struct{}, max(2, runtime.NumCPU())),
		fetches: make(chan struct{}, 1),
		log:     cmp.Or(opts.Log, slog.New(slog.DiscardHandler)),
		owners:  map[string]*owner{},
	}
	if supportsUserAttributes(memoryDir) {
		d.boxes = filepath.Join(memoryDir, "codefleet-msb-"+hostdir.PathHash(dir))
	}
	return d, nil
}

const (
	memoryDir = "/dev/shm"
	maxSocket = 107 // limit of a socket's path, in bytes
)

// Create boots a sandbox and prepares it for programs.
func (d *Driver) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	if !validName(spec.Name) || !validName(spec.Owner) {
		return nil, fmt.Errorf("create microsandbox box: invalid name %q or owner %q", spec.Name, spec.Owner)
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
	name, left, err := d.reserve(spec.Owner, spec.Name)
	if err != nil {
		return nil, err
	}
	b := &box{driver: d, spec: spec, name: name}
	if left {
		err = d.remove(ctx, name, true)
	}
	if err == nil {
		err = b.boot(ctx)
	}
	if err == nil {
		return b, nil
	}
	if destroyErr := b.Destroy(context.WithoutCancel(ctx)); destroyErr != nil {
		d.abandon(spec.Owner, name)
		err = errors.Join(err, destroyErr)
	}
	return nil, err
}

// validName reports whether msb accepts s as a part of a name.
func validName(s string) bool {
	for _, c := range s {
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != "" && len(s) <= 60
}

// reserve locks the owner, unless this process already holds the lock, and reserves a sandbox name. left
// says that a failed creation may have left a sandbox of that name.
func (d *Driver) reserve(ownerName, boxName string) (name string, left bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, err := d.lockOwner(ownerName)
	if err != nil {
		return "", false, err
	}
	name = ownerName + "." + boxName
	used, left := o.boxes[name]
	if used {
		return "", false, fmt.Errorf("duplicate name: %w", os.ErrExist)
	}
	o.boxes[name] = true
	return name, left, nil
}

// lockOwner returns the owner. It locks the owner unless this process already holds the lock; d.mu is held.
func (d *Driver) lockOwner(name string) (*owner, error) {
	if o := d.owners[name]; o != nil {
		return o, nil
	}
	if err := d.prepareHome(); err != nil {
		return nil, err
	}
	lock, err := hostdir.Acquire(filepath.Join(d.home, "owners", name))
	if err != nil {
		return nil, fmt.Errorf("lock owner %s: %w", name, err)
	}
	o := &owner{lock: lock, boxes: map[string]bool{}}
	d.owners[name] = o
	return o, nil
}

// prepareHome makes msb's directories, and its settings file, which names the directory of sandboxes.
func (d *Driver) prepareHome() error {
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

// freeName frees the name of a removed sandbox.
func (d *Driver) freeName(ownerName, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.owners[ownerName]; o != nil {
		delete(o.boxes, name)
	}
}

// abandon lets the next creation have the name of a sandbox that could neither be created nor removed.
func (d *Driver) abandon(ownerName, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.owners[ownerName]; o != nil {
		o.boxes[name] = false
	}
}

// Close unlocks the driver's owners. Call it after the boxes are destroyed; boxes that are left run until a Sweep.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for name := range d.owners {
		errs = append(errs, d.unlockOwner(name))
	}
	if entries, err := os.ReadDir(d.boxes); err == nil && len(entries) == 0 {
		errs = append(errs, os.Remove(d.boxes))
	}
	return errors.Join(errs...)
}

// unlockOwner unlocks one owner and, if it has no boxes left, removes its directory; d.mu is held.
func (d *Driver) unlockOwner(name string) error {
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

// createArgs returns the msb arguments that create a box. The box has no network. Its root file system is in memory. Of
// this host, it sees only the workspace and the Spec's mounts.
func (d *Driver) createArgs(name string, spec executor.Spec, ref string) ([]string, error) {
	args := []string{
		"create", "--quiet", "--name", name, "--label", "owner=" + spec.Owner, "--pull", "never",
		"--no-net", "--security", "restricted", "--deployment-profile", "multi-tenant",
		"--hostname", "box", "--workdir", "/",
		"--cpus", strconv.Itoa(max(1, int(math.Ceil(cmp.Or(spec.CPUs, d.opts.CPUs))))),
		"--memory", strconv.Itoa(cmp.Or(spec.MemoryMB, d.opts.MemoryMB)+guestMB) + "M",
		"--root-disk", "tmpfs:" + strconv.Itoa(rootMB) + "M",
		"--tmpfs", "/tmp:" + strconv.Itoa(tmpMB) + "M",
		"--idle-timeout", "5m", "--log-level", "error",
	}
	guest := executor.DefaultGuest()
	if spec.Workspace != "" {
		// Symbolic links and permission bits are the same on the host.
		uid := strconv.Itoa(guest.UID)
		mount, err := mountArg(spec.Workspace, guest.Workspace, "rw", "nosuid", "nodev", "stat-virt=relaxed",
			"host-perms=mirror", "uid="+uid, "gid="+uid, "quota="+strconv.Itoa(workspaceMB)+"M")
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

// Sizes in MiB. The root file system and /tmp count against the box's memory. workspaceMB is only a second bound:
// the pool enforces the workspace limit.
const (
	guestMB     = 192 // kernel, agent, runner
	rootMB      = 64
	tmpMB       = 64
	workspaceMB = 64 << 10
)

// mountArg returns SOURCE:TARGET:OPTIONS. It refuses names with characters that have a meaning in this syntax, which
// cannot escape them.
func mountArg(source, target string, options ...string) (string, error) {
	if strings.ContainsAny(source+target, ":,;=\n") {
		return "", fmt.Errorf("msb cannot mount %q at %q: the names must not contain : , ; =", source, target)
	}
	return source + ":" + target + ":" + strings.Join(options, ","), nil
}
