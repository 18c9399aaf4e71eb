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
	for _, l := range k.man.Header.Chain {
		key := ref.ManifestKey(l.Name)
		if c.lost[key] {
			broken = true
			continue
		}
		if c.live[key] && !k.pinned {
			continue
		}
		m, err := c.repo.ReadManifest(ctx, ref, l.Name, &l.Digest)
		if err != nil {
			return err
		}
		c.markManifest(ref, l, m, k.pinned)
	}
	if broken {
		return nil
	}
	v, err := c.repo.Load(ctx, ref, k.ref)
	if err != nil {
		return err
	}
	c.use(v.Set)
	return nil
}

// markManifest marks a manifest and the packs that it names.
func (c *collector) markManifest(ref format.Ref, l format.ManifestRef, m *format.Manifest, pinned bool) {
	key := ref.ManifestKey(l.Name)
	c.live[key] = true
	c.needs(key, m.Key)
	c.markPacks(m, pinned)
}

// needs records the encryption key of an object that is needed.
func (c *collector) needs(key, id string) {
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

// keptVersions returns the versions that retention and pins keep, and records those in the pins that parents no longer
// lead to. Pins of generations before born are removed: they are of before a deletion.
func (c *collector) keptVersions(ctx context.Context, ref format.Ref, born int64) ([]keptManifest, error) {
	var all []keptManifest
	err := c.repo.Walk(ctx, ref, func(l format.ManifestRef, m *format.Manifest) bool {
		all = append(all, keptManifest{ref: l, man: m})
		c.needs(ref.ManifestKey(l.Name), m.Key) // also of those that will be removed
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
		c.needs(ref.PinsKey(), p.Key)
	}
	for _, g := range p.Lost {
		c.lost[ref.ManifestKey(g.Name)] = true
	}
	var kept []keptManifest
	var orphans []format.ManifestRef // kept versions that parents do not lead to
	replaced := c.now
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
		l, err := c.repo.ReadRetained(ctx, key)
		if errors.Is(err, objects.ErrCorrupt) { // its key names the generation
			l, err = c.repo.FindManifest(ctx, ref, generation)
		}
		if errors.Is(err, objects.ErrNotFound) || err == nil && c.lost[ref.ManifestKey(l.Name)] {
			continue
		}
		if err != nil {
			return err
		}
		m, err := c.repo.ReadManifest(ctx, ref, l.Name, &l.Digest)
		if err != nil {
			return err
		}
		if err := c.markVersion(ctx, ref, keptManifest{ref: l, man: m}); err != nil {
			return err
		}
	}
	return nil
}

// Limits of the bytes that one run copies; the next one continues.
const (
	maxCompacted = 64 << 20
	maxRekeyed   = 1 << 30
)

// liveBlobs is what kept versions of a tenant need of a pack.
type liveBlobs struct {
	stored map[int64]int64 // bytes, by offset
	live   int64           // sum of stored
	pinned bool            // a pinned version needs it, so compaction would not free it
}

// markPacks marks the packs that a manifest names, even if its version needs nothing of them: deltas build on it.
func (c *collector) markPacks(m *format.Manifest, pinned bool) {
	for _, ch := range m.Changes {
		if ch.Entry != nil {
			c.markBlobs(ch.Entry.Blobs, pinned)
		}
	}
	c.markBlobs(m.Result, pinned)
}

// markBlobs marks the packs of blobs.
func (c *collector) markBlobs(blobs []format.Blob, pinned bool) {
	for _, b := range blobs {
		p := c.pack(b.Pack)
		p.pinned = p.pinned || pinned
	}
}

// pack marks a pack, and returns what is known of it.
func (c *collector) pack(at *format.Pack) *liveBlobs {
	p := c.packs[at.ID]
	if p == nil {
		p = &liveBlobs{stored: map[int64]int64{}}
		c.packs[at.ID] = p
		c.live[format.PackKey(c.tenant, at.ID)] = true
		c.needs(format.PackKey(c.tenant, at.ID), at.Key)
	}
	return p
}

// use records what a kept version needs of packs.
func (c *collector) use(s *format.EntrySet) {
	for _, e := range s.Entries {
		for _, b := range e.Blobs {
			p := c.pack(b.Pack)
			if _, ok := p.stored[b.Offset]; !ok {
				p.stored[b.Offset] = b.Stored
				p.live += b.Stored
			}
		}
	}
}
