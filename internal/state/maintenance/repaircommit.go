package maintenance

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// commit commits the rebuilt version, unless the newest version equals it.
func (r *repairer) commit(ctx context.Context) error {
	on := &repo.Version{Head: r.head, ETag: r.etag, Set: format.EmptySet, ReadAt: time.Now()}
	if r.base != nil {
		on.Set, on.Manifest = r.base.Set, r.base.Manifest
		on.Head.Manifest = &r.lineage[r.at].Ref
	}
	if r.headBad {
		r.completeHead(&on.Head)
	}
	target, err := r.rebuilt(ctx)
	if err != nil {
		return err
	}
	changes := on.Set.Diff(target)
	if !r.headBad && r.at == 0 && r.base != nil && len(changes) == 0 && len(r.relocation.To) == 0 {
		r.out.Commit = on.NoChange()
		return nil
	}
	if r.opts.DryRun {
		r.out.Commit = repo.Commit{Generation: on.Head.Generation + 1, Changed: format.ChangedPaths(changes)}
		return nil
	}
	p := &repo.Proposal{
		Repo: r.repo, Ref: r.ref, Options: repo.CommitOptions{Message: "repair"}, Changes: changes,
		Base: on, On: on, Relocation: r.relocation, Full: true,
	}
	r.out.Commit, _, err = p.Run(ctx)
	return err
}

// completeHead sets what the manifests of the lineage say about a lost HEAD: its first generation, its recent tasks and
// its time.
func (r *repairer) completeHead(h *format.Head) {
	for _, s := range slices.Backward(r.lineage) {
		if s.NamedManifest == nil {
			continue
		}
		m := s.Manifest.Header
		if m.Parent == nil {
			h.Born = m.Generation
		}
		if m.TaskID != "" {
			h.Recent = append(h.Recent, format.RecentTask{
				Task: m.TaskID, Generation: m.Generation,
				Name: format.ManifestDigits(s.Ref.Digest), Unix: m.Time.Unix(),
			})
		}
	}
	if r.base != nil {
		h.Time = r.base.Manifest.Header.Time
	}
}

// recordGaps lists in the pins object the manifests that cannot be read, so that the history skips them.
func (r *repairer) recordGaps(ctx context.Context) error {
	p, _, err := r.repo.ReadPins(ctx, r.ref)
	if err != nil && !format.IsDamage(err) {
		return err
	}
	if err != nil {
		r.out.Problems = append(r.out.Problems, err.Error()+" (all pins are lost)")
		obj, err := r.repo.Bucket.Get(ctx, r.ref.PinsKey(), objects.GetOptions{})
		if err != nil {
			return err
		}
		if err = r.repo.SwapPins(ctx, r.ref, obj.ETag, format.Pins{}); err != nil {
			return err
		}
	}
	for _, at := range p.Older(math.MaxInt64) { // also those that were committed and pinned after the survey
		if r.readable[at.Name] != nil || r.bad[at.Name] {
			continue
		}
		found, err := r.repo.ReadNamed(ctx, r.ref, at.Name)
		if err != nil && !format.IsDamage(err) {
			return err
		}
		if err == nil {
			r.readable[at.Name] = found
		}
	}
	gaps := r.gaps(p)
	if len(gaps) == 0 {
		return nil
	}
	return r.repo.ChangePins(ctx, r.ref, func(p *format.Pins) bool {
		p.Lost = slices.DeleteFunc(p.Lost, func(g format.Gap) bool {
			return slices.ContainsFunc(gaps, func(x format.Gap) bool { return x.Name == g.Name })
		})
		p.Lost = append(gaps, p.Lost...)
		return true
	})
}

// gaps returns the gaps to record: the unreadable manifests that p does not list, or lists with another Before. It
// omits those that garbage collection removed.
func (r *repairer) gaps(p format.Pins) []format.Gap {
	var gaps []format.Gap
	for i, s := range r.lineage {
		if s.NamedManifest != nil {
			continue
		}
		// Garbage collection removed this manifest if it is missing, not damaged, older than the base and newer than a
		// kept version, and no readable manifest builds on it.
		if i > r.at && !r.bad[s.name] && len(p.Older(format.ManifestRef{Name: s.name}.Generation())) > 0 &&
			!r.inChain(s.name) {
			continue
		}
		g := format.Gap{Name: s.name}
		for _, older := range r.lineage[i:] {
			if older.NamedManifest != nil {
				g.Before = &older.Ref
				break
			}
		}
		old := p.FindLost(s.name)
		if old == nil || (old.Before == nil) != (g.Before == nil) || g.Before != nil && *g.Before != *old.Before {
			gaps = append(gaps, g)
		}
	}
	for _, at := range p.Older(math.MaxInt64) {
		if r.readable[at.Name] == nil && p.FindLost(at.Name) == nil &&
			!slices.ContainsFunc(gaps, func(g format.Gap) bool { return g.Name == at.Name }) {
			gaps = append(gaps, format.Gap{Name: at.Name})
		}
	}
	return gaps
}

// inChain reports whether a readable manifest of the lineage builds on the manifest called name.
func (r *repairer) inChain(name string) bool {
	return slices.ContainsFunc(r.lineage, func(s manifestStep) bool {
		return s.NamedManifest != nil &&
			slices.ContainsFunc(s.Manifest.Header.Chain, func(l format.Layer) bool { return l.Name == name })
	})
}
