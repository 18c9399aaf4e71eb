package maintenance

import (
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// markManifest marks a manifest and all packs to which it refers. Later manifests are differences to it, so its packs
// are kept even if its own version needs nothing of them.
func (c *collector) markManifest(ref format.Ref, at format.ManifestRef, m *format.Manifest, pinned bool) {
	key := ref.ManifestKey(at.Name)
	c.live[key] = true
	c.countOtherKey(key, m.Key)
	for _, ch := range m.Changes {
		if ch.Entry != nil {
			c.markBlobs(ch.Entry.Blobs, pinned)
		}
	}
	c.markBlobs(m.Result, pinned)
}

// countOtherKey counts an object in OtherKeys if it is not encrypted with the tenant's current key.
func (c *collector) countOtherKey(object, keyID string) {
	if keyID != c.keyID && !c.otherKey[object] {
		c.otherKey[object] = true
		c.out.OtherKeys[keyID]++
	}
}

// markRetained marks what retained versions need.
func (c *collector) markRetained(ctx context.Context, ref format.Ref, h format.Head) error {
	for _, name := range c.retained[ref.Workspace] {
		generation, until, ok := format.ParseRetainedKey(name)
		if !ok || until.Before(c.now) || h.Deleted || generation < h.Born {
			continue
		}
		key := ref.Key("k/" + name)
		c.live[key] = true
		found, err := c.repo.ReadRetained(ctx, ref, generation, key)
		if err != nil && !errors.Is(err, objects.ErrNotFound) {
			return err
		}
		for _, at := range found {
			if err := c.markVersion(ctx, ref, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// markVersion marks what a retained version needs, unless it was removed, wholly or in part, before it was retained, or
// a repair could not read it.
func (c *collector) markVersion(ctx context.Context, ref format.Ref, at format.ManifestRef) error {
	if c.lost[ref.ManifestKey(at.Name)] {
		return nil
	}
	m, err := c.repo.ReadManifest(ctx, ref, at.Name, &at.Digest)
	if err == nil {
		v := c.newVersionMarker(ref, format.Pins{})
		v.keep(at, m, false)
		err = v.finish(ctx)
	}
	if errors.Is(err, objects.ErrNotFound) {
		return nil
	}
	return err
}

// Limits of the bytes that one run copies. The next run continues.
const (
	maxCompacted = 64 << 20
	maxRekeyed   = 1 << 30
)

// liveBlobs says what a tenant's kept versions need of a pack.
type liveBlobs struct {
	counted map[int64]bool // offsets of blobs that live includes
	live    int64          // stored bytes
	pinned  bool           // a pinned version needs the pack, so compaction would not free it
}

// markBlobs marks the packs of blobs.
func (c *collector) markBlobs(blobs []format.Blob, pinned bool) {
	for _, b := range blobs {
		p := c.markPack(b.Pack)
		p.pinned = p.pinned || pinned
	}
}

// markPack marks a pack, and returns its liveBlobs.
func (c *collector) markPack(pack *format.Pack) *liveBlobs {
	p := c.packs[pack.ID]
	if p == nil {
		p = &liveBlobs{counted: map[int64]bool{}}
		c.packs[pack.ID] = p
		c.live[format.PackKey(c.tenant, pack.ID)] = true
		c.countOtherKey(format.PackKey(c.tenant, pack.ID), pack.Key)
	}
	return p
}

// countBlobs records what a kept version needs of packs.
func (c *collector) countBlobs(blobs []format.Blob) {
	for _, b := range blobs {
		if p := c.markPack(b.Pack); !p.counted[b.Offset] {
			p.counted[b.Offset] = true
			p.live += b.Stored
		}
	}
}
