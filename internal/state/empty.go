package state

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/objects"
)

// How many bytes one collection copies at most; the next one goes on.
const (
	emptyMost = 64 << 20
	rekeyMost = 1 << 30
)

// liveBlobs is what kept versions of a tenant need of a pack.
type liveBlobs struct {
	stored map[int64]int64 // bytes, by offset
	live   int64           // sum of stored
	pinned bool            // a pin needs it, so it stays whatever newest versions need
}

// markPacks marks the packs that a manifest names: also those of which its version needs nothing, if it
// is a full one that deltas build upon.
func (c *collector) markPacks(m *manifest, pinned bool) {
	for _, ch := range m.changes {
		if ch.entry != nil {
			c.markBlobs(ch.entry.Blobs, pinned)
		}
	}
	c.markBlobs(m.result, pinned)
}

func (c *collector) markBlobs(blobs []blob, pinned bool) {
	for _, b := range blobs {
		p := c.pack(b.Pack)
		p.pinned = p.pinned || pinned
	}
}

// pack marks a pack.
func (c *collector) pack(at *pack) *liveBlobs {
	p := c.packs[at.ID]
	if p == nil {
		p = &liveBlobs{stored: map[int64]int64{}}
		c.packs[at.ID] = p
		c.live[packKey(c.tenant, at.ID)] = true
		c.needs(packKey(c.tenant, at.ID), at.Key)
	}
	return p
}

// use notes what a kept version needs of packs.
func (c *collector) use(s *snapshot) {
	for _, e := range s.entries {
		for _, b := range e.Blobs {
			p := c.pack(b.Pack)
			if _, ok := p.stored[b.Offset]; !ok {
				p.stored[b.Offset] = b.Stored
				p.live += b.Stored
			}
		}
	}
}

// empty moves what newest versions need out of packs of which less than half is needed by any kept
// version, and out of those that do not have the tenant's key; and writes newest versions anew of which manifests
// do not have it. Nothing is removed: once what older versions are made of has left, nothing refers to those objects.
func (c *collector) empty(ctx context.Context, workspaces []string) error {
	if c.opts.DryRun {
		return nil
	}
	var snaps []*snapshot
	var refs []Ref
	from := map[objects.Digest]bool{}
	var waste, total, rekeyed int64
	rekey := false
	for _, ws := range workspaces {
		v, err := c.store.current(ctx, Ref{c.tenant, ws}, nil)
		if err != nil {
			return err
		}
		before := len(from)
		for _, u := range v.snap.packs() {
			p := c.packs[u.pack.ID]
			switch {
			case p == nil || from[u.pack.ID]:
			case u.pack.Key != c.key:
				if rekeyed+u.live <= rekeyMost {
					rekey, from[u.pack.ID] = true, true
					rekeyed += u.live
				}
			case !p.pinned && p.live*2 < u.pack.Size && total+p.live <= emptyMost:
				from[u.pack.ID] = true
				waste, total = waste+u.pack.Size-p.live, total+p.live
			}
		}
		old := c.hasOtherKey(Ref{c.tenant, ws}, v)
		rekey = rekey || old
		if old || before < len(from) || sharesAny(v.snap, from) {
			snaps, refs = append(snaps, v.snap), append(refs, Ref{c.tenant, ws})
		}
	}
	if waste < c.store.opts.Compaction.Waste && !rekey {
		return nil
	}
	return c.emptyPacks(ctx, from, refs, snaps)
}

func sharesAny(s *snapshot, packs map[objects.Digest]bool) bool {
	for _, u := range s.packs() {
		if packs[u.pack.ID] {
			return true
		}
	}
	return false
}

func (c *collector) emptyPacks(ctx context.Context, from map[objects.Digest]bool, refs []Ref, snaps []*snapshot) error {
	f, err := c.store.move(ctx, c.tenant, from, snaps...)
	if err != nil {
		return fmt.Errorf("empty %d packs: %w", len(from), err)
	}
	defer func() { _ = f.stored() }()
	for _, ref := range refs {
		if err := c.commitFold(ctx, ref, f); err != nil {
			return fmt.Errorf("empty %d packs: %w", len(from), err)
		}
	}
	c.out.Emptied = len(from)
	return f.stored()
}

// hasOtherKey reports whether a version needs manifests that do not have the tenant's key.
func (c *collector) hasOtherKey(ref Ref, v *version) bool {
	if v.head.Manifest == nil {
		return false
	}
	return slices.ContainsFunc(append(slices.Clip(v.man.header.Chain), *v.head.Manifest), func(l link) bool {
		return c.otherKey[ref.manifestKey(l.Name)]
	})
}

// rekeyTombstone writes what is left of a deleted workspace anew, with the tenant's key. HEAD is last: as long as it is as it
// was, this is repeated.
func (c *collector) rekeyTombstone(ctx context.Context, ref Ref, h head, etag string) error {
	if c.opts.DryRun || h.doomed() {
		return nil
	}
	if _, has, err := c.store.readPins(ctx, ref); err != nil {
		return err
	} else if has != "" {
		if err := c.store.changePins(ctx, ref, func(*pins) {}); err != nil {
			return err
		}
	}
	h.Commit = newCommitID()
	if _, err := c.store.swapHead(ctx, ref, etag, &h); !errors.Is(err, ErrConflict) {
		return err
	}
	return nil // somebody uses it again
}

// commitFold commits that content has moved, and nothing else.
func (c *collector) commitFold(ctx context.Context, ref Ref, f *fold) error {
	v, err := c.store.current(ctx, ref, nil)
	if err != nil || !sharesAny(v.snap, f.from) && !c.hasOtherKey(ref, v) {
		return err
	}
	p := &proposal{
		store: c.store, ref: ref, change: Change{Message: "collection: content moved out of packs that are mostly unused, or have another key"},
		upload: &upload{}, base: v, on: v, id: newCommitID(), fold: f,
		full: true, // a chain would keep the old packs
	}
	_, _, err = p.run(ctx)
	if errors.Is(err, ErrDeleted) {
		return nil
	}
	return err
}
