package maintenance

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/state/format"
)

const markParallel = 8 // manifests that are read at the same time

// versionMarker marks what the kept versions of a workspace need. It visits the manifests of the history, newest first,
// and holds only a few manifests at a time: what is in memory grows with the number of objects only.
//
// Of consecutive kept versions it counts the changes of each, and the whole content of the oldest: the content of each
// is that of the oldest and some of the later changes.
type versionMarker struct {
	*collector
	ref  format.Ref
	pins format.Pins

	visited  int
	replaced time.Time            // when the version that is visited next was replaced
	days     map[string]bool      // days of the versions that were visited
	removing bool                 // a version that is not kept was visited
	orphans  []format.ManifestRef // versions that retention keeps although it removes a newer one

	last   *format.ManifestRef         // kept version that was visited last, if its changes are counted
	parent *format.ManifestRef         // its parent
	whole  []format.ManifestRef        // versions whose whole content is counted at the end
	chain  map[format.ManifestRef]bool // manifests to mark, on which kept versions build; true if a pinned one does
}

func (c *collector) newVersionMarker(ref format.Ref, p format.Pins) *versionMarker {
	return &versionMarker{
		collector: c, ref: ref, pins: p, replaced: c.now, days: map[string]bool{},
		chain: map[format.ManifestRef]bool{},
	}
}

// markVersions marks what the versions need that retention and pins keep. If such a version can no longer be reached
// from HEAD through parents, markVersions adds it to the pins object. It removes the pins of generations before born,
// which were deleted. It also rewrites a pins object that another key encrypts.
func (c *collector) markVersions(ctx context.Context, ref format.Ref, born int64) error {
	p, etag, err := c.repo.ReadPins(ctx, ref)
	if err != nil {
		return err
	}
	if etag != "" {
		c.countOtherKey(ref.PinsKey(), p.Key)
	}
	for _, g := range p.Lost {
		c.lost[ref.ManifestKey(g.Name)] = true
	}
	v := c.newVersionMarker(ref, p)
	if err := c.repo.WalkWhole(ctx, ref, v.visit); err != nil {
		return err
	}
	if err := v.finish(ctx); err != nil {
		return err
	}
	v.orphans = v.orphans[:min(len(v.orphans), format.MaxKept)] // the next run removes the others
	deleted := func(x format.Pin) bool { return x.Generation < born }
	current := p.Key == c.keyID || etag == ""
	if c.opts.DryRun || current && slices.Equal(v.orphans, p.Kept) && !slices.ContainsFunc(p.Pins, deleted) {
		return nil
	}
	return c.repo.ChangePins(ctx, ref, func(p *format.Pins) bool {
		p.Kept, p.Pins = v.orphans, slices.DeleteFunc(p.Pins, deleted)
		return true
	})
}

// visit marks what a version needs if it is kept. Calls are in descending order of generations.
func (v *versionMarker) visit(at format.ManifestRef, m *format.Manifest) bool {
	v.countOtherKey(v.ref.ManifestKey(at.Name), m.Key) // even if the manifest will be removed
	if pinned, ok := v.chain[at]; ok {
		delete(v.chain, at)
		v.markManifest(v.ref, at, m, pinned)
	}
	pinned := slices.ContainsFunc(v.pins.Pins, func(x format.Pin) bool { return x.At == at })
	if v.retains(&m.Header) || pinned {
		if v.removing && !pinned {
			v.orphans = append(v.orphans, at)
		}
		v.keep(at, m, pinned)
		return true
	}
	v.removing = true
	v.endSeries()
	return true
}

// retains reports whether retention keeps the version that is visited, and counts the version as visited. It is called
// once for each version, in order.
func (v *versionMarker) retains(h *format.Header) bool {
	r := &v.opts.Retention
	day := h.Time.Format(time.DateOnly)
	daily := !v.days[day] && v.now.Sub(h.Time) <= time.Duration(r.Daily)*24*time.Hour
	kept := v.visited < r.Newest || v.now.Sub(v.replaced) < r.All || daily
	v.visited++
	v.days[day] = true
	v.replaced = h.Time
	return kept
}

// keep marks the manifest of a kept version, and counts its changes. A version that builds on a lost manifest cannot be
// read, so its content does not count.
func (v *versionMarker) keep(at format.ManifestRef, m *format.Manifest, pinned bool) {
	v.markManifest(v.ref, at, m, pinned)
	broken := false
	for _, l := range m.Header.Chain {
		key := v.ref.ManifestKey(l.Name)
		if v.lost[key] {
			broken = true
		} else if pinned || !v.live[key] {
			v.chain[l.ManifestRef] = v.chain[l.ManifestRef] || pinned
		}
	}
	if broken || v.parent == nil || *v.parent != at {
		v.endSeries()
	}
	if broken {
		return
	}
	for _, c := range m.Changes {
		if c.Entry != nil {
			v.countBlobs(c.Entry.Blobs)
		}
	}
	v.last, v.parent = &at, m.Header.Parent
}

// endSeries ends a series of consecutive kept versions.
func (v *versionMarker) endSeries() {
	if v.last != nil {
		v.whole = append(v.whole, *v.last)
	}
	v.last, v.parent = nil, nil
}

// finish marks the manifests on which kept versions build and that were not visited, and counts the content of the
// oldest versions.
func (v *versionMarker) finish(ctx context.Context) error {
	v.endSeries()
	for batch := range slices.Chunk(slices.Collect(maps.Keys(v.chain)), markParallel) {
		found := make([]*format.Manifest, len(batch))
		g, gctx := errgroup.WithContext(ctx)
		for i, at := range batch {
			g.Go(func() (err error) {
				found[i], err = v.repo.ReadManifest(gctx, v.ref, at.Name, &at.Digest)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for i, at := range batch {
			v.markManifest(v.ref, at, found[i], v.chain[at])
		}
	}
	for _, at := range slices.Backward(v.whole) {
		l, err := v.repo.Load(ctx, v.ref, at)
		if err != nil {
			return err
		}
		for _, e := range l.Set.Entries {
			v.countBlobs(e.Blobs)
		}
	}
	return nil
}
