package executor

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// ErrDiskFull means that the disk of the host with the pool's directory is full. An operator must free space.
var ErrDiskFull = errors.New("no space left on the disk of the worker's host")

// minHostFree is the free space, in bytes, below which a host's disk counts as full.
const minHostFree = 8 << 20

// CheckDisk reports whether what was written to the box's workspace is safely stored. If not, the error
// is ErrDiskFull and the box must be discarded.
//
// A box's disk is a sparse file on the host's disk. If the host's disk is full, the kernel accepts writes and
// loses them later; only a flush returns the error. CheckDisk therefore flushes if the host has less free
// space than the box might use. Otherwise it takes a microsecond.
func (a *AcquiredBox) CheckDisk() error {
	if !a.box.hasDisk {
		return nil // a full disk fails the write itself
	}
	p := a.pool
	free, err := p.hostFree(p.workspacesDir())
	if err != nil || free >= p.opts.DiskMB<<20 {
		return nil //nolint:nilerr // nothing suggests a full disk
	}
	if err := hostdir.Flush(a.box.dir); err != nil {
		return fmt.Errorf("box %s: %w: %w", a.box.id, ErrDiskFull, err)
	}
	return nil
}

// WatchDisk returns a function that reports whether nothing has been written to the box's disk since its last call. The
// function may flush the disk. It returns false when it cannot tell: at its first calls, and without a disk. It may be
// called until the box is destroyed, by one goroutine at a time.
func (a *AcquiredBox) WatchDisk() func() bool {
	b := a.box
	var last hostdir.Revision
	return func() bool {
		if !b.hasDisk {
			return false
		}
		r, err := hostdir.ReadRevision(b.dir, last)
		same := err == nil && r.SameAs(last)
		last = r
		return same
	}
}

// DiskMB returns the size of the box's disk in MiB, or 0 if its workspace is a directory on the host's disk.
func (a *AcquiredBox) DiskMB() int64 {
	if !a.box.hasDisk {
		return 0
	}
	return a.pool.opts.DiskMB
}

// explainFullDisk wraps the error of a box's creation in a HostError if the host's disk is full.
func (p *Pool) explainFullDisk(err error) error {
	free, failed := p.hostFree(p.workspacesDir())
	if failed != nil || free >= minHostFree {
		return err
	}
	return &HostError{
		Reason: ReasonDiskFull, Err: fmt.Errorf("%w: %w", ErrDiskFull, err),
		Fix: "free space on the disk of " + filepath.Dir(p.workspacesDir()) + ", or give the worker a larger one",
	}
}
