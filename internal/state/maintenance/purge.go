package maintenance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// A deleted workspace keeps a HEAD, its tombstone, so that late commits fail. A purge removes the tombstone when it is
// old. Object stores delete unconditionally, so a purge could delete the HEAD of a workspace that has just been created
// again. Therefore a purge first announces the deletion, by swapping HEAD, and then deletes HEAD within purgeTimeout or
// not at all. Commits do not replace HEAD for ten minutes after the announcement (see format.Head.Purging); the margin
// allows for different clocks.
//
// A client that remembers a generation of the old workspace must not mistake a new workspace of the same name for it.
// Therefore the generations of new workspaces begin above the tenant's floor: the last generation of all its purged
// workspaces.
const purgeTimeout = time.Minute

// purge removes the pins and HEAD of a workspace that was deleted long ago and has no other objects.
func (c *collector) purge(ctx context.Context, ref format.Ref, h format.Head, etag string) error {
	if c.opts.Deleted < 0 || c.now.Sub(h.Time) < c.opts.Deleted || h.Purging() {
		return nil
	}
	c.out.Purged = append(c.out.Purged, ref.Workspace)
	if c.opts.DryRun {
		return nil
	}
	if err := c.repo.RaiseFloor(ctx, ref.Tenant, h.Generation); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	h.Commit, h.Purge = format.NewCommitID(), time.Now().UTC()
	if _, err := c.repo.SwapHead(ctx, ref, etag, &h); errors.Is(err, objects.ErrConflict) {
		c.out.Purged = c.out.Purged[:len(c.out.Purged)-1]
		return nil // created again, or purged by a concurrent run
	} else if err != nil {
		return err // HEAD may have been swapped; the next run tries again
	}
	for _, key := range []string{ref.PinsKey(), ref.HeadKey()} {
		// The time limit of ctx does not count while the machine is suspended; h.Purge is a wall time.
		if age := time.Since(h.Purge); age > purgeTimeout {
			return fmt.Errorf("%w: the purge of %s was announced %s ago, too long ago to delete it: the next run "+
				"tries again", objects.ErrTemporary, ref, age.Round(time.Second))
		}
		if err := c.repo.Bucket.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
