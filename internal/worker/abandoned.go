package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/filelock"
)

// Abandoned is a directory whose worker has ended without removing its boxes, for example because it was killed. It
// need not be in this process's data directory. It is locked until Close.
type Abandoned struct {
	Dir
	Owners []string // the owners of boxes: names of directories
}

// FindAbandoned locks and returns the workers' directories on this host that no worker uses and that contain boxes. It
// looks at the directories that workers have registered, those that contain mounted disks of boxes, and those that
// contain gvisorOwners, which are owners' directories of the driver gvisor. A directory is in use if a process holds
// its lock or the lock of one of its owners. Directories that this user may not open belong to another user, and are
// omitted. The error is about directories that could not be examined; the others are returned nevertheless.
func FindAbandoned(gvisorOwners []string) ([]Abandoned, error) {
	candidates, err := registered()
	disks, disksErr := hostdir.Disks()
	for _, d := range disks {
		if dir, ok := dirOfDisk(d.Image); ok {
			candidates = append(candidates, dir)
		}
	}
	for _, owner := range gvisorOwners {
		if parent := filepath.Dir(owner); filepath.Base(parent) == gvisorDir {
			candidates = append(candidates, filepath.Dir(parent))
		}
	}
	slices.Sort(candidates)
	errs := []error{err, disksErr}
	var found []Abandoned
	for _, path := range slices.Compact(candidates) {
		a, ok, err := lockAbandoned(path, gvisorOwners)
		if ok {
			found = append(found, a)
		}
		if !errors.Is(err, fs.ErrPermission) {
			errs = append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}

// dirOfDisk returns DIR, the worker's directory, if image is the disk of a box: DIR/boxes/OWNER/ws/BOX/disk.
func dirOfDisk(image string) (dir string, ok bool) {
	parts := strings.Split(image, "/")
	n := len(parts) - 5
	if n < 2 || parts[n] != boxesDir || parts[n+2] != "ws" || parts[n+4] != "disk" {
		return "", false
	}
	return strings.Join(parts[:n], "/"), true
}

// lockAbandoned locks a directory, unless a worker uses it or it has no owners of boxes. In the latter case, it removes
// the directory from the registry.
func lockAbandoned(path string, gvisorOwners []string) (a Abandoned, ok bool, err error) {
	a = Abandoned{Dir: Dir{path: path}}
	if held, err := hostdir.Held(path); held || err != nil {
		return a, false, err
	}
	var locks []string
	for _, parent := range []string{a.Boxes(), a.GVisor(), filepath.Join(a.Microsandbox(), "owners")} {
		entries, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return a, false, fmt.Errorf("find boxes in %s: %w", path, err)
		}
		for _, e := range entries {
			a.Owners, locks = append(a.Owners, e.Name()), append(locks, filepath.Join(parent, e.Name()))
		}
	}
	for _, owner := range gvisorOwners { // ReadDir does not find those whose directories were deleted
		if filepath.Dir(owner) == a.GVisor() {
			a.Owners, locks = append(a.Owners, filepath.Base(owner)), append(locks, owner)
		}
	}
	if len(a.Owners) == 0 {
		return a, false, unregister(path)
	}
	slices.Sort(a.Owners)
	a.Owners = slices.Compact(a.Owners)
	for _, dir := range locks {
		if held, err := hostdir.Held(dir); held || err != nil {
			return a, false, err
		}
	}
	a.lock, err = hostdir.Acquire(path)
	if errors.Is(err, filelock.ErrLocked) { // a worker has started since Held
		return a, false, nil
	}
	return a, err == nil, err
}

// RemoveFiles removes the files of boxes and their mounts, and the directory if it contains nothing else, such as files
// of microsandbox, which that driver removes. Call it after the boxes have been removed.
func (a *Abandoned) RemoveFiles() error {
	for _, dir := range []string{a.Boxes(), a.GVisor()} {
		if err := hostdir.Remove(dir); err != nil {
			return fmt.Errorf("remove the box files of an ended worker: %w", err)
		}
	}
	if left, err := os.ReadDir(a.path); err == nil && len(left) == 1 { // only the lock is left
		return hostdir.Remove(a.path)
	}
	return nil
}

// register makes a symbolic link to a worker's directory in the registry of this host, so that workers with other data
// directories find it if this worker is killed. On a host without a registry it does nothing.
func register(dir string) error {
	registry := registryDir()
	if registry == "" {
		return nil
	}
	if err := os.MkdirAll(registry, 0o700); err != nil {
		return fmt.Errorf("register worker directory: %w", err)
	}
	err := os.Symlink(dir, filepath.Join(registry, hostdir.PathHash(dir)))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("register worker directory: %w", err)
	}
	return nil
}

// unregister removes the link that register has made.
func unregister(dir string) error {
	if registry := registryDir(); registry != "" {
		err := os.Remove(filepath.Join(registry, hostdir.PathHash(dir)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("unregister worker directory: %w", err)
		}
	}
	return nil
}

// registered returns the registered directories.
func registered() ([]string, error) {
	registry := registryDir()
	entries, err := os.ReadDir(registry)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list worker directories: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		if dir, err := os.Readlink(filepath.Join(registry, e.Name())); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// registryDir returns the directory in which this user's workers register. It is emptied when the host boots. On a host
// without /run (or /run/user/UID), registryDir returns an empty string.
func registryDir() string {
	parent := "/run"
	if uid := os.Geteuid(); uid != 0 {
		parent = filepath.Join(parent, "user", strconv.Itoa(uid))
	}
	if _, err := os.Stat(parent); err != nil {
		return ""
	}
	return filepath.Join(parent, "codefleet", "workers")
}
