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

// Sweep removes what dead processes left behind: the owner's boxes, and the boxes of probes. It does not remove boxes
// of this driver. If another process of the same owner is running, the error is filelock.ErrLocked and nothing is
// changed.
func (d *Driver) Sweep(ctx context.Context, ownerName string) error {
	if !validName(ownerName) {
		return fmt.Errorf("sweep microsandbox boxes: invalid owner %q", ownerName)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o, err := d.lockOwner(ownerName)
	if err != nil {
		return fmt.Errorf("sweep microsandbox boxes: %w", err)
	}
	err = d.sweepOwner(ctx, ownerName, o)
	err = errors.Join(err, hostdir.Sweep(filepath.Join(d.home, "owners"), probeOwner, func(name string) error {
		return d.sweepOwner(ctx, name, &owner{}) // the name belongs to a dead process
	}))
	if err != nil {
		return fmt.Errorf("sweep microsandbox boxes of %s: %w", ownerName, err)
	}
	return nil
}

// sweepOwner removes the owner's boxes, except those of this process, which are in o.
func (d *Driver) sweepOwner(ctx context.Context, name string, o *owner) error {
	names, err := d.list(ctx, name)
	if err != nil {
		return err
	}
	left, err := os.ReadDir(d.boxes) // includes boxes that msb no longer lists
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
