package state

import (
	"context"
	"slices"
)

// gap is a manifest that is gone, or damaged, and which Repair has given up: the history goes on before it.
type gap struct {
	Name   string `json:"name"`
	Before *link  `json:"before,omitempty"` // the newest version before it that can be read
}

const maxGaps = 40 // what fits into the object of the pins beside the pins

func (p *pins) lost(name string) *gap {
	if i := slices.IndexFunc(p.Lost, func(g gap) bool { return g.Name == name }); i >= 0 {
		return &p.Lost[i]
	}
	return nil
}

// brokenBy reports whether a version cannot be read because it builds on manifests that were given up.
func (p *pins) brokenBy(m *manifest) bool {
	return slices.ContainsFunc(m.header.Chain, func(l link) bool { return p.lost(l.Name) != nil })
}

// bridge returns where the history goes on when it leads to a manifest that cannot be read.
func (s *Store) bridge(ctx context.Context, ref Ref, l link) (before *link, ok bool, err error) {
	p, _, err := s.readPins(ctx, ref)
	if err != nil {
		return nil, false, err
	}
	g := p.lost(l.Name)
	if g == nil || g.Before != nil && g.Before.generation() >= l.generation() {
		return nil, false, nil
	}
	return g.Before, true, nil
}
