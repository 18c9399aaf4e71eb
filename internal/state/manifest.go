package state

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

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

// link names a manifest: its name below m/ and the digest of its bytes.
type link struct {
	Name   string         `json:"name"` // generation-first 16 digits of the digest
	Digest objects.Digest `json:"digest"`
}

// generation returns the number that the name begins with, or 0.
func (l link) generation() int64 {
	digits, _, _ := strings.Cut(l.Name, "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// digits is what the name says of the digest.
func (l link) digits() string {
	_, digits, _ := strings.Cut(l.Name, "-")
	return digits
}

// header is the first line of a manifest.
type header struct {
	Format     int             `json:"format"`
	Generation int64           `json:"generation"`
	Commit     string          `json:"commit"` // random: no two manifests are the same object
	Time       time.Time       `json:"time"`
	TaskID     string          `json:"task_id,omitempty"`
	Attempt    int             `json:"attempt,omitempty"`
	Message    string          `json:"message,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	ResultBlob []wireBlob      `json:"result_blob,omitempty"` // instead of Result when that is large
	Parent     *link           `json:"parent,omitempty"`      // the generation before
	Chain      []link          `json:"chain,omitempty"`       // of a delta: full manifest first, parent last
	ChainBytes int64           `json:"chain_bytes,omitempty"` // stored size of the deltas before this one
	FullBytes  int64           `json:"full_bytes,omitempty"`  // stored size of the full manifest
	Changed    []string        `json:"changed,omitempty"`     // what this commit changed: of a full manifest with a parent, and of one with Moved
	Moved      int             `json:"moved,omitempty"`       // lines of a delta that only say where content lies now
	Conflicts  []string        `json:"conflicts,omitempty"`
	Chunker    string          `json:"chunker"`
	Files      int             `json:"files"` // of the version, not of this manifest
	Bytes      int64           `json:"bytes"`
	Packs      []wirePack      `json:"packs,omitempty"` // that the lines below refer to by position
	Lines      int             `json:"lines"`
}

type wirePack struct {
	ID   objects.Digest `json:"id"`
	Size int64          `json:"size"`
	Key  string         `json:"key,omitempty"` // that encrypts it
}

type wireBlob struct {
	ID     objects.Digest `json:"i"`
	Pack   int            `json:"k"`
	Offset int64          `json:"o"`
	Stored int64          `json:"n"`
	Raw    int64          `json:"r"`
}

// wireEntry is one line. A path or target that is not UTF-8 goes into the base64 fields.
type wireEntry struct {
	Path   string     `json:"p,omitempty"`
	Path64 []byte     `json:"p64,omitempty"`
	Kind   string     `json:"t"` // f, d, l, or - for a removed path
	Mode   uint32     `json:"m,omitempty"`
	Size   int64      `json:"s,omitempty"`
	MTime  int64      `json:"mt,omitempty"`
	Link   string     `json:"l,omitempty"`
	Link64 []byte     `json:"l64,omitempty"`
	Blobs  []wireBlob `json:"b,omitempty"`
}

// manifest is a decoded manifest.
type manifest struct {
	header  header
	changes []change // all entries of a full one
	result  []blob   // header.ResultBlob with packs resolved
	key     string   // id of the key that encrypts it; empty: it is in the clear
}

func (m *manifest) full() bool { return len(m.header.Chain) == 0 }

// encodeManifest returns the stored bytes of m. It fills header.Packs,
// ResultBlob and Lines.
func (c codec) encodeManifest(m *manifest) ([]byte, error) {
	var packs packTable
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for _, ch := range m.changes {
		if err := enc.Encode(packs.wire(ch)); err != nil {
			return nil, err
		}
	}
	m.header.Format, m.header.Chunker = manifestFormat, chunkerID
	m.header.Lines = len(m.changes)
	m.header.ResultBlob = packs.blobs(m.result)
	m.header.Packs = packs.list
	head, err := json.Marshal(m.header)
	if err != nil {
		return nil, err
	}
	return c.enc.EncodeAll(append(append(head, '\n'), lines.Bytes()...), nil), nil
}

// packTable numbers packs in the order of their first use.
type packTable struct {
	list   []wirePack
	number map[objects.Digest]int
}

func (t *packTable) blobs(blobs []blob) []wireBlob {
	if len(blobs) == 0 {
		return nil
	}
	wire := make([]wireBlob, len(blobs))
	for i, b := range blobs {
		n, ok := t.number[b.Pack.ID]
		if !ok {
			if t.number == nil {
				t.number = map[objects.Digest]int{}
			}
			n = len(t.list)
			t.number[b.Pack.ID] = n
			t.list = append(t.list, wirePack(*b.Pack))
		}
		wire[i] = wireBlob{b.ID, n, b.Offset, b.Stored, b.Raw}
	}
	return wire
}

func (t *packTable) wire(c change) *wireEntry {
	w := &wireEntry{Kind: "-"}
	if utf8.ValidString(c.path) {
		w.Path = c.path
	} else {
		w.Path64 = []byte(c.path)
	}
	if e := c.entry; e != nil {
		w.Kind, w.Mode, w.Size, w.MTime = string(e.Kind), e.Mode, e.Size, e.MTime
		w.Blobs = t.blobs(e.Blobs)
		if utf8.ValidString(e.Link) {
			w.Link = e.Link
		} else {
			w.Link64 = []byte(e.Link)
		}
	}
	return w
}

// decodeManifest parses and validates stored bytes, which may be hostile.
// With headerOnly the lines are not read.
func decodeManifest(data []byte, headerOnly bool) (*manifest, error) {
	zr, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(8*zstdWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", objects.ErrCorrupt, err)
	}
	defer zr.Close()
	lines := bufio.NewScanner(io.LimitReader(zr, maxManifest))
	lines.Buffer(make([]byte, 0, 64<<10), maxManifestLine)
	m, err := readManifest(lines, headerOnly)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", objects.ErrCorrupt, err)
	}
	return m, nil
}

func readManifest(lines *bufio.Scanner, headerOnly bool) (*manifest, error) {
	m := &manifest{}
	if err := scanJSON(lines, &m.header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	packs, err := m.header.check()
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if m.result, err = resolve(m.header.ResultBlob, packs); err != nil {
		return nil, fmt.Errorf("header: result: %w", err)
	}
	if headerOnly {
		return m, nil
	}
	last := ""
	for range m.header.Lines {
		var w wireEntry
		if err := scanJSON(lines, &w); err != nil {
			return nil, fmt.Errorf("after %q: %w", last, err)
		}
		c, err := w.decode(packs)
		if err != nil {
			return nil, err
		}
		if c.path <= last {
			return nil, fmt.Errorf("path %q comes after %q", c.path, last)
		}
		if m.full() && c.entry == nil {
			return nil, fmt.Errorf("path %q is removed in a full manifest", c.path)
		}
		last = c.path
		m.changes = append(m.changes, c)
	}
	if lines.Scan() {
		return nil, errors.New("more lines than the header says")
	}
	return m, lines.Err()
}

func scanJSON(lines *bufio.Scanner, v any) error {
	if !lines.Scan() {
		if err := lines.Err(); err != nil {
			return err
		}
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(lines.Bytes(), v)
}

// check validates the header and returns its packs.
func (h *header) check() ([]*pack, error) {
	switch {
	case h.Format != manifestFormat:
		return nil, fmt.Errorf("format %d, this program reads %d", h.Format, manifestFormat)
	case h.Generation < 1:
		return nil, fmt.Errorf("generation %d", h.Generation)
	case h.Lines < 0 || h.Lines > maxEntries:
		return nil, fmt.Errorf("%d lines", h.Lines)
	case len(h.Chain) > chainMost:
		return nil, fmt.Errorf("chain of %d manifests", len(h.Chain))
	}
	packs := make([]*pack, len(h.Packs))
	for i, p := range h.Packs {
		if p.Size < 0 || p.Size > packLimit {
			return nil, fmt.Errorf("pack of %d bytes", p.Size)
		}
		packs[i] = &pack{p.ID, p.Size, p.Key}
	}
	return packs, nil
}

func resolve(wire []wireBlob, packs []*pack) ([]blob, error) {
	if len(wire) == 0 {
		return nil, nil
	}
	blobs := make([]blob, len(wire))
	for i, w := range wire {
		if w.Pack < 0 || w.Pack >= len(packs) {
			return nil, fmt.Errorf("pack number %d of %d", w.Pack, len(packs))
		}
		p := packs[w.Pack]
		stored := w.Stored - p.overhead()
		if w.Raw < 1 || w.Raw > maxBlob || stored < 1 || stored > w.Raw || w.Offset < 0 || w.Offset > p.Size-w.Stored {
			return nil, fmt.Errorf("blob of %d bytes stored at %d+%d in a pack of %d", w.Raw, w.Offset, w.Stored, p.Size)
		}
		blobs[i] = blob{w.ID, p, w.Offset, w.Stored, w.Raw}
	}
	return blobs, nil
}

func (w *wireEntry) decode(packs []*pack) (change, error) {
	path, target := w.Path, w.Link
	if w.Path64 != nil {
		path = string(w.Path64)
	}
	if w.Link64 != nil {
		target = string(w.Link64)
	}
	if err := checkPath(path); err != nil {
		return change{}, err
	}
	if w.Kind == "-" {
		return change{path: path}, nil
	}
	blobs, err := resolve(w.Blobs, packs)
	if err != nil {
		return change{}, fmt.Errorf("path %q: %w", path, err)
	}
	if len(w.Kind) != 1 {
		return change{}, fmt.Errorf("path %q: type %q", path, w.Kind)
	}
	e := &entry{Path: path, Kind: kind(w.Kind[0]), Mode: w.Mode, Size: w.Size, MTime: w.MTime, Link: target, Blobs: blobs}
	if err := e.check(); err != nil {
		return change{}, fmt.Errorf("path %q: %w", path, err)
	}
	return change{path, e}, nil
}

// check validates what a manifest says about one path.
func (e *entry) check() error {
	var total int64
	for _, b := range e.Blobs {
		total += b.Raw
	}
	switch {
	case e.Mode&^0o777 != 0:
		return fmt.Errorf("mode %o", e.Mode)
	case e.Size != total:
		return fmt.Errorf("size %d, content has %d", e.Size, total)
	case e.Kind != kindFile && total != 0:
		return errors.New("content in something that is no file")
	case (e.Kind == kindLink) != (e.Link != ""):
		return errors.New("link without a target, or a target without a link")
	case len(e.Link) > maxPath || bytes.IndexByte([]byte(e.Link), 0) >= 0:
		return errors.New("link target is too long or has a NUL")
	case e.Kind != kindFile && e.Kind != kindDir && e.Kind != kindLink:
		return fmt.Errorf("type %q", e.Kind)
	}
	return nil
}
