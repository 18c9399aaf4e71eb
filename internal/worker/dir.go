package worker

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/filelock"
)

// Dir is a directory of one worker of this host. No other running worker uses it. Its name and those in
// it are short, because paths of sockets are limited.
type Dir struct {
	path string
	lock *hostdir.Lock
}

// maxWorkers bounds the workers of one data directory.
const maxWorkers = 64

// OpenDir returns the first directory below data that no running worker uses. A worker that starts after a
// crash thus finds, and removes, what the crashed one left. Close it.
func OpenDir(data string) (*Dir, error) {
	data, err := filepath.Abs(data) // boxes have another working directory
	if err != nil {
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
		return &Dir{path, lock}, nil
	}
	return nil, fmt.Errorf("%d workers use the data directory %s already", maxWorkers, data)
}

func dirPath(data string, i int) string { return filepath.Join(data, "w"+strconv.Itoa(i)) }

// FirstDir is the directory of the first worker of a data directory, without its lock: for reading.
func FirstDir(data string) *Dir { return &Dir{path: dirPath(data, 0)} }

// Microsandbox is the directory of that driver; its images are there.
func (d *Dir) Microsandbox() string { return filepath.Join(d.path, "m") }

// GVisor is the directory of that driver.
func (d *Dir) GVisor() string { return filepath.Join(d.path, "g") }

// Catalogue is the directory of catalogue versions.
func (d *Dir) Catalogue() string { return filepath.Join(d.path, "catalogue") }

// Boxes is the directory of the pool.
func (d *Dir) Boxes() string { return filepath.Join(d.path, "boxes") }

// Cache is the directory of the workspace store's cache.
func (d *Dir) Cache() string { return filepath.Join(d.path, "cache") }

// Close lets another worker use the directory.
func (d *Dir) Close() { d.lock.Release() }
