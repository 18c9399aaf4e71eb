package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// probeOwner is how the owner names of probes begin. Each process has its own name. Every sweep removes what the probes
// of dead processes left behind.
const probeOwner = ".probe-"

// Sweep removes what dead processes left behind: the owner's boxes, and the boxes of probes. It removes no boxes of
// this driver. If another process of the same owner is running, the error is filelock.ErrLocked and nothing is
// changed.
func (d *Driver) Sweep(ctx context.Context, ownerName string) error {
	if !validName(ownerName) {
		return fmt.Errorf("sweep gvisor boxes: invalid owner %q", ownerName)
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	o, err := d.lockOwner(ownerName)
	if err != nil {
		return fmt.Errorf("sweep gvisor boxes: %w", err)
	}
	sweepProbe := func(name string) error {
		return d.sweepOwner(ctx, &owner{dir: filepath.Join(d.opts.Dir, name)})
	}
	if err := errors.Join(d.sweepOwner(ctx, o), hostdir.Sweep(d.opts.Dir, probeOwner, sweepProbe)); err != nil {
		return fmt.Errorf("sweep gvisor boxes of %s: %w", ownerName, err)
	}
	return nil
}

// sweepOwner removes all boxes of the owner except those of this process.
func (d *Driver) sweepOwner(ctx context.Context, o *owner) error {
	boxes, err := os.ReadDir(filepath.Join(o.dir, "b"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	for _, entry := range boxes {
		if o.boxes[entry.Name()] {
			continue
		}
		dir := filepath.Join(o.dir, "b", entry.Name())
		if err := killAll(ctx, dir); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, hostdir.Remove(dir))
	}
	if len(o.boxes) == 0 {
		errs = append(errs,
			killAll(ctx, o.dir), // processes of boxes whose directories were deleted
			hostdir.UnmountBelow(o.dir),
			// Ending processes no longer have arguments, so killAll misses them, but they keep their groups busy.
			retry(ctx, func() error { return d.cgroups.removeOwner(o.dir) }),
		)
	}
	return errors.Join(errs...)
}
