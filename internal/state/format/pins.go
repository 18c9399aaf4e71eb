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

// Pins is the object that lists pinned versions, and versions that cannot be reached from HEAD through parents.
type Pins struct {
	Pins []Pin         `json:"pins,omitempty"`
	Kept []ManifestRef `json:"kept,omitempty"` // kept although a newer version was removed; newest first
	Lost []Gap         `json:"lost,omitempty"` // manifests that a repair could not read

	Key string `json:"-"` // id of the key that encrypts the object; empty if it is unencrypted
}

// EncodePins returns the stored bytes of a workspace's pins. It returns an error that wraps ErrQuota if there are too
// many, but never for Kept and Lost, of which it stores the first MaxKept and MaxLost.
func EncodePins(ref Ref, keys *Keyring, p Pins) ([]byte, error) {
	pins, err := json.Marshal(p.Pins)
	if err != nil {
		return nil, err
	}
	if len(pins) > maxPins {
		return nil, OverLimit(errors.New("there are too many pins"))
	}
	p.Kept, p.Lost = p.Kept[:min(len(p.Kept), MaxKept)], p.Lost[:min(len(p.Lost), MaxLost)]
	body, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return keys.encrypt(ref.pinsIdentity(), AppendDigest(body)), nil
}

// DecodePins decrypts and parses the stored bytes of a workspace's pins.
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

// Gap is a manifest that is missing or damaged, and that the history skips.
type Gap struct {
	Name   string       `json:"name"`
	Before *ManifestRef `json:"before,omitempty"` // the newest earlier version that can be read
}

// Limits of the object, which together keep it below 128 KiB, the largest object that can be swapped.
const (
	MaxKept = 600
	MaxLost = 40
	maxPins = 8 << 10 // bytes of the pins
)

// FindLost returns a lost manifest's gap, or nil.
func (p *Pins) FindLost(name string) *Gap {
	if i := slices.IndexFunc(p.Lost, func(g Gap) bool { return g.Name == name }); i >= 0 {
		return &p.Lost[i]
	}
	return nil
}

// HasLostBase reports whether m's version cannot be read because m builds on lost manifests.
func (p *Pins) HasLostBase(m *Manifest) bool {
	return slices.ContainsFunc(m.Header.Chain, func(l Layer) bool { return p.FindLost(l.Name) != nil })
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

// Retained is the immutable object that keeps one version until a time. Its key contains the time.
type Retained struct {
	At ManifestRef `json:"at"`
}

// RetainedKey returns the key of the object that retains a generation until a Unix time.
func (r Ref) RetainedKey(generation, until int64) string {
	return r.RetainedPrefix(generation) + strconv.FormatInt(until, 10)
}

// RetainedPrefix is the prefix of the keys of the objects that retain a generation.
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

// Floor is the object that records the last generation of a tenant's purged workspaces.
type Floor struct {
	Generation int64 `json:"generation"` // new workspaces begin above it
}

// FloorKey returns the key of a tenant's floor.
func FloorKey(tenant string) string { return tenant + "/floor/HEAD" }
