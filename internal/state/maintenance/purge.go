package maintenance

import (
	"context"
	"errors"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// A deleted workspace leaves a HEAD that says so, for late commits to find. A purge removes that HEAD when it is old.
// Object stores delete without a condition, and the HEAD of a workspace that has just been begun anew must not be
// deleted. So a purge announces the deletion in HEAD, by a swap, and deletes within purgeTimeout or not at all. No
// commit replaces HEAD for ten minutes after the announcement (format.Head.Purging): clocks may differ by the rest.
//
// A new workspace of the same name must not be mistaken for the old one, by a client that remembers generation 5 or a
// record with artifacts of it. So its generations begin above those of all purged workspaces of the tenant: the
// tenant's floor.
const purgeTimeout = time.Minute

// purge removes the HEAD of a workspace that was deleted long ago and has no other objects.
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
		return nil // begun anew, or purged by a concurrent run
	} else if err != nil {
		return err // in doubt; the next run tries again
	}
	for _, key := range []string{ref.PinsKey(), ref.HeadKey()} {
		if err := c.repo.Bucket.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
