package format

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
)

// TestLongHeader checks that a header above maxManifestLine, which earlier releases wrote, is read.
func TestLongHeader(t *testing.T) {
	m := &Manifest{
		Header:  Header{Generation: 2, Commit: "X", Parent: &ManifestRef{Name: "000000000001-0123456789abcdef"}},
		Changes: []Change{{"a", NewDir("a")}},
	}
	for i := range 10_000 {
		m.Header.Changed = append(m.Header.Changed, fmt.Sprintf("%s%06d", strings.Repeat("x", 1000), i))
	}
	c := NewCodec()
	data, err := c.encodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, brief := range []bool{false, true} {
		got, err := c.decodeManifest(data, brief)
		if err != nil {
			t.Fatalf("decodeManifest(brief %v) = %v, want nil", brief, err)
		}
		if len(got.Header.Changed) != 10_000 || !brief && len(got.Changes) != 1 {
			t.Errorf("decodeManifest(brief %v) = %d changed paths, %d lines, want 10000 and 1", brief,
				len(got.Header.Changed), len(got.Changes))
		}
	}
}

// TestEncodeLongLine checks that a manifest is encoded only if it can be decoded: a line has at most maxManifestLine
// bytes.
func TestEncodeLongLine(t *testing.T) {
	c := NewCodec()
	p := &Pack{ID: objects.Sum([]byte("pack")), Size: 1 << 20}
	encode := func(blobs int) ([]byte, error) {
		e := &Entry{Path: "large", Kind: KindFile, Mode: 0o644, Size: int64(blobs)}
		for range blobs {
			e.Blobs = append(e.Blobs, Blob{objects.Sum([]byte("a")), p, 0, 1, 1})
		}
		return c.encodeManifest(&Manifest{
			Header: Header{Generation: 1, Commit: "X", Files: 1, Bytes: e.Size}, Changes: []Change{{"large", e}},
		})
	}
	data, err := encode(80_000)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := c.decodeManifest(data, false); err != nil || len(m.Changes[0].Entry.Blobs) != 80_000 {
		t.Errorf("decodeManifest() of 80,000 blobs = %v, want nil", err)
	}
	if _, err := encode(100_000); !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), `"large"`) {
		t.Errorf("encodeManifest() of 100,000 blobs = %v, want %v with the path", err, ErrQuota)
	}
}

// TestEncodeInvalidPaths checks that a manifest with a path or an entry that decodeManifest refuses is not encoded.
func TestEncodeInvalidPaths(t *testing.T) {
	for _, c := range []Change{
		{Path: strings.Repeat("x", MaxComponent+1)},
		{Path: strings.Repeat("x/", MaxPath/2) + "y"},
		{Path: "../x"},
		{"x", &Entry{Path: "x", Kind: KindFile, Mode: 0o1777}},
		{"x", &Entry{Path: "x", Kind: KindSymlink}},
	} {
		m := &Manifest{Header: Header{Generation: 1, Commit: "X"}, Changes: []Change{c}}
		if _, err := NewCodec().encodeManifest(m); !errors.Is(err, ErrQuota) {
			t.Errorf("encodeManifest() with %.40q, %+v = %v, want %v", c.Path, c.Entry, err, ErrQuota)
		}
	}
}

// TestHostileHead checks that a HEAD with too many fenced tasks is refused, and that one whose other fields leave no
// room is not encoded.
func TestHostileHead(t *testing.T) {
	h := &Head{Generation: 1, Deleted: true, Fenced: make([]FencedTask, maxFenced)}
	data, err := h.encode(maxHeadText)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeHead(data); err != nil {
		t.Errorf("decodeHead() with %d fenced tasks = %v, want nil", maxFenced, err)
	}
	h.Fenced = append(h.Fenced, FencedTask{})
	if data, err = h.encode(maxHeadText); err != nil {
		t.Fatal(err)
	}
	if _, err := decodeHead(data); !errors.Is(err, objects.ErrCorrupt) {
		t.Errorf("decodeHead() with %d fenced tasks = %v, want %v", maxFenced+1, err, objects.ErrCorrupt)
	}
	for name, h := range map[string]*Head{
		"fenced task": {Generation: 1, Deleted: true, Fenced: []FencedTask{{Task: strings.Repeat("x", maxHeadText)}}},
		"manifest":    {Generation: 1, Manifest: &ManifestRef{Name: strings.Repeat("x", maxHeadText)}},
		"manifest, and a recent task": {
			Generation: 1, Manifest: &ManifestRef{Name: strings.Repeat("x", maxHeadText)},
			Recent: []RecentTask{{Task: "task", Generation: 1}},
		},
	} {
		if _, err := h.encode(maxHeadText); !errors.Is(err, objects.ErrCorrupt) {
			t.Errorf("encode() with a long %s = %v, want %v", name, err, objects.ErrCorrupt)
		}
	}
}
