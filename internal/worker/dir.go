package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/codefleet/codefleet/internal/dirsync"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/filelock"
)

// Dir is a directory that one worker of this host uses exclusively. Its paths are short, because the
// length of a socket's path is limited.
type Dir struct {
	path string
	lock *hostdir.Lock

	registered bool
}

const (
	boxesDir  = "boxes"
	gvisorDir = "g"
)

// maxWorkers bounds how many workers share a data directory.
const maxWorkers = 64

// OpenDir returns the first directory below data that no running worker uses, so a worker that starts after a
// crash finds, and removes, what the crashed one left. The caller closes it.
func OpenDir(data string) (*Dir, error) {
	data, err := filepath.Abs(data) // boxes have a different working directory
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	if err := dirsync.MarkDataDir(data); err != nil {
		return nil, err
	}
	// The engines of sandboxes do not follow symbolic links, and mounts are listed without them.
	if data, err = filepath.EvalSymlinks(data); err != nil {
		return nil, err
	}
	for i := range maxWorkers {
		path := dirPath(data, i)
		lock, err := hostdir.Acquire(path)
		if errors.Is(err, filelock.ErrLocked) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// If the registration fails, only workers with this data directory find the directory.
		return &Dir{path, lock, register(path) == nil}, nil
	}
	return nil, fmt.Errorf("open a directory below %s: %d workers use it already; set another data directory",
		data, maxWorkers)
}

func dirPath(data string, i int) string { return filepath.Join(data, "w"+strconv.Itoa(i)) }

// FirstDir returns the first worker's directory without locking it. Use it only to read.
func FirstDir(data string) *Dir { return &Dir{path: dirPath(data, 0)} }

// Microsandbox returns the directory of the driver microsandbox, which also contains its images.
func (d *Dir) Microsandbox() string { return filepath.Join(d.path, "m") }

// GVisor returns the directory of the driver gvisor.
func (d *Dir) GVisor() string { return filepath.Join(d.path, gvisorDir) }

// Catalogue returns the directory of catalogue versions.
func (d *Dir) Catalogue() string { return filepath.Join(d.path, "catalogue") }

// Boxes returns the directory of the pool.
func (d *Dir) Boxes() string { return filepath.Join(d.path, boxesDir) }

// Cache returns the directory of the workspace store's cache.
func (d *Dir) Cache() string { return filepath.Join(d.path, "cache") }

// Path returns the directory.
func (d *Dir) Path() string { return d.path }

// Close lets another worker use the directory. If no boxes are left in it, Close also removes it from the registry.
func (d *Dir) Close() {
	if left, _ := os.ReadDir(d.Boxes()); d.registered && len(left) == 0 {
		_ = unregister(d.path) // a link to an unused directory has no effect
	}
	d.lock.Release()
}
