package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Walk visits the manifests of the history, newest first, until visit returns false. It follows parents from HEAD, and
// then visits the older manifests that retention or pins keep. Manifests whose header has the changed paths may be
// without lines. Walk returns objects.ErrCorrupt if HEAD is lost, as FindHead does.
func (r *Repo) Walk(ctx context.Context, ref format.Ref, visit func(format.ManifestRef, *format.Manifest) bool) error {
	return r.walk(ctx, ref, true, visit)
}

// WalkWhole is Walk with all lines of all manifests.
func (r *Repo) WalkWhole(
	ctx context.Context, ref format.Ref, visit func(format.ManifestRef, *format.Manifest) bool,
) error {
	return r.walk(ctx, ref, false, visit)
}

func (r *Repo) walk(
	ctx context.Context, ref format.Ref, brief bool, visit func(format.ManifestRef, *format.Manifest) bool,
) error {
	h, _, err := r.FindHead(ctx, ref)
	if err != nil || h.Manifest == nil {
		return err
	}
	manifests := r.newReadAhead(ref, brief)
	next, last := h.Manifest, h.Generation+1 // last is the generation that was visited last
	for next != nil {
		at := *next
		m, err := manifests.read(ctx, at.Name, &at.Digest)
		if format.IsDamage(err) {
			before, ok, gapErr := r.skipGap(ctx, ref, at)
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
		if !visit(at, m) {
			return nil
		}
		last, next = m.Header.Generation, m.Header.Parent
	}
	kept, _, err := r.ReadPins(ctx, ref)
	if err != nil {
		return err
	}
	for _, at := range kept.Older(last) {
		if at.Generation() < h.Born {
			break // committed before a deletion
		}
		m, err := r.ReadManifest(ctx, ref, at.Name, &at.Digest)
		if format.IsDamage(err) && kept.FindLost(at.Name) != nil {
			continue
		}
		if err != nil {
			return err
		}
		if !visit(at, m) {
			return nil
		}
	}
	return nil
}

// Find returns a version. Generation 0 means the newest, which is empty for a workspace without commits. Find returns
// objects.ErrCorrupt if HEAD is lost, as FindHead does.
func (r *Repo) Find(ctx context.Context, ref format.Ref, generation int64) (*Loaded, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	at, err := r.FindManifest(ctx, ref, generation)
	if err != nil {
		return nil, err
	}
	if at == nil {
		return &Loaded{&format.Manifest{}, format.EmptySet}, nil
	}
	return r.Load(ctx, ref, *at)
}

// FindManifest returns a generation's manifest. Generation 0 means the newest; its manifest is nil if there is no
// version. It returns objects.ErrNotFound if the history does not have the generation.
func (r *Repo) FindManifest(
	ctx context.Context, ref format.Ref, generation int64,
) (found *format.ManifestRef, err error) {
	if found, err = r.leap(ctx, ref, generation); found != nil || err != nil {
		return found, err
	}
	err = r.Walk(ctx, ref, func(at format.ManifestRef, m *format.Manifest) bool {
		if generation == 0 || m.Header.Generation == generation {
			found = &at
		}
		return found == nil && m.Header.Generation > generation
	})
	if err == nil && found == nil && generation != 0 {
		err = fmt.Errorf("generation %d of %s: %w", generation, ref, objects.ErrNotFound)
	}
	return found, err
}

// leap follows ancestors from HEAD to a generation. It returns nil if they do not lead there: garbage collection has
// removed some, or they are damaged.
func (r *Repo) leap(ctx context.Context, ref format.Ref, generation int64) (*format.ManifestRef, error) {
	h, _, err := r.FindHead(ctx, ref)
	if err != nil || h.Manifest == nil || generation < h.Born {
		return nil, err
	}
	for at := *h.Manifest; ; {
		if at.Generation() == generation {
			return &at, nil
		}
		m, err := r.ReadManifest(ctx, ref, at.Name, &at.Digest)
		if format.IsDamage(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		before := m.Header.Before()
		i := slices.IndexFunc(before, func(b format.ManifestRef) bool {
			return b.Generation() >= generation && b.Generation() < at.Generation()
		})
		if i < 0 {
			return nil, nil
		}
		at = before[i]
	}
}

// skipGap returns the manifest before one that cannot be read. ok is false if the pins do not list it as a gap.
func (r *Repo) skipGap(
	ctx context.Context, ref format.Ref, damaged format.ManifestRef,
) (before *format.ManifestRef, ok bool, err error) {
	p, _, err := r.ReadPins(ctx, ref)
	if err != nil {
		return nil, false, err
	}
	g := p.FindLost(damaged.Name)
	if g == nil || g.Before != nil && g.Before.Generation() >= damaged.Generation() {
		return nil, false, nil
	}
	return g.Before, true, nil
}
