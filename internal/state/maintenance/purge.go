package maintenance

import (
	"context"
	"errors"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// A deleted workspace leaves a HEAD that says so, for late commits to find. When that is old, the HEAD itself is
// deleted. Object stores delete without a condition, and a HEAD that a task has just begun anew must not be deleted:
// so the deletion is announced in the HEAD first, by a swap. It happens within purgeWithin of the announcement or not
// at all, and no commit replaces the HEAD for ten minutes (format.Head.Purging): clocks may differ by the difference.
//
// What comes after under the same name must not be taken for what was before (by a client that remembers generation
// 5, by a record with artifacts of it). So generations go on where those of all purged workspaces of the tenant ended:
// at the tenant's floor.
const purgeWithin = time.Minute

// purge removes the HEAD of a workspace that was deleted long ago and of which nothing else is left.
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
	ctx, cancel := context.WithTimeout(ctx, purgeWithin)
	defer cancel()
	h.Commit, h.Purge = format.NewCommitID(), time.Now().UTC()
	if _, err := c.repo.SwapHead(ctx, ref, etag, &h); errors.Is(err, objects.ErrConflict) {
		c.out.Purged = c.out.Purged[:len(c.out.Purged)-1]
		return nil // somebody uses it again, or purges it too
	} else if err != nil {
		return err // in doubt; the next run looks again
	}
	for _, key := range []string{ref.PinsKey(), ref.HeadKey()} {
		if err := c.repo.Bucket.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
