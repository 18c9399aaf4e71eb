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

// Pinned is a pin: a name that keeps a version from garbage collection.
type Pinned struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
}

// Pins returns a workspace's pins, oldest first.
func Pins(ctx context.Context, r *repo.Repo, ref format.Ref) ([]Pinned, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	p, _, err := r.ReadPins(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("read pins of %s: %w", ref, err)
	}
	var list []Pinned
	for _, pin := range p.Pins {
		list = append(list, Pinned{pin.Name, pin.Generation})
	}
	return list, nil
}

// Pin keeps a generation from garbage collection under a name. Generation 0 means the newest. An existing pin with that
// name is replaced. Pin returns objects.ErrNotFound for a version that is no longer kept, as soon as garbage collection
// has marked what it needs.
func Pin(ctx context.Context, r *repo.Repo, ref format.Ref, name string, generation int64) error {
	if !names.IsSlug(name) {
		return fmt.Errorf("pin name %q is not a slug", name)
	}
	if err := ref.Check(); err != nil {
		return err
	}
	at, err := r.FindKeepable(ctx, ref, generation)
	if err == nil && at == nil {
		err = fmt.Errorf("%s has no version: %w", ref, objects.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	return r.ChangePins(ctx, ref, func(p *format.Pins) bool {
		p.Pins = slices.DeleteFunc(p.Pins, func(x format.Pin) bool { return x.Name == name })
		p.Pins = append(p.Pins, format.Pin{Name: name, Generation: at.Generation(), At: *at})
		return true
	})
}

// Unpin removes a pin. A missing pin counts as removed.
func Unpin(ctx context.Context, r *repo.Repo, ref format.Ref, name string) error {
	if err := ref.Check(); err != nil {
		return err
	}
	return r.ChangePins(ctx, ref, func(p *format.Pins) bool {
		before := len(p.Pins)
		p.Pins = slices.DeleteFunc(p.Pins, func(x format.Pin) bool { return x.Name == name })
		return len(p.Pins) < before
	})
}
