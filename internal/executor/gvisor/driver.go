// Package gvisor makes boxes with gVisor's runsc: a kernel of its own in user space
// for each box, no hardware virtualisation needed, as root or as an ordinary user.
//
// [Driver] is an executor.Driver, Prober and Sweeper. A box is one directory below
// Options.Dir/<owner>/b with its OCI bundle and runsc's state, and one cgroup where
// we are root. The sandbox boots with the first Exec, whose process is its init; when
// that ends the sandbox ends. Everything that runs on the host for a box names the
// box's directory in its arguments: that is how Destroy and Sweep find it.
//
// The processes of a box die with the worker: each is killed when its parent ends.
// What a killed worker leaves (directories, cgroups, a mount) is removed by Sweep.
package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// Options of New.
type Options struct {
	Runsc  string       // path of the runsc binary
	Dir    string       // state of boxes on this host; short, because sockets lie in it
	Rootfs string       // directory that boxes see as their root, read-only; empty: parts of the host's /usr
	Log    *slog.Logger // default: none
}

// Driver makes boxes. Its methods may be called from several goroutines.
type Driver struct {
	opts     Options
	rootless bool
	log      *slog.Logger

	probing sync.Mutex     // one probe at a time
	info    *executor.Info // of the first successful one

	mu      sync.Mutex
	cgroups cgroups           // without any when the probe could not use them
	owners  map[string]*owner // those whose lock this process holds

	images images
}

// owner is what this process holds in the name of one owner.
type owner struct {
	dir    string
	root   string // root file system of its boxes, but for those of an image
	python string // path of its interpreter
	lock   *hostdir.Lock
	boxes  map[string]bool // names of the boxes made by this process
}

// Paths of sockets end at 107 bytes; runsc's is <box directory>/runsc-b.sock.
const maxBoxDir = 107 - len("/runsc-"+containerID+".sock")

// New returns a driver. Whether it works is for Probe to say.
func New(opts Options) (*Driver, error) {
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("gvisor state directory: %w", err)
	}
	opts.Dir = dir
	if opts.Rootfs != "" {
		if opts.Rootfs, err = filepath.Abs(opts.Rootfs); err != nil {
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
		d.cgroups = findCgroups("/sys/fs/cgroup")
	}
	return d, nil
}

// Create makes the box's directory and cgroup. The sandbox boots with the first Exec.
func (d *Driver) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	if !plainName(spec.Name) || !plainName(spec.Owner) {
		return nil, fmt.Errorf("create gvisor box: name %q and owner %q must be plain file names", spec.Name, spec.Owner)
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
	return restorable{b}, nil
}

// create makes a box of an image, or of the driver's own root.
func (d *Driver) create(ctx context.Context, spec executor.Spec, image *imageRoot) (*box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, dir, err := d.claim(spec.Owner, spec.Name, image == nil)
	if err != nil {
		return nil, err
	}
	b := &box{driver: d, spec: spec, dir: dir, owner: o, root: o.root, python: o.python}
	if image != nil {
		b.root, b.python, b.spec.Image = image.dir, image.python, image.dir
	}
	if err := b.prepare(d.groups()); err != nil {
		return nil, errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// plainName keeps names inside their directories, and those that begin with a dot for us.
func plainName(s string) bool {
	return s != "" && s[0] != '.' && !strings.ContainsAny(s, "/\x00,: \n")
}

// claim takes the owner's lock, where this process has not yet, and the name of a box.
func (d *Driver) claim(ownerName, boxName string, ownRoot bool) (o *owner, dir string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o, err = d.own(ownerName); err != nil {
		return nil, "", err
	}
	if o.root == "" && ownRoot {
		if o.root, o.python, err = d.prepareRoot(o.dir); err != nil {
			return nil, "", err
		}
	}
	dir = filepath.Join(o.dir, "b", boxName)
	if len(dir) > maxBoxDir {
		return nil, "", fmt.Errorf("path %s is %d bytes long, at most %d fit: choose a shorter state directory", dir, len(dir), maxBoxDir)
	}
	if o.boxes[boxName] {
		return nil, "", fmt.Errorf("there is a box of this name: %w", os.ErrExist)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, "", err
	}
	o.boxes[boxName] = true
	return o, dir, nil
}

func (d *Driver) groups() cgroups {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cgroups
}

// own returns the owner whose lock this process holds; d.mu is held.
func (d *Driver) own(name string) (*owner, error) {
	if o := d.owners[name]; o != nil {
		return o, nil
	}
	dir := filepath.Join(d.opts.Dir, name)
	lock, err := hostdir.Acquire(dir)
	if err != nil {
		return nil, fmt.Errorf("boxes of owner %s: %w", name, err)
	}
	o := &owner{dir: dir, lock: lock, boxes: map[string]bool{}}
	d.owners[name] = o
	return o, nil
}

// forget gives a box's name back after it was destroyed.
func (d *Driver) forget(spec executor.Spec) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.owners[spec.Owner]; o != nil {
		delete(o.boxes, spec.Name)
	}
}

// Close gives up the owners of this driver, whose boxes are destroyed by now, and
// removes what they shared. Boxes that are left keep running until Sweep.
func (d *Driver) Close() error {
	d.mu.Lock()
	names := slices.Collect(maps.Keys(d.owners))
	d.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, d.disown(name))
	}
	return errors.Join(errs...)
}

// disown gives up one owner and removes what its boxes shared.
func (d *Driver) disown(name string) error {
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
