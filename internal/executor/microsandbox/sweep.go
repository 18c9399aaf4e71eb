package microsandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// Sweep removes what boxes of an earlier process of this owner left, and of probes of dead ones.
// Boxes made by this driver are spared. Another living process with the same owner is an error,
// hostdir.ErrLocked, and nothing is touched.
func (d *Driver) Sweep(ctx context.Context, ownerName string) error {
	if !plainName(ownerName) {
		return fmt.Errorf("sweep microsandbox boxes: owner %q must be a plain name", ownerName)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o, err := d.own(ownerName)
	if err != nil {
		return fmt.Errorf("sweep microsandbox boxes: %w", err)
	}
	if err := errors.Join(d.sweepOwner(ctx, ownerName, o), d.sweepProbes(ctx)); err != nil {
		return fmt.Errorf("sweep microsandbox boxes of %s: %w", ownerName, err)
	}
	return nil
}

// sweepOwner removes the owner's sandboxes but those that this process made.
func (d *Driver) sweepOwner(ctx context.Context, name string, o *owner) error {
	names, err := d.list(ctx, name)
	if err != nil {
		return err
	}
	left, err := os.ReadDir(d.boxes) // of sandboxes that msb has forgotten
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	for _, box := range names {
		if !o.boxes[box] {
			errs = append(errs, d.remove(ctx, box, true))
		}
	}
	for _, entry := range left {
		if box := entry.Name(); strings.HasPrefix(box, name+".") && !o.boxes[box] {
			errs = append(errs, hostdir.Remove(filepath.Join(d.boxes, box)))
		}
	}
	return errors.Join(errs...)
}

// sweepProbes removes what probes of dead processes left.
func (d *Driver) sweepProbes(ctx context.Context) error {
	entries, err := os.ReadDir(filepath.Join(d.home, "owners"))
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), probeOwner) || d.owners[entry.Name()] != nil {
			continue
		}
		dir := filepath.Join(d.home, "owners", entry.Name())
		lock, err := hostdir.Acquire(dir)
		if errors.Is(err, hostdir.ErrLocked) {
			continue
		}
		if err == nil {
			err = errors.Join(d.sweepOwner(ctx, entry.Name(), &owner{}), hostdir.Remove(dir))
			lock.Release()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
