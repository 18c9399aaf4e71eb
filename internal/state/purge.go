package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// A deleted workspace leaves a HEAD that says so, for late commits to find. When that is old, the HEAD
// itself goes. Object stores delete without a condition, so a HEAD that somebody has just begun anew
// must not be what is deleted: the deletion is announced in the HEAD first, by a swap. It happens
// within purgeWithin of the announcement or not at all, and nobody builds on the HEAD for purgeOver.
//
// What comes after under the same name must not be taken for what was before (by a client that
// remembers generation 5, by a record with artifacts of it). So generations go on where those of all
// purged workspaces of the tenant ended: at the tenant's floor.
const (
	purgeWithin = time.Minute
	purgeOver   = 10 * time.Minute // clocks may differ by the difference
)

// floor is the object that remembers generations of purged workspaces.
type floor struct {
	Generation int64 `json:"generation"` // no new workspace begins with this one or one below
}

func floorKey(tenant string) string { return tenant + "/floor/HEAD" }

func (s *Store) readFloor(ctx context.Context, tenant string) (f floor, etag string, err error) {
	key := floorKey(tenant)
	obj, err := s.objects.Get(ctx, key, objects.GetOptions{})
	if errors.Is(err, ErrNotFound) {
		return f, "", nil
	}
	if err != nil {
		return f, "", err
	}
	body, ok := unseal(obj.Data)
	if err = json.Unmarshal(body, &f); err != nil || !ok || f.Generation < 0 {
		return f, "", fmt.Errorf("%s: %w", key, objects.ErrCorrupt)
	}
	return f, obj.ETag, nil
}

func (s *Store) raiseFloor(ctx context.Context, tenant string, generation int64) error {
	for backoff := s.opts.Retry.NewBackoff(); ; {
		f, etag, err := s.readFloor(ctx, tenant)
		if err != nil || f.Generation >= generation {
			return err
		}
		body, err := json.Marshal(floor{generation})
		if err != nil {
			return err
		}
		_, err = s.objects.CompareAndSwap(ctx, floorKey(tenant), etag, seal(body))
		if errors.Is(err, ErrConflict) || objects.Temporary(ctx, err) {
			if err = backoff.Wait(ctx, err); err == nil {
				continue
			}
		}
		return err
	}
}

// doomed reports whether the HEAD is about to be deleted, and nobody may write it.
func (h *head) doomed() bool { return !h.Purge.IsZero() && time.Since(h.Purge) < purgeOver }

// purge removes the HEAD of a workspace that was deleted long ago and of which nothing else is left.
func (c *collector) purge(ctx context.Context, ref Ref, h head, etag string) error {
	if c.opts.Deleted < 0 || c.now.Sub(h.Time) < c.opts.Deleted || h.doomed() {
		return nil
	}
	c.out.Purged = append(c.out.Purged, ref.Workspace)
	if c.opts.DryRun {
		return nil
	}
	if err := c.store.raiseFloor(ctx, ref.Tenant, h.Generation); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, purgeWithin)
	defer cancel()
	h.Commit, h.Purge = newCommitID(), time.Now().UTC()
	if _, err := c.store.swapHead(ctx, ref, etag, &h); errors.Is(err, ErrConflict) {
		c.out.Purged = c.out.Purged[:len(c.out.Purged)-1]
		return nil // somebody uses it again, or purges it too
	} else if err != nil {
		return err // in doubt; the next run looks again
	}
	for _, key := range []string{ref.pinsKey(), ref.headKey()} {
		if err := c.store.objects.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// gone decides what it means that there is no HEAD where base was read: it was purged, or lost.
func (s *Store) gone(ctx context.Context, ref Ref, base *version) error {
	if base == nil || base.head.Manifest == nil {
		return nil
	}
	_, err := s.objects.Get(ctx, ref.manifestKey(base.head.Manifest.Name), objects.GetOptions{})
	if errors.Is(err, ErrNotFound) {
		return nil // collected, as everything is before a HEAD goes
	}
	if err == nil {
		err = fmt.Errorf("%s is gone, and its manifest %s is there: %w", ref.headKey(), base.head.Manifest.Name, objects.ErrCorrupt)
	}
	return err
}
