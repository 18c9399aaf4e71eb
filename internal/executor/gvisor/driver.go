// Package gvisor creates boxes with gVisor's runsc: a user-space kernel for each box. It needs no hardware
// virtualisation, and works as root and as an ordinary user.
//
// [Driver] is an executor.Driver, Inspector and Sweeper. A box is one directory below Options.Dir/<owner>/b,
// with its OCI bundle and runsc's state, and one cgroup if this process is root. The sandbox boots with the
// first Exec, whose process is its init; the sandbox ends with that process. Every process on the host that
// belongs to a box has the box's directory in its arguments, by which Destroy and Sweep find it.
//
// The processes of a box die with the worker: each is killed when its parent ends. Sweep removes what a killed
// worker leaves behind: directories, cgroups and mounts.
package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// Options configure New.
type Options struct {
	Runsc  string       // path of the runsc binary
	Dir    string       // directory for state; keep it short, because the length of socket paths is limited
	Rootfs string       // root directory of boxes, read-only; if empty, they see parts of the host's /usr
	Log    *slog.Logger // default discards
}

// Driver creates boxes. Its methods may be called from several goroutines.
type Driver struct {
	opts     Options
	rootless bool
	log      *slog.Logger

	probe  executor.ProbeOnce
	images sync.Map // of *imageRoot, by Spec.Image

	mu      sync.Mutex
	cgroups cgroups           // disabled if the probe could not use them
	owners  map[string]*owner // by name
}

// owner is an owner of boxes whose lock this process holds.
type owner struct {
	dir    string
	root   string // root file system of boxes without an image; empty until it is prepared
	python string // path of the interpreter in root
	lock   *hostdir.Lock
	boxes  map[string]bool // boxes of this process by name; false if one is left of a failed creation
}

// maxBoxDir is the longest path of a box directory, in bytes. The path of a socket is at most 107 bytes long;
// runsc's socket is <box directory>/runsc-b.sock.
const maxBoxDir = 107 - len("/runsc-"+containerID+".sock")

// New returns a driver. Probe tests whether it works.
func New(opts Options) (*Driver, error) {
	var err error
	if opts.Dir, err = realPath(opts.Dir); err != nil {
		return nil, fmt.Errorf("gvisor state directory: %w", err)
	}
	if opts.Rootfs != "" {
		if opts.Rootfs, err = realPath(opts.Rootfs); err != nil {
			return nil, fmt.Errorf("gvisor root file system: %w", err)
		}
	}
	if opts.Runsc, err = filepath.Abs(cmp.Or(opts.Runsc, "runsc")); err != nil {
		return nil, fmt.Errorf("gvisor engine: %w", err)
	}
	d := &Driver{
		opts:     opts,
		rootless: os.Geteuid() != 0,
		log:      cmp.Or(opts.Log, slog.New(slog.DiscardHandler)),
		owners:   map[string]*owner{},
	}
	if !d.rootless {
		d.cgroups = findCgroups(cgroupMount)
	}
	return d, nil
}

// realPath returns the absolute path of a file, without symbolic links if it exists: the engine does not follow them.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return target, err
}

// Create creates the directory and cgroup of a box. The sandbox boots with the first Exec.
func (d *Driver) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	if !validName(spec.Name) || !validName(spec.Owner) {
		return nil, fmt.Errorf("create gvisor box: invalid name %q or owner %q", spec.Name, spec.Owner)
	}
	var root *imageRoot
	var err error
	if spec.Image != "" {
		root, err = d.image(ctx, spec.Image)
	}
	var b *box
	if err == nil {
		b, err = d.create(ctx, spec, root)
	}
	if err != nil {
		return nil, fmt.Errorf("create gvisor box %s: %w", spec.Name, err)
	}
	if d.rootless {
		return b, nil
	}
	return snapshotBox{b}, nil
}

