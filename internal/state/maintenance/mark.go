package maintenance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// markVersion marks a manifest and everything that its version needs.
func (c *collector) markVersion(ctx context.Context, ref format.Ref, k keptManifest) error {
	c.markManifest(ref, k.ref, k.man, k.pinned)
	broken := false
	for _, at := range k.man.Header.Chain {
		key := ref.ManifestKey(at.Name)
		if c.lost[key] {
			broken = true
			continue
		}
		if c.live[key] && !k.pinned {
			continue
		}
		m, err := c.repo.ReadManifest(ctx, ref, at.Name, &at.Digest)
		if err != nil {
			return err
		}
		c.markManifest(ref, at.ManifestRef, m, k.pinned)
	}
	if broken {
		return nil
	}
	v, err := c.repo.Load(ctx, ref, k.ref)
	if err != nil {
		return err
	}
	c.markContent(v.Set)
	return nil
}

// markManifest marks a manifest and the packs to which it refers, even if its version needs nothing of them: deltas
// build on it.
func (c *collector) markManifest(ref format.Ref, at format.ManifestRef, m *format.Manifest, pinned bool) {
	key := ref.ManifestKey(at.Name)
	c.live[key] = true
	c.recordKey(key, m.Key)
	for _, ch := range m.Changes {
		if ch.Entry != nil {
			c.markBlobs(ch.Entry.Blobs, pinned)
		}
	}
	c.markBlobs(m.Result, pinned)
}

// recordKey records the id of the encryption key of a needed object.
func (c *collector) recordKey(key, id string) {
	if id != c.key && !c.otherKey[key] {
		c.otherKey[key] = true
		c.out.OtherKeys[id]++
	}
}

// keptManifest is the manifest of a kept version.
type keptManifest struct {
	ref    format.ManifestRef
	man    *format.Manifest
	pinned bool
}

// keptVersions returns the versions that retention and pins keep. It lists those in the pins object that can no longer
// be reached from HEAD through parents, and removes the pins of generations before born, which were deleted.
func (c *collector) keptVersions(ctx context.Context, ref format.Ref, born int64) ([]keptManifest, error) {
	var all []keptManifest
	err := c.repo.Walk(ctx, ref, func(at format.ManifestRef, m *format.Manifest) bool {
		all = append(all, keptManifest{ref: at, man: m})
		c.recordKey(ref.ManifestKey(at.Name), m.Key) // even if the manifest will be removed
		return true
	})
	if err != nil {
		return nil, err
	}
	p, etag, err := c.repo.ReadPins(ctx, ref)
	if err != nil {
		return nil, err
	}
	if etag != "" {
		c.recordKey(ref.PinsKey(), p.Key)
	}
	for _, g := range p.Lost {
		c.lost[ref.ManifestKey(g.Name)] = true
	}
	var kept []keptManifest
	var orphans []format.ManifestRef // kept versions that parents will not lead to
	replaced := c.now                // when the version was replaced
	days := map[string]bool{}
	gap := false
	for i, k := range all {
		h := k.man.Header
		day := h.Time.Format(time.DateOnly)
		daily := !days[day] && c.now.Sub(h.Time) <= time.Duration(c.opts.Retention.Daily)*24*time.Hour
		pinned := slices.ContainsFunc(p.Pins, func(x format.Pin) bool { return x.At == k.ref })
		if i < c.opts.Retention.Newest || c.now.Sub(replaced) < c.opts.Retention.All || daily || pinned {
			k.pinned = pinned
			kept = append(kept, k)
			if gap && !pinned {
				orphans = append(orphans, k.ref)
			}
		} else {
			gap = true
		}
		days[day] = true
		replaced = h.Time
	}
	lost := func(x format.Pin) bool { return x.Generation < born }
	current := p.Key == c.key || etag == ""
	if c.opts.DryRun || current && slices.Equal(orphans, p.Kept) && !slices.ContainsFunc(p.Pins, lost) {
		return kept, nil
	}
	return kept, c.repo.ChangePins(ctx, ref, func(p *format.Pins) {
		p.Kept, p.Pins = orphans, slices.DeleteFunc(p.Pins, lost)
	})
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
		at, err := c.repo.ReadRetained(ctx, key)
		if errors.Is(err, objects.ErrCorrupt) { // the key has the generation too
			at, err = c.repo.FindManifest(ctx, ref, generation)
		}
		if errors.Is(err, objects.ErrNotFound) || err == nil && c.lost[ref.ManifestKey(at.Name)] {
			continue
		}
		if err != nil {
			return err
		}
		m, err := c.repo.ReadManifest(ctx, ref, at.Name, &at.Digest)
		if err != nil {
			return err
		}
		if err := c.markVersion(ctx, ref, keptManifest{ref: *at, man: m}); err != nil {
			return err
		}
	}
	return nil
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
		c.recordKey(format.PackKey(c.tenant, pack.ID), pack.Key)
	}
	return p
}

// markContent records what a kept version needs of packs.
func (c *collector) markContent(s *format.EntrySet) {
	for _, e := range s.Entries {
		for _, b := range e.Blobs {
			if p := c.markPack(b.Pack); !p.counted[b.Offset] {
				p.counted[b.Offset] = true
				p.live += b.Stored
			}
		}
	}
}
