package format

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/codefleet/codefleet/internal/objects"
)

// DecodeManifest decrypts, parses and validates the stored bytes of a manifest of ref.
func (c Codec) DecodeManifest(ref Ref, keys *Keyring, data []byte) (*Manifest, error) {
	return c.decodeEncrypted(ref, keys, data, false)
}

// DecodeSummary is like DecodeManifest, but decodes the lines only if they say what the commit changed. Otherwise the
// header does, see Header.Changed and Header.ManyChanged.
func (c Codec) DecodeSummary(ref Ref, keys *Keyring, data []byte) (*Manifest, error) {
	return c.decodeEncrypted(ref, keys, data, true)
}

func (c Codec) decodeEncrypted(ref Ref, keys *Keyring, data []byte, brief bool) (*Manifest, error) {
	plain, key, err := keys.decrypt(ref.manifestIdentity(), data)
	if err != nil {
		return nil, err
	}
	m, err := c.decodeManifest(plain, brief)
	if err != nil {
		return nil, err
	}
	m.Key = key
	return m, nil
}

func (c Codec) decodeManifest(data []byte, brief bool) (*Manifest, error) {
	const small = 256 << 10 // bytes; larger manifests are decompressed line by line
	var frame zstd.Header
	if frame.Decode(data) == nil && frame.HasFCS && frame.FrameContentSize <= small {
		plain, err := c.dec.DecodeAll(data, make([]byte, 0, frame.FrameContentSize))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", objects.ErrCorrupt, err)
		}
		return readManifest(bytes.NewReader(plain), brief)
	}
	zr, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(8*zstdWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", objects.ErrCorrupt, err)
	}
	defer zr.Close()
	return readManifest(io.LimitReader(zr, maxManifest), brief)
}

func readManifest(r io.Reader, brief bool) (*Manifest, error) {
	m, err := scanManifest(bufio.NewReader(r), brief)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", objects.ErrCorrupt, err)
	}
	return m, nil
}

func scanManifest(r *bufio.Reader, brief bool) (*Manifest, error) {
	m := &Manifest{}
	header, err := r.ReadBytes('\n') // earlier releases wrote headers above maxManifestLine
	if err == nil || errors.Is(err, io.EOF) && len(header) > 0 {
		err = json.Unmarshal(header, &m.Header)
	}
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	packs, err := m.Header.check()
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if m.Result, err = resolve(m.Header.ResultBlob, packs); err != nil {
		return nil, fmt.Errorf("header: result: %w", err)
	}
	if brief && m.changedInHeader() {
		return m, nil
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxManifestLine)
	last := ""
	for range m.Header.Lines {
		var w entryLine
		if err := scanJSON(lines, &w); err != nil {
			return nil, fmt.Errorf("line after %q: %w", last, err)
		}
		c, err := w.decode(packs)
		if err != nil {
			return nil, err
		}
		if c.Path <= last {
			return nil, fmt.Errorf("paths are not sorted: %q follows %q", c.Path, last)
		}
		if m.IsFull() && c.Entry == nil {
			return nil, fmt.Errorf("a full manifest removes path %q", c.Path)
		}
		last = c.Path
		m.Changes = append(m.Changes, c)
	}
	if lines.Scan() {
		return nil, fmt.Errorf("more lines than the %d that the header states", m.Header.Lines)
	}
	return m, lines.Err()
}

// scanJSON decodes the next line into v.
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
func (h *Header) check() ([]*Pack, error) {
	switch {
	case h.Format != manifestFormat:
		return nil, fmt.Errorf("format is %d, want %d", h.Format, manifestFormat)
	case h.Generation < 1:
		return nil, fmt.Errorf("invalid generation %d", h.Generation)
	case h.Lines < 0 || h.Lines > maxEntries:
		return nil, fmt.Errorf("invalid number of lines %d", h.Lines)
	case len(h.Ancestors) > maxAncestors:
		return nil, fmt.Errorf("%d ancestors; the limit is %d", len(h.Ancestors), maxAncestors)
	case len(h.Chain) > chainMax:
		return nil, fmt.Errorf("chain of %d manifests; the limit is %d", len(h.Chain), chainMax)
	}
	packs := make([]*Pack, len(h.Packs))
	for i, p := range h.Packs {
		if p.Size < 0 || p.Size > packLimit {
			return nil, fmt.Errorf("invalid pack size %d", p.Size)
		}
		packs[i] = &Pack{p.ID, p.Size, p.Key}
	}
	return packs, nil
}

// resolve returns the blobs that refs describe, with pointers to their packs.
func resolve(refs []blobRef, packs []*Pack) ([]Blob, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	blobs := make([]Blob, len(refs))
	for i, w := range refs {
		if w.Pack < 0 || w.Pack >= len(packs) {
			return nil, fmt.Errorf("pack index %d of %d packs", w.Pack, len(packs))
		}
		p := packs[w.Pack]
		stored := w.Stored - p.overhead()
		if w.Raw < 1 || w.Raw > MaxBlob || stored < 1 || stored > w.Raw || w.Offset < 0 || w.Offset > p.Size-w.Stored {
			return nil, fmt.Errorf("a blob of %d bytes at offset %d, stored in %d bytes, of a pack of %d bytes",
				w.Raw, w.Offset, w.Stored, p.Size)
		}
		blobs[i] = Blob{w.ID, p, w.Offset, w.Stored, w.Raw}
	}
	return blobs, nil
}

func (w *entryLine) decode(packs []*Pack) (Change, error) {
	path, target := w.Path, w.Link
	if w.Path64 != nil {
		path = string(w.Path64)
	}
	if w.Link64 != nil {
		target = string(w.Link64)
	}
	if err := CheckPath(path); err != nil {
		return Change{}, err
	}
	if w.Kind == "-" {
		return Change{Path: path}, nil
	}
	blobs, err := resolve(w.Blobs, packs)
	if err != nil {
		return Change{}, fmt.Errorf("path %q: %w", path, err)
	}
	if len(w.Kind) != 1 {
		return Change{}, fmt.Errorf("path %q: unknown kind %q", path, w.Kind)
	}
	e := &Entry{
		Path: path, Kind: Kind(w.Kind[0]), Mode: w.Mode, Size: w.Size, MTime: w.MTime, Target: target, Blobs: blobs,
	}
	if err := e.Check(); err != nil {
		return Change{}, fmt.Errorf("path %q: %w", path, err)
	}
	return Change{path, e}, nil
}