// create creates a box from an image, or from the driver's default root if image is nil.
func (d *Driver) create(ctx context.Context, spec executor.Spec, image *imageRoot) (*box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := d.reserve(ctx, spec, image == nil)
	if err != nil {
		return nil, err
	}
	if image != nil {
		b.root, b.python, b.spec.Image = image.dir, image.python, image.dir
	}
	if err := b.prepare(d.groups()); err != nil {
		destroyErr := b.Destroy(context.WithoutCancel(ctx))
		if destroyErr != nil {
			d.abandon(spec)
		}
		return nil, errors.Join(err, destroyErr)
	}
	return b, nil
}

// validName reports whether s may name a box or an owner. Names become parts of paths and mount options; those
// that begin with a dot are reserved for probes.
func validName(s string) bool {
	return s != "" && s[0] != '.' && !strings.ContainsAny(s, "/\x00,: \n")
}

// reserve locks the owner, unless this process already holds the lock, reserves a box name, and makes the box's
// directory. If defaultRoot is set, it also prepares the owner's root file system, once, and the box uses it.
func (d *Driver) reserve(ctx context.Context, spec executor.Spec, defaultRoot bool) (*box, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, err := d.lockOwner(spec.Owner)
	if err != nil {
		return nil, err
	}
	if o.root == "" && defaultRoot {
		if o.root, o.python, err = d.prepareRoot(ctx, o.dir); err != nil {
			return nil, err
		}
	}
	dir := filepath.Join(o.dir, "b", spec.Name)
	if len(dir) > maxBoxDir {
		return nil, fmt.Errorf("path %s is %d bytes; the limit is %d; choose a shorter state directory",
			dir, len(dir), maxBoxDir)
	}
	used, left := o.boxes[spec.Name]
	if used {
		return nil, fmt.Errorf("duplicate name: %w", os.ErrExist)
	}
	if left {
		if err := hostdir.Remove(dir); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	o.boxes[spec.Name] = true
	return &box{driver: d, spec: spec, dir: dir, owner: o, root: o.root, python: o.python}, nil
}

func (d *Driver) groups() cgroups {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cgroups
}

// lockOwner returns the owner. It locks the owner unless this process already holds the lock; d.mu is held.
func (d *Driver) lockOwner(name string) (*owner, error) {
	if o := d.owners[name]; o != nil {
		return o, nil
	}
	dir := filepath.Join(d.opts.Dir, name)
	lock, err := hostdir.Acquire(dir)
	if err != nil {
		return nil, fmt.Errorf("lock owner %s: %w", name, err)
	}
	o := &owner{dir: dir, lock: lock, boxes: map[string]bool{}}
	d.owners[name] = o
	return o, nil
}

// freeName frees the name of a destroyed box.
func (d *Driver) freeName(spec executor.Spec) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.owners[spec.Owner]; o != nil {
		delete(o.boxes, spec.Name)
	}
}

// abandon lets the next creation have the name of a box that could neither be created nor removed. Such a box has no
// processes.
func (d *Driver) abandon(spec executor.Spec) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.owners[spec.Owner]; o != nil {
		o.boxes[spec.Name] = false
	}
}

// Close unlocks the driver's owners and removes the files that their boxes shared. Call it after the boxes are
// destroyed; boxes that are left run until this process ends or a Sweep removes them.
func (d *Driver) Close() error {
	d.mu.Lock()
	names := slices.Collect(maps.Keys(d.owners))
	d.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, d.unlockOwner(name))
	}
	return errors.Join(errs...)
}

// unlockOwner unlocks one owner and, if it has no boxes left, removes the files that they shared.
func (d *Driver) unlockOwner(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.owners[name]
	if o == nil {
		return nil
	}
	delete(d.owners, name)
	defer o.lock.Release()
	if len(o.boxes) > 0 {
		return nil
	}
	return errors.Join(d.cgroups.removeOwner(o.dir), hostdir.Remove(o.dir))
}
