package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/objects"
)

// EncodeManifest returns the stored bytes of one of ref's manifests, encrypted if keys has a current key. It sets m.Key
// and the header fields that are derived from the rest of m. It returns an error that wraps ErrQuota if DecodeManifest
// would refuse the manifest.
func (c Codec) EncodeManifest(ref Ref, keys *Keyring, m *Manifest) ([]byte, error) {
	data, err := c.encodeManifest(m)
	if err != nil {
		return nil, err
	}
	m.Key = keys.CurrentID()
	return keys.encrypt(ref.manifestIdentity(), data), nil
}

func (c Codec) encodeManifest(m *Manifest) ([]byte, error) {
	packs := packTable{index: map[objects.Digest]int{}}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	if len(m.Changes) > maxEntries {
		return nil, overLimit("a manifest has too many paths", len(m.Changes), maxEntries)
	}
	for _, ch := range m.Changes {
		if err := ch.check(); err != nil {
			return nil, OverLimit(fmt.Errorf("path %.80q cannot be stored: %w", ch.Path, err))
		}
		start := lines.Len()
		if err := enc.Encode(packs.line(ch)); err != nil {
			return nil, err
		}
		if n := lines.Len() - start; n > maxManifestLine {
			return nil, overLimit(fmt.Sprintf("the manifest's line of path %.80q is too long", ch.Path), n,
				maxManifestLine)
		}
	}
	m.Header.Format, m.Header.Chunker = manifestFormat, chunkerID
	m.Header.Lines = len(m.Changes)
	m.Header.ResultBlob = packs.blobs(m.Result)
	m.Header.Packs = packs.list
	header, err := json.Marshal(m.Header)
	if err != nil {
		return nil, err
	}
	text := append(append(header, '\n'), lines.Bytes()...)
	if len(text) > maxManifest {
		return nil, overLimit("a manifest is too long", len(text), maxManifest)
	}
	return c.enc.EncodeAll(text, nil), nil
}

// overLimit returns the error for a manifest that decodeManifest would refuse.
func overLimit(what string, has, limit int) error {
	return OverLimit(fmt.Errorf("%s: %d; the limit is %d", what, has, limit))
}

// packTable lists packs in the order of their first use.
type packTable struct {
	list  []PackRef
	index map[objects.Digest]int // in list
}

// blobs returns references to blobs, and adds their packs to the table.
func (t *packTable) blobs(blobs []Blob) []blobRef {
	if len(blobs) == 0 {
		return nil
	}
	refs := make([]blobRef, len(blobs))
	for i, b := range blobs {
		n, ok := t.index[b.Pack.ID]
		if !ok {
			n = len(t.list)
			t.index[b.Pack.ID] = n
			t.list = append(t.list, PackRef(*b.Pack))
		}
		refs[i] = blobRef{b.ID, n, b.Offset, b.Stored, b.Raw}
	}
	return refs
}

// line returns the line of a change, and adds the packs of its content to the table.
func (t *packTable) line(c Change) *entryLine {
	w := &entryLine{Kind: "-"}
	if utf8.ValidString(c.Path) {
		w.Path = c.Path
	} else {
		w.Path64 = []byte(c.Path)
	}
	if e := c.Entry; e != nil {
		w.Kind, w.Mode, w.Size, w.MTime = string(e.Kind), e.Mode, e.Size, e.MTime
		w.Blobs = t.blobs(e.Blobs)
		if utf8.ValidString(e.Target) {
			w.Link = e.Target
		} else {
			w.Link64 = []byte(e.Target)
		}
	}
	return w
}
