package format

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// A manifest is a zstd frame of JSON lines: a header, then one line per path, sorted by the bytes of the paths. A full
// manifest lists every path. A delta lists what changed since its parent, and its header lists the manifests that it
// builds on, starting with a full one.
const (
	manifestFormat  = 1
	maxManifest     = 512 << 20 // bytes, decompressed
	maxManifestLine = 8 << 20   // bytes of the line of a path, with its end; a header may be as long as a manifest
	maxChanged      = 4 << 20   // bytes of Header.Changed; earlier releases refuse a header above 8 MiB
	maxEntries      = 2_000_000
	chunkerID       = "fastcdc-1m-2m-4m" // algorithm; minimal, normal and maximal chunk size
)

// ManifestRef identifies a manifest by its name and the digest of its bytes.
type ManifestRef struct {
	Name   string         `json:"name"` // <generation>-<first 16 digits of the digest>
	Digest objects.Digest `json:"digest"`
}

// Generation returns the generation in the name, or 0 if the name is malformed.
func (r ManifestRef) Generation() int64 {
	digits, _, _ := strings.Cut(r.Name, "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Digits returns the digits of the digest in the name.
func (r ManifestRef) Digits() string {
	_, digits, _ := strings.Cut(r.Name, "-")
	return digits
}

// ManifestName returns a manifest's name.
func ManifestName(generation int64, digits string) string {
	return fmt.Sprintf("%012d-%s", generation, digits)
}

// ManifestDigits returns the digits of a digest that are part of the manifest's name.
func ManifestDigits(d objects.Digest) string { return d.String()[:16] }

// Header is the first line of a manifest.
type Header struct {
	Format     int             `json:"format"`
	Generation int64           `json:"generation"`
	Commit     string          `json:"commit"` // random id, so that no two manifests are the same object
	Time       time.Time       `json:"time"`
	TaskID     string          `json:"task_id,omitempty"`
	Attempt    int             `json:"attempt,omitempty"`
	Message    string          `json:"message,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	ResultBlob []blobRef       `json:"result_blob,omitempty"` // a large result, instead of Result
	Parent     *ManifestRef    `json:"parent,omitempty"`      // the manifest of the previous generation
	// Ancestors are the newest manifests whose generations are multiples of 16, of 256, of 4096, and so on.
	Ancestors []ManifestRef `json:"ancestors,omitempty"`
	Chain     []Layer       `json:"chain,omitempty"` // deltas only: the manifests to apply before it, a full one first
	// Changed lists the paths that the commit changed if the lines do not: in a full manifest with a parent, and in a
	// delta with Repeated lines.
	Changed []string `json:"changed,omitempty"`
	// ManyChanged says that Changed is left out because it would be too long: what the commit changed is then the
	// difference between its version and the parent's.
	ManyChanged bool `json:"many_changed,omitempty"`
	// Repeated counts the lines of a delta that record no change of its commit: those that say where moved content is
	// now, and those of the manifests that the delta replaces in the chain.
	Repeated  int       `json:"repeated,omitempty"`
	Conflicts []string  `json:"conflicts,omitempty"` // paths that both sides changed, with CommitOptions.KeepBoth
	Chunker   string    `json:"chunker"`
	Files     int       `json:"files"` // entries of the version, not of this manifest
	Bytes     int64     `json:"bytes"`
	Packs     []PackRef `json:"packs,omitempty"` // the lines refer to them by index
	Lines     int       `json:"lines"`
}

// Before returns the references of h to older manifests, oldest first: Ancestors and Parent.
func (h *Header) Before() []ManifestRef {
	var refs []ManifestRef
	for _, at := range slices.Backward(h.Ancestors) {
		refs = append(refs, at)
	}
	if h.Parent != nil {
		refs = append(refs, *h.Parent)
	}
	return refs
}

// Layer is a manifest in the chain of a delta.
type Layer struct {
	ManifestRef
	Lines int `json:"lines"`
}

// PackRef is a Pack as a manifest's header lists it.
type PackRef struct {
	ID   objects.Digest `json:"id"`
	Size int64          `json:"size"`
	Key  string         `json:"key,omitempty"`
}

type blobRef struct {
	ID     objects.Digest `json:"i"`
	Pack   int            `json:"k"`
	Offset int64          `json:"o"`
	Stored int64          `json:"n"`
	Raw    int64          `json:"r"`
}

// entryLine is one path's line. The fields Path64 and Link64 hold a path or target that is not UTF-8.
type entryLine struct {
	Path   string    `json:"p,omitempty"`
	Path64 []byte    `json:"p64,omitempty"`
	Kind   string    `json:"t"` // f, d, l, or - for a removed path
	Mode   uint32    `json:"m,omitempty"`
	Size   int64     `json:"s,omitempty"`
	MTime  int64     `json:"mt,omitempty"`
	Link   string    `json:"l,omitempty"`
	Link64 []byte    `json:"l64,omitempty"`
	Blobs  []blobRef `json:"b,omitempty"`
}

// Manifest is a decoded manifest.
type Manifest struct {
	Header  Header
	Changes []Change // all entries if it is full
	Result  []Blob   // Header.ResultBlob, decoded
	Key     string   // id of the key that encrypts the object; empty if it is unencrypted

	below [][]string // paths of each manifest of Header.Chain after the first; set by Attach and Extend
}

// IsFull reports whether m lists every path of its version.
func (m *Manifest) IsFull() bool { return len(m.Header.Chain) == 0 }

// ChangedPaths returns the paths that the commit changed, or none if Header.ManyChanged is set.
func (m *Manifest) ChangedPaths() []string {
	if m.changedInHeader() {
		return m.Header.Changed
	}
	return ChangedPaths(m.Changes)
}

// changedInHeader reports whether Changed or ManyChanged of the header says what the commit changed, because the lines
// do not.
func (m *Manifest) changedInHeader() bool {
	return m.IsFull() && m.Header.Parent != nil || m.Header.Repeated > 0
}
