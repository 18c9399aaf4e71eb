package maintenance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// markVersion marks a manifest and all that it needs.
func (c *collector) markVersion(ctx context.Context, ref format.Ref, k keptManifest) error {
	c.markManifest(ref, k.link, k.man, k.pinned)
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
	v, err := c.repo.Load(ctx, ref, k.link)
	if err != nil {
		return err
	}
	c.use(v.Snapshot)
	return nil
}

func (c *collector) markManifest(ref format.Ref, l format.ManifestRef, m *format.Manifest, pinned bool) {
	key := ref.ManifestKey(l.Name)
	c.live[key] = true
	c.needs(key, m.Key)
	c.markPacks(m, pinned)
}

// needs notes the key of an object that is still read.
func (c *collector) needs(key, id string) {
	if id != c.key && !c.otherKey[key] {
		c.otherKey[key] = true
		c.out.OtherKeys[id]++
	}
}

type keptManifest struct {
	link   format.ManifestRef
	man    *format.Manifest
	pinned bool
}

// retained returns the versions to keep, after noting those that parents will
// no longer lead to. Pins of a life before born went with it.
func (c *collector) retained(ctx context.Context, ref format.Ref, born int64) ([]keptManifest, error) {
	var all []keptManifest
	err := c.repo.Walk(ctx, ref, func(l format.ManifestRef, m *format.Manifest) bool {
		all = append(all, keptManifest{link: l, man: m})
		c.needs(ref.ManifestKey(l.Name), m.Key) // also of one that is on its way out
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
	var orphans []format.ManifestRef
	replaced := c.now
	days := map[string]bool{}
	gap := false
	for i, k := range all {
		h := k.man.Header
		day := h.Time.Format(time.DateOnly)
		daily := !days[day] && c.now.Sub(h.Time) <= time.Duration(c.opts.Retention.Daily)*24*time.Hour
		pinned := slices.ContainsFunc(p.Pins, func(x format.Pin) bool { return x.At == k.link })
		if i < c.opts.Retention.Newest || c.now.Sub(replaced) < c.opts.Retention.All || daily || pinned {
			k.pinned = pinned
			kept = append(kept, k)
			if gap && !pinned {
				orphans = append(orphans, k.link)
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

// markKept marks what a kept version needs as live.
func (c *collector) markKept(ctx context.Context, ref format.Ref, h format.Head) error {
	for _, name := range c.kept[ref.Workspace] {
		generation, until, ok := format.ParseRetainedKey(name)
		if !ok || until.Before(c.now) || h.Deleted || generation < h.Born {
			continue
		}
		key := ref.Key("k/" + name)
		c.live[key] = true
		l, err := c.repo.ReadRetained(ctx, key)
		if errors.Is(err, objects.ErrCorrupt) { // its name says enough
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
		if err := c.markVersion(ctx, ref, keptManifest{link: l, man: m}); err != nil {
			return err
		}
	}
	return nil
}

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
func (c *collector) markPacks(m *format.Manifest, pinned bool) {
	for _, ch := range m.Changes {
		if ch.Entry != nil {
			c.markBlobs(ch.Entry.Blobs, pinned)
		}
	}
	c.markBlobs(m.Result, pinned)
}

func (c *collector) markBlobs(blobs []format.Blob, pinned bool) {
	for _, b := range blobs {
		p := c.pack(b.Pack)
		p.pinned = p.pinned || pinned
	}
}

// pack marks a pack.
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

// use notes what a kept version needs of packs.
func (c *collector) use(s *format.Snapshot) {
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
