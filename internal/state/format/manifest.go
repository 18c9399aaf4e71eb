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

// A manifest is a zstd frame of JSON lines: a header, then one line per path in
// the order of the paths' bytes. A full manifest lists every path; a delta lists what
// changed since its parent, and its header names the manifests from the last full
// one on that it builds upon.
const (
	manifestFormat  = 1
	maxManifest     = 512 << 20 // bytes, decompressed
	maxManifestLine = 8 << 20   // header with packs, or a file of very many chunks
	maxEntries      = 2_000_000
	chunkerID       = "fastcdc-1m-2m-4m" // go-cdc-chunkers "fastcdc", min, normal, max
)

const (
	chainMin = 16 // deltas before a full manifest is written, while they are small
	chainMax = 64 // deltas before a full manifest is written whatever their size
)

// ManifestRef names a manifest: its name below m/ and the digest of its bytes.
type ManifestRef struct {
	Name   string         `json:"name"` // generation-first 16 digits of the digest
	Digest objects.Digest `json:"digest"`
}

// Generation returns the number that the name begins with, or 0.
func (l ManifestRef) Generation() int64 {
	digits, _, _ := strings.Cut(l.Name, "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Digits is what the name says of the digest.
func (l ManifestRef) Digits() string {
	_, digits, _ := strings.Cut(l.Name, "-")
	return digits
}

func ManifestName(generation int64, digits string) string {
	return fmt.Sprintf("%012d-%s", generation, digits)
}

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
	ResultBlob []blobRef       `json:"result_blob,omitempty"` // instead of Result when that is large
	Parent     *ManifestRef    `json:"parent,omitempty"`      // the generation before
	Chain      []ManifestRef   `json:"chain,omitempty"`       // of a delta: full manifest first, parent last
	ChainBytes int64           `json:"chain_bytes,omitempty"` // stored size of the deltas before this one
	FullBytes  int64           `json:"full_bytes,omitempty"`  // stored size of the full manifest
	Changed    []string        `json:"changed,omitempty"`     // what this commit changed: of a full manifest with a parent, and of one with Moved
	Moved      int             `json:"moved,omitempty"`       // lines of a delta that only say where content lies now
	Conflicts  []string        `json:"conflicts,omitempty"`
	Chunker    string          `json:"chunker"`
	Files      int             `json:"files"` // of the version, not of this manifest
	Bytes      int64           `json:"bytes"`
	Packs      []PackRef       `json:"packs,omitempty"` // that the lines below refer to by position
	Lines      int             `json:"lines"`
}

type PackRef struct {
	ID   objects.Digest `json:"id"`
	Size int64          `json:"size"`
	Key  string         `json:"key,omitempty"` // that encrypts it
}

type blobRef struct {
	ID     objects.Digest `json:"i"`
	Pack   int            `json:"k"`
	Offset int64          `json:"o"`
	Stored int64          `json:"n"`
	Raw    int64          `json:"r"`
}

// entryLine is one line. A path or target that is not UTF-8 goes into the base64 fields.
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
	Changes []Change // all entries of a full one
	Result  []Blob   // header.ResultBlob with packs resolved
	Key     string   // id of the key that encrypts it; empty: it is in the clear
}

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
// entries of snap. prevBytes is the stored size of prev.
func (m *Manifest) Extend(prev *Manifest, prevRef *ManifestRef, prevBytes int64, snap *Snapshot, full bool) {
	if prev == nil {
		m.Changes = AllEntries(snap)
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
		m.Changes = AllEntries(snap)
		return
	}
	m.Header.Chain, m.Header.FullBytes, m.Header.ChainBytes = chain, fullBytes, deltas
}
