package format

import (
	"encoding/json"
	"fmt"
	"maps"
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
	maxManifestLine = 8 << 20   // bytes of a header with many packs, or of a file with many chunks
	maxEntries      = 2_000_000
	chunkerID       = "fastcdc-1m-2m-4m" // algorithm; minimal, normal and maximal chunk size
)

const (
	chainMin = 16 // minimal number of deltas between full manifests
	chainMax = 64 // maximal number of deltas between full manifests
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
	Parent     *ManifestRef    `json:"parent,omitempty"`      // of the previous generation
	Chain      []ManifestRef   `json:"chain,omitempty"`       // deltas only: full manifest first, parent last
	ChainBytes int64           `json:"chain_bytes,omitempty"` // stored size of the preceding deltas
	FullBytes  int64           `json:"full_bytes,omitempty"`  // stored size of the full manifest
	// Changed lists the paths that the commit changed if the lines do not: in a full manifest with a parent, and in a
	// delta with Moved lines.
	Changed   []string  `json:"changed,omitempty"`
	Moved     int       `json:"moved,omitempty"` // lines of a delta that only record where content is stored now
	Conflicts []string  `json:"conflicts,omitempty"`
	Chunker   string    `json:"chunker"`
	Files     int       `json:"files"` // of the version, not of this manifest
	Bytes     int64     `json:"bytes"`
	Packs     []PackRef `json:"packs,omitempty"` // the lines refer to them by index
	Lines     int       `json:"lines"`
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
}

// IsFull reports whether m lists every path of its version.
func (m *Manifest) IsFull() bool { return len(m.Header.Chain) == 0 }

// ChangedPaths returns the paths that the commit changed.
func (m *Manifest) ChangedPaths() []string {
	if m.IsFull() && m.Header.Parent != nil || m.Header.Moved > 0 {
		return m.Header.Changed
	}
	return ChangedPaths(m.Changes)
}

// Extend makes m the successor of prev, which is nil for the first version of a workspace and for the first version
// after a deletion. m becomes a full manifest of set if full is set or the chain of deltas is too long, and a delta of
// prev otherwise. prevBytes is prev's stored size.
func (m *Manifest) Extend(prev *Manifest, prevRef *ManifestRef, prevBytes int64, set *EntrySet, full bool) {
	if prev == nil {
		m.Changes = EmptySet.Diff(set)
		return
	}
	parent := *prevRef
	m.Header.Parent = &parent
	chain := append(slices.Clone(prev.Header.Chain), parent)
	fullBytes, deltas := prev.Header.FullBytes, prev.Header.ChainBytes
	if prev.IsFull() {
		fullBytes = prevBytes
	} else {
		deltas += prevBytes
	}
	if full || len(chain) > chainMax || len(chain) >= chainMin && deltas >= fullBytes/4 {
		if m.Header.Moved == 0 {
			m.Header.Changed = ChangedPaths(m.Changes)
		}
		m.Header.Moved = 0
		m.Changes = EmptySet.Diff(set)
		return
	}
	m.Header.Chain, m.Header.FullBytes, m.Header.ChainBytes = chain, fullBytes, deltas
}

// Squash combines the changes of consecutive manifests.
func Squash(deltas []*Manifest) []Change {
	if len(deltas) == 1 {
		return deltas[0].Changes
	}
	latest := map[string]Change{}
	for _, m := range deltas {
		for _, c := range m.Changes {
			latest[c.Path] = c
		}
	}
	changes := slices.Collect(maps.Values(latest))
	SortChanges(changes)
	return changes
}
