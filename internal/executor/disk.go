package executor

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// ErrDiskFull is the host's disk below the pool's directory being full. A person must mend it.
var ErrDiskFull = errors.New("no space left on the disk of the worker's host")

// hostReserve is how little free space a host's disk may have before it counts as full, where no
// error has said so.
const hostReserve = 8 << 20

// CheckDisk finds out whether what was written to the box's workspace is there to stay; if not, the
// error is ErrDiskFull and the box must be discarded.
//
// A box's disk is a file with holes on the host's disk. Where that is full the kernel takes what is
// written all the same and loses it later, and only a flush tells. So the box's disk is flushed when
// the host has less room than the box might take; otherwise this costs a microsecond.
func (a *AcquiredBox) CheckDisk() error {
	if !a.box.hasDisk {
		return nil // writes fail by themselves
	}
	p := a.pool
	free, err := hostdir.Free(p.workspaces())
	if err != nil || free >= p.opts.DiskMB<<20 {
		return nil //nolint:nilerr // nobody knows, as before
	}
	if err := hostdir.Flush(a.box.dir); err != nil {
		return fmt.Errorf("box %s: %w: %w", a.box.id, ErrDiskFull, err)
	}
	return nil
}

// DiskMB is the size of the box's own disk in MiB; 0 when its workspace lies on the host's.
func (a *AcquiredBox) DiskMB() int64 {
	if !a.box.hasDisk {
		return 0
	}
	return a.pool.opts.DiskMB
}

// onFullDisk says so when it is a full disk that a box could not be made for.
func (p *Pool) onFullDisk(err error) error {
	free, failed := hostdir.Free(p.workspaces())
	if failed != nil || free >= hostReserve {
		return err
	}
	return &HostError{
		Reason: ReasonDiskFull, Err: fmt.Errorf("%w: %w", ErrDiskFull, err),
		Fix: "free space on the disk of " + filepath.Dir(p.workspaces()) + ", or give the worker a larger one",
	}
}
