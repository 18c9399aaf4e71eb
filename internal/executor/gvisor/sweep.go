package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// probeOwner begins the owner names of probes. Each is one process's, so what a dead
// one left belongs to nobody and goes with the next sweep, whoever sweeps.
const probeOwner = ".probe-"

// Sweep destroys what boxes of an earlier process of this owner left. Boxes made by
// this driver are spared. Another living process with the same owner is an error,
// hostdir.ErrLocked, and nothing is touched.
func (d *Driver) Sweep(ctx context.Context, ownerName string) error {
	if !plainName(ownerName) {
		return fmt.Errorf("sweep gvisor boxes: owner %q must be a plain file name", ownerName)
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	o, err := d.own(ownerName)
	if err != nil {
		return fmt.Errorf("sweep gvisor boxes: %w", err)
	}
	if err := errors.Join(d.sweepOwner(ctx, o), d.sweepProbes(ctx)); err != nil {
		return fmt.Errorf("sweep gvisor boxes of %s: %w", ownerName, err)
	}
	return nil
}

// sweepOwner removes every box of the owner but those that this process made.
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
		errs = append(errs, hostdir.UnmountBelow(o.dir))
		// Processes that have lost their arguments but are not gone hold their groups.
		errs = append(errs, retry(ctx, func() error { return d.cgroups.removeOwner(o.dir) }))
	}
	return errors.Join(errs...)
}

// sweepProbes removes what probes of dead processes left.
func (d *Driver) sweepProbes(ctx context.Context) error {
	entries, err := os.ReadDir(d.opts.Dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), probeOwner) {
			continue
		}
		dir := filepath.Join(d.opts.Dir, entry.Name())
		lock, err := hostdir.Acquire(dir)
		if errors.Is(err, hostdir.ErrLocked) {
			continue
		}
		if err == nil {
			err = errors.Join(d.sweepOwner(ctx, &owner{dir: dir}), hostdir.Remove(dir))
			lock.Release()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
