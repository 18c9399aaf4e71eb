package format

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pins is the second mutable object of a workspace: versions that outlive their turn.
type Pins struct {
	Pins []Pin         `json:"pins,omitempty"`
	Kept []ManifestRef `json:"kept,omitempty"` // by retention, newest first
	Lost []Gap         `json:"lost,omitempty"` // what Repair has given up

	Key string `json:"-"` // id of the key that encrypts it; empty: unencrypted
}

type Pin struct {
	Name       string      `json:"name"`
	Generation int64       `json:"generation"`
	At         ManifestRef `json:"at"`
}

// Gap is a manifest that is gone, or damaged, and which Repair has given up: the history goes on before it.
type Gap struct {
	Name   string       `json:"name"`
	Before *ManifestRef `json:"before,omitempty"` // the newest version before it that can be read
}

const MaxGaps = 40 // what fits into the object of the pins beside the pins

func (p *Pins) FindLost(name string) *Gap {
	if i := slices.IndexFunc(p.Lost, func(g Gap) bool { return g.Name == name }); i >= 0 {
		return &p.Lost[i]
	}
	return nil
}

// BrokenBy reports whether a version cannot be read because it builds on manifests that were given up.
func (p *Pins) BrokenBy(m *Manifest) bool {
	return slices.ContainsFunc(m.Header.Chain, func(l ManifestRef) bool { return p.FindLost(l.Name) != nil })
}

// Older returns the links of generations below limit, newest first.
func (p *Pins) Older(limit int64) []ManifestRef {
	var links []ManifestRef
	for _, l := range p.Kept {
		if l.Generation() < limit {
			links = append(links, l)
		}
	}
	for _, pin := range p.Pins {
		if pin.Generation < limit {
			links = append(links, pin.At)
		}
	}
	slices.SortFunc(links, func(a, b ManifestRef) int { return cmp.Compare(b.Name, a.Name) })
	return slices.Compact(links)
}

// Retained is an object that keeps one version until a time, whatever retention says: what somebody
// was promised. Its key is k/<generation>-<unix time until>; it is written once.
type Retained struct {
	At ManifestRef `json:"at"`
}

func (r Ref) RetainKey(generation, until int64) string {
	return r.Key(fmt.Sprintf("k/%012d-%d", generation, until))
}

func (r Ref) retainedKey(name string) string { return r.Key("k/" + name) }

// ParseRetainedKey reads the part of a key behind k/.
func ParseRetainedKey(name string) (generation int64, until time.Time, ok bool) {
	g, u, found := strings.Cut(name, "-")
	generation, err1 := strconv.ParseInt(g, 10, 64)
	unix, err2 := strconv.ParseInt(u, 10, 64)
	return generation, time.Unix(unix, 0), found && errors.Join(err1, err2) == nil
}

// Floor is the object that remembers generations of purged workspaces.
type Floor struct {
	Generation int64 `json:"generation"` // no new workspace begins with this one or one below
}

func FloorKey(tenant string) string { return tenant + "/floor/HEAD" }
