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

// A manifest is a zstd frame of JSON lines: a header, then one line per path, sorted by
// the bytes of the paths. A full manifest lists every path. A delta lists what changed since
// its parent, and its header names the manifests that it builds upon, from the last full one on.
const (
	manifestFormat  = 1
	maxManifest     = 512 << 20 // bytes, decompressed
	maxManifestLine = 8 << 20   // header with packs, or a file of very many chunks
	maxEntries      = 2_000_000
	chunkerID       = "fastcdc-1m-2m-4m" // algorithm, minimal, normal and maximal bytes of a chunk
)

const (
	chainMin = 16 // deltas before a full manifest is written, while they are small
	chainMax = 64 // deltas before a full manifest is written whatever their size
)

// ManifestRef refers to a manifest by its name and the digest of its bytes.
type ManifestRef struct {
	Name   string         `json:"name"` // <generation>-<first 16 digits of the digest>
	Digest objects.Digest `json:"digest"`
}

// Generation returns the generation in the name, or 0.
func (l ManifestRef) Generation() int64 {
	digits, _, _ := strings.Cut(l.Name, "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Digits returns the digits of the digest in the name.
func (l ManifestRef) Digits() string {
	_, digits, _ := strings.Cut(l.Name, "-")
	return digits
}

// ManifestName returns the name of a manifest.
func ManifestName(generation int64, digits string) string {
	return fmt.Sprintf("%012d-%s", generation, digits)
}

// ManifestDigits returns the part of a digest that is in the name of its manifest.
func ManifestDigits(d objects.Digest) string { return d.String()[:16] }

// Header is the first line of a manifest.
type Header struct {
	Format     int             `json:"format"`
	Generation int64           `json:"generation"`
	Commit     string          `json:"commit"` // random: no two manifests are the same object
	Time       time.Time       `json:"time"`
	TaskID     string          `json:"task_id,omitempty"`
	Attempt    int             `json:"attempt,omitempty"`
	Message    string          `json:"message,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	ResultBlob []blobRef       `json:"result_blob,omitempty"` // a large result, instead of Result
	Parent     *ManifestRef    `json:"parent,omitempty"`      // the generation before
	Chain      []ManifestRef   `json:"chain,omitempty"`       // of a delta: full manifest first, parent last
	ChainBytes int64           `json:"chain_bytes,omitempty"` // stored size of the deltas before this one
	FullBytes  int64           `json:"full_bytes,omitempty"`  // stored size of the full manifest
	// Changed are the paths that the commit changed, where the lines do not say so: of a full manifest with a
	// parent, and of one with Moved.
	Changed   []string  `json:"changed,omitempty"`
	Moved     int       `json:"moved,omitempty"` // lines of a delta that only say where content is stored now
	Conflicts []string  `json:"conflicts,omitempty"`
	Chunker   string    `json:"chunker"`
	Files     int       `json:"files"` // of the version, not of this manifest
	Bytes     int64     `json:"bytes"`
	Packs     []PackRef `json:"packs,omitempty"` // the lines refer to them by position
	Lines     int       `json:"lines"`
}

// PackRef is a Pack in a manifest.
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

// entryLine is the line of one path. A path or target that is not UTF-8 is in the base64 field.
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
	Changes []Change // of a full one: all entries
	Result  []Blob   // of Header.ResultBlob
	Key     string   // id of the key that encrypts it; empty: unencrypted
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

// Extend makes m the successor of prev, which is nil for the first version of a workspace, or the first after its
// deletion. m becomes a delta of prev unless the chain of deltas is long and large, or full is set: then it lists all
// entries of set. prevBytes is the stored size of prev.
func (m *Manifest) Extend(prev *Manifest, prevRef *ManifestRef, prevBytes int64, set *EntrySet, full bool) {
	if prev == nil {
		m.Changes = AllEntries(set)
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
		m.Changes = AllEntries(set)
		return
	}
	m.Header.Chain, m.Header.FullBytes, m.Header.ChainBytes = chain, fullBytes, deltas
}
