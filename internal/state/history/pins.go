package history

import (
	"context"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// Pinned is a pin: a name that keeps a version.
type Pinned struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
}

// Pins returns the pins of a workspace, oldest first.
func Pins(ctx context.Context, r *repo.Repo, ref format.Ref) ([]Pinned, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	p, _, err := r.ReadPins(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("pins of %s: %w", ref, err)
	}
	var list []Pinned
	for _, pin := range p.Pins {
		list = append(list, Pinned{pin.Name, pin.Generation})
	}
	return list, nil
}

// Pin keeps a generation (0: the newest) from garbage collection under a name. It replaces a pin of the same name.
func Pin(ctx context.Context, r *repo.Repo, ref format.Ref, name string, generation int64) error {
	if !names.IsSlug(name) {
		return fmt.Errorf("pin name %q is not a slug", name)
	}
	if err := ref.Check(); err != nil {
		return err
	}
	fresh := r.Fresh() // what is cached may have been removed
	var at *format.ManifestRef
	err := fresh.Walk(ctx, ref, func(l format.ManifestRef, m *format.Manifest) bool {
		if generation == 0 || m.Header.Generation == generation {
			at = &l
		}
		return at == nil && m.Header.Generation > generation
	})
	if err == nil && at == nil {
		err = objects.ErrNotFound
	}
	if err == nil {
		_, err = fresh.Load(ctx, ref, *at)
	}
	if err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	return r.ChangePins(ctx, ref, func(p *format.Pins) {
		p.Pins = slices.DeleteFunc(p.Pins, func(x format.Pin) bool { return x.Name == name })
		p.Pins = append(p.Pins, format.Pin{Name: name, Generation: at.Generation(), At: *at})
	})
}

// Unpin removes a pin; one that does not exist counts as removed.
func Unpin(ctx context.Context, r *repo.Repo, ref format.Ref, name string) error {
	return r.ChangePins(ctx, ref, func(p *format.Pins) {
		p.Pins = slices.DeleteFunc(p.Pins, func(x format.Pin) bool { return x.Name == name })
	})
}
