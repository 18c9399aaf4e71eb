package format

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// Pins is the object that names versions which parents do not lead to, or that must be kept.
type Pins struct {
	Pins []Pin         `json:"pins,omitempty"`
	Kept []ManifestRef `json:"kept,omitempty"` // by retention, beyond the first gap in the history; newest first
	Lost []Gap         `json:"lost,omitempty"` // manifests that a repair found lost

	Key string `json:"-"` // id of the key that encrypts it; empty: unencrypted
}

// EncodePins returns the stored bytes of the pins of ref. It wraps ErrQuota if they are too large.
func EncodePins(ref Ref, keys *Keyring, p Pins) ([]byte, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	data := keys.encrypt(ref.pinsIdentity(), AppendDigest(body))
	if len(data) > maxHead {
		return nil, fmt.Errorf("%w: too many pins", ErrQuota)
	}
	return data, nil
}

// DecodePins decrypts and parses the stored bytes of the pins of ref.
func DecodePins(ref Ref, keys *Keyring, data []byte) (Pins, error) {
	plain, key, err := keys.decrypt(ref.pinsIdentity(), data)
	if err != nil {
		return Pins{}, err
	}
	p := Pins{Key: key}
	body, ok := CutDigest(plain)
	if !ok || json.Unmarshal(body, &p) != nil {
		return p, objects.ErrCorrupt
	}
	return p, nil
}

// Pin is a name that keeps a version from garbage collection.
type Pin struct {
	Name       string      `json:"name"`
	Generation int64       `json:"generation"`
	At         ManifestRef `json:"at"`
}

// Gap is a manifest that is missing or damaged, and that the history passes over.
type Gap struct {
	Name   string       `json:"name"`
	Before *ManifestRef `json:"before,omitempty"` // the newest version before it that can be read
}

// MaxGaps is how many gaps fit into the object beside the pins.
const MaxGaps = 40

// FindLost returns the gap of a lost manifest, or nil.
func (p *Pins) FindLost(name string) *Gap {
	if i := slices.IndexFunc(p.Lost, func(g Gap) bool { return g.Name == name }); i >= 0 {
		return &p.Lost[i]
	}
	return nil
}

// BrokenBy reports whether the version of m cannot be read because it builds on lost manifests.
func (p *Pins) BrokenBy(m *Manifest) bool {
	return slices.ContainsFunc(m.Header.Chain, func(r ManifestRef) bool { return p.FindLost(r.Name) != nil })
}

// Older returns the manifests of pinned and kept generations below limit, newest first.
func (p *Pins) Older(limit int64) []ManifestRef {
	var refs []ManifestRef
	for _, r := range p.Kept {
		if r.Generation() < limit {
			refs = append(refs, r)
		}
	}
	for _, pin := range p.Pins {
		if pin.Generation < limit {
			refs = append(refs, pin.At)
		}
	}
	slices.SortFunc(refs, func(a, b ManifestRef) int { return cmp.Compare(b.Name, a.Name) })
	return slices.Compact(refs)
}

// Retained is the immutable object that keeps one version until a time, which is in its key.
type Retained struct {
	At ManifestRef `json:"at"`
}

// RetainedKey returns the key of the object that retains a generation until a Unix time.
func (r Ref) RetainedKey(generation, until int64) string {
	return r.RetainedPrefix(generation) + strconv.FormatInt(until, 10)
}

// RetainedPrefix begins the keys of the objects that retain a generation.
func (r Ref) RetainedPrefix(generation int64) string {
	return r.Key(fmt.Sprintf("k/%012d-", generation))
}

// ParseRetainedKey parses the part of a key after k/.
func ParseRetainedKey(name string) (generation int64, until time.Time, ok bool) {
	g, u, found := strings.Cut(name, "-")
	generation, err1 := strconv.ParseInt(g, 10, 64)
	unix, err2 := strconv.ParseInt(u, 10, 64)
	return generation, time.Unix(unix, 0), found && errors.Join(err1, err2) == nil
}

// Floor is the object that remembers the generations of purged workspaces.
type Floor struct {
	Generation int64 `json:"generation"` // new workspaces begin above it
}

// FloorKey returns the key of the floor of a tenant.
func FloorKey(tenant string) string { return tenant + "/floor/HEAD" }
