package format

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
)

func FuzzManifest(f *testing.F) {
	c := NewCodec()
	p := &Pack{ID: objects.Sum([]byte("pack")), Size: 100}
	seed := &Manifest{Header: Header{Generation: 1, Commit: "x"}, Changes: []Change{
		{"a", &Entry{Path: "a", Kind: KindDir, Mode: 0o755}},
		{"a/\xff", &Entry{
			Path: "a/\xff", Kind: KindFile, Mode: 0o644, Size: 5,
			Blobs: []Blob{{objects.Sum([]byte("hello")), p, 10, 5, 5}},
		}},
		{"b", &Entry{Path: "b", Kind: KindSymlink, Target: "../../etc"}},
	}}
	data, err := c.encodeManifest(seed)
	if err != nil {
		f.Fatal(err)
	}
	plain, err := c.dec.DecodeAll(data, make([]byte, 0, 1<<16))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add([]byte(strings.NewReplacer(`"size":100`, `"size":100,"key":"0123456789abcdef"`, `"n":5`, `"n":33`).Replace(
		string(plain))))
	f.Add(bytes.ReplaceAll(plain, []byte(`"p":"b"`), []byte(`"p":"../b"`)))
	f.Add(bytes.ReplaceAll(plain, []byte(`"s":5`), []byte(`"s":500000000000`)))
	f.Fuzz(func(t *testing.T, plain []byte) {
		c.decodeManifest(plain, false) // not a zstd frame, most likely
		m, err := c.decodeManifest(c.enc.EncodeAll(plain, nil), false)
		if err != nil {
			return
		}
		last := ""
		for _, ch := range m.Changes {
			if err := CheckPath(ch.Path); err != nil || ch.Path <= last {
				t.Fatalf("accepted path %q after %q: %v, want an error", ch.Path, last, err)
			}
			last = ch.Path
			if ch.Entry == nil {
				continue
			}
			for _, b := range ch.Entry.Blobs {
				if b.Offset < 0 || b.Stored < 1 || b.Offset+b.Stored > b.Pack.Size || b.Raw > MaxBlob ||
					b.Raw < b.Stored-b.Pack.overhead() {
					t.Fatalf("accepted blob %+v in a pack of %d bytes, want an error", b, b.Pack.Size)
				}
			}
		}
		again, err := c.encodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		m2, err := c.decodeManifest(again, false)
		if err != nil {
			t.Fatalf("decode of an encoded manifest = %v, want nil", err)
		}
		if diff := cmp.Diff(ChangedPaths(m.Changes), ChangedPaths(m2.Changes)); diff != "" {
			t.Fatalf("round trip (-first +second):\n%s", diff)
		}
	})
}

func FuzzPackIndex(f *testing.F) {
	blobs := []Blob{
		{ID: objects.Sum([]byte("a")), Stored: 1, Raw: 1},
		{ID: objects.Sum([]byte("bb")), Offset: 1, Stored: 2, Raw: 2},
	}
	f.Add(AppendIndex([]byte("abb"), blobs, nil))
	f.Add(AppendIndex([]byte("abb"), append(blobs, NewSalt()), nil))
	f.Add(AppendIndex(nil, nil, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		blobs, more, _, err := ReadIndex(data, int64(len(data)), NewKeyring("acme", Secrets{}))
		if err != nil {
			return
		}
		if more > int64(len(data)) {
			t.Fatalf("ReadIndex() of %d bytes needs %d, want at most all", len(data), more)
		}
		var end int64
		for _, b := range blobs {
			if b.Offset != end || b.Stored < 0 || b.Raw < b.Stored {
				t.Fatalf("accepted blob %+v at %d, want an error", b, end)
			}
			end += b.Stored
		}
		got := AppendIndex(bytes.Clone(data[:end]), blobs, nil)
		if n := len(data) - len(got); n > 0 && n%indexItem == 0 {
			return // ReadIndex does not return salts
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("round trip of %d bytes = %d bytes, want the same", len(data), len(got))
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, p := range []string{"a", "a/b", "../a", "/a", "a//b", "a/.", "", "a\x00b", "\xff/x"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if CheckPath(p) != nil {
			return
		}
		for dir := p; dir != ""; dir = ParentDir(dir) {
			if err := CheckPath(dir); err != nil {
				t.Fatalf("accepted %q, but not its directory: %v, want nil", p, err)
			}
		}
	})
}

func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"format":1,"generation":1,"commit":"x","manifest":{"name":"a","digest":"` +
		objects.Digest{}.String() + `"},"time":"2026-01-02T03:04:05Z","born":1}`))
	carrying := []byte(`{"format":2,"generation":1,"commit":"x","manifest":{"name":"a","digest":"` +
		objects.Digest{}.String() + `"},"time":"2026-01-02T03:04:05Z","born":1}`)
	pack := Carried{Pack: objects.Sum([]byte("pack")), Data: []byte("pack")}
	f.Add((&Head{Carried: []Carried{pack}}).appendCarried(carrying))
	f.Add([]byte(`{"format":1,"generation":1,"commit":"` + strings.Repeat("\x7f", maxHeadText-300) + `","deleted":true,` +
		`"fenced":[{"t":"<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<"}]}`)) // encoded, < is longer
	f.Fuzz(func(t *testing.T, data []byte) {
		decodeHead(data)
		h, err := decodeHead(AppendDigest(data))
		if err != nil {
			return
		}
		out, err := h.encode(maxHeadText)
		if limit := maxHeadText + len(h.appendCarried(nil)); err == nil && len(out) > limit {
			t.Fatalf("encode() = %d bytes, want at most %d", len(out), limit)
		}
	})
}

func TestHeadKeepsTasks(t *testing.T) {
	h := &Head{}
	for i := range 500 {
		m := Header{
			Generation: int64(i + 1), Commit: NewCommitID(),
			TaskID: string(bytes.Repeat([]byte{'a' + byte(i%26)}, MaxTaskID)), Time: h.Time,
		}
		h = h.Next(m, ManifestRef{ManifestName(int64(i+1), ManifestDigits(objects.Digest{})), objects.Digest{}})
		data, err := h.encode(maxHeadText)
		if err != nil || len(data) > maxHeadText {
			t.Fatalf("encode() = %d bytes, %v, want at most %d", len(data), err, maxHeadText)
		}
		if want := min(i+1, headRecent); len(h.Recent) < want {
			t.Fatalf("%d task ids after %d commits, want at least %d", len(h.Recent), i+1, want)
		}
		if h.Floor+int64(len(h.Recent)) != int64(i+1) {
			t.Fatalf("floor %d and %d task ids add up to %d, want generation %d", h.Floor, len(h.Recent),
				h.Floor+int64(len(h.Recent)), i+1)
		}
	}
}
