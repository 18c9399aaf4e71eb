package format

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/objects"
)

// A HEAD may carry objects: packs and manifests, with the bytes that they will be stored with. They are between the
// JSON text and the digest, which covers both:
//
//	newline | per object: "p " or "m ", its name, " ", its length, newline, its bytes
//
// Such a HEAD has the format headCarrying, which programs that know only headFormat refuse.
const (
	headCarrying = 2
	maxCarried   = 116 << 10 // bytes of all objects; with the JSON text and encryption, HEAD stays below MaxHead

	// MaxHead is the limit of HEAD in bytes.
	MaxHead = 128 << 10
	// MaxCarriedCommit is how many bytes the objects of a commit may have if HEAD is to carry them.
	MaxCarriedCommit = 64 << 10
	// MaxCarriedManifests is how many manifests HEAD may carry. If HEAD is lost, at most so many commits are lost.
	MaxCarriedManifests = 64
)

// Carried is an object that HEAD carries.
type Carried struct {
	Pack     objects.Digest // id of a pack; zero for a manifest
	Manifest string         // name of a manifest; empty for a pack
	Data     []byte
}

// Key returns the key under which the object will be stored.
func (c *Carried) Key(ref Ref) string {
	if c.Manifest != "" {
		return ref.ManifestKey(c.Manifest)
	}
	return PackKey(ref.Tenant, c.Pack)
}

// FitsHead reports whether one HEAD may carry all of the given objects.
func FitsHead(carried []Carried) bool {
	size, manifests := 0, 0
	for i := range carried {
		size += len(carried[i].frame()) + len(carried[i].Data)
		if carried[i].Manifest != "" {
			manifests++
		}
	}
	return size <= maxCarried && manifests <= MaxCarriedManifests
}

// frame returns the line before the object's bytes.
func (c *Carried) frame() string {
	if c.Manifest != "" {
		return fmt.Sprintf("m %s %d\n", c.Manifest, len(c.Data))
	}
	return fmt.Sprintf("p %s %d\n", c.Pack, len(c.Data))
}

// appendCarried appends what h carries to its JSON text.
func (h *Head) appendCarried(text []byte) []byte {
	if len(h.Carried) == 0 {
		return text
	}
	text = append(text, '\n')
	for i := range h.Carried {
		text = append(append(text, h.Carried[i].frame()...), h.Carried[i].Data...)
	}
	return text
}

// parseCarried reverses appendCarried. Each object must match the digest in its name.
func parseCarried(data []byte) ([]Carried, error) {
	var list []Carried
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		var kind, name string
		var n int
		if _, err := fmt.Sscanf(string(line), "%1s %s %d", &kind, &name, &n); err != nil || n < 0 || n > len(rest) {
			return nil, errors.New("a carried object is malformed")
		}
		c := Carried{Data: rest[:n:n]}
		digest := objects.Sum(c.Data)
		switch at := (ManifestRef{Name: name}); {
		case kind == "p" && c.Pack.UnmarshalText([]byte(name)) == nil && digest == c.Pack:
		case kind == "m" && name == ManifestName(at.Generation(), ManifestDigits(digest)):
			c.Manifest = name
		default:
			return nil, errors.New("a carried object does not match its digest")
		}
		if frame := c.frame(); frame != string(line)+"\n" {
			return nil, errors.New("a carried object is malformed")
		}
		list, data = append(list, c), rest[n:]
	}
	if len(list) == 0 || !FitsHead(list) {
		return nil, fmt.Errorf("HEAD carries %d objects: none, or more than fit", len(list))
	}
	return list, nil
}
