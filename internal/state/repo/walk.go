package repo

import (
	"context"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Walk visits the manifests of the history, newest first, until visit returns false: from HEAD by parents, and then
// the older ones that retention or pins keep.
func (r *Repo) Walk(ctx context.Context, ref format.Ref, visit func(format.ManifestRef, *format.Manifest) bool) error {
	h, _, err := r.ReadHead(ctx, ref, "")
	if err != nil || h.Manifest == nil {
		return err
	}
	next, last := h.Manifest, h.Generation+1 // last: generation that was visited last
	for next != nil {
		l := *next
		m, err := r.ReadManifest(ctx, ref, l.Name, &l.Digest)
		if format.IsDamage(err) {
			before, ok, gapErr := r.passGap(ctx, ref, l)
			if ok {
				next = before
				continue
			}
			err = errors.Join(err, gapErr)
			if gapErr == nil && errors.Is(err, objects.ErrNotFound) && last <= h.Generation {
				break // removed by garbage collection
			}
		}
		if err != nil {
			return err
		}
		if !visit(l, m) {
			return nil
		}
		last, next = m.Header.Generation, m.Header.Parent
	}
	kept, _, err := r.ReadPins(ctx, ref)
	if err != nil {
		return err
	}
	for _, k := range kept.Older(last) {
		if k.Generation() < h.Born {
			break // of before a deletion
		}
		m, err := r.ReadManifest(ctx, ref, k.Name, &k.Digest)
		if format.IsDamage(err) && kept.FindLost(k.Name) != nil {
			continue
		}
		if err != nil {
			return err
		}
		if !visit(k, m) {
			return nil
		}
	}
	return nil
}

// Find returns one version; generation 0 is the newest.
func (r *Repo) Find(ctx context.Context, ref format.Ref, generation int64) (*Loaded, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	var at *format.ManifestRef
	err := r.Walk(ctx, ref, func(l format.ManifestRef, m *format.Manifest) bool {
		if generation == 0 || m.Header.Generation == generation {
			at = &l
		}
		return at == nil && m.Header.Generation > generation
	})
	if err != nil {
		return nil, err
	}
	if at == nil {
		if generation == 0 {
			return &Loaded{&format.Manifest{}, format.EmptySet, 0}, nil
		}
		return nil, fmt.Errorf("generation %d of %s: %w", generation, ref, objects.ErrNotFound)
	}
	return r.Load(ctx, ref, *at)
}

// FindManifest returns the manifest of a generation in the history.
func (r *Repo) FindManifest(ctx context.Context, ref format.Ref, generation int64) (format.ManifestRef, error) {
	var at *format.ManifestRef
	err := r.Walk(ctx, ref, func(l format.ManifestRef, m *format.Manifest) bool {
		if m.Header.Generation == generation {
			at = &l
		}
		return at == nil && m.Header.Generation > generation
	})
	if err == nil && at == nil {
		err = fmt.Errorf("generation %d: %w", generation, objects.ErrNotFound)
	}
	if err != nil {
		return format.ManifestRef{}, err
	}
	return *at, nil
}

// passGap returns the manifest before one that cannot be read; not ok: the gap is not known.
func (r *Repo) passGap(
	ctx context.Context, ref format.Ref, l format.ManifestRef,
) (before *format.ManifestRef, ok bool, err error) {
	p, _, err := r.ReadPins(ctx, ref)
	if err != nil {
		return nil, false, err
	}
	g := p.FindLost(l.Name)
	if g == nil || g.Before != nil && g.Before.Generation() >= l.Generation() {
		return nil, false, nil
	}
	return g.Before, true, nil
}
