package format

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/codefleet/codefleet/internal/objects"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares data with testdata/<name>.
func golden(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, want) {
		t.Errorf("%s: stored bytes changed:\n%s\nwant\n%s", name, data, want)
	}
}

// TestStoredBytes compares everything that is stored with golden files, because other releases must be able to read it.
func TestStoredBytes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	p1 := &Pack{ID: objects.Sum([]byte("pack 1")), Size: 4096}
	p2 := &Pack{ID: objects.Sum([]byte("pack 2")), Size: 8192, Key: "0123abcd"}
	a := Blob{objects.Sum([]byte("a")), p1, 0, 10, 10}
	b := Blob{objects.Sum([]byte("b")), p1, 10, 20, 300}
	c := Blob{objects.Sum([]byte("c")), p2, 0, 128, 100}
	full := &Manifest{
		Header: Header{
			Generation: 1, Commit: "FIRST", Time: at, TaskID: "task-1", Attempt: 2, Message: "<first>", Files: 4,
			Bytes:  410,
			Result: json.RawMessage(`{"n":1}`),
		},
		Changes: []Change{
			{"dir", &Entry{Path: "dir", Kind: KindDir, Mode: 0o755}},
			{"dir/large", &Entry{
				Path: "dir/large", Kind: KindFile, Mode: 0o644, Size: 400, MTime: 1_000_000_007,
				Blobs: []Blob{b, c},
			}},
			{"dir/link", &Entry{Path: "dir/link", Kind: KindSymlink, Mode: 0o777, Target: "to \xff"}},
			{"name \xff & ü", &Entry{
				Path: "name \xff & ü", Kind: KindFile, Mode: 0o600, Size: 10, MTime: -1,
				Blobs: []Blob{a},
			}},
		},
	}
	first := ManifestRef{"000000000001-0123456789abcdef", objects.Sum([]byte("first"))}
	delta := &Manifest{
		Header: Header{
			Generation: 2, Commit: "SECOND", Time: at, Parent: &first, Chain: []Layer{{first, 4}},
			Ancestors: []ManifestRef{first},
			Changed:   []string{"dir/link"}, Repeated: 1, Conflicts: []string{"x"}, Files: 3, Bytes: 410,
		},
		Changes: []Change{{Path: "dir/link"}, {"name \xff & ü", full.Changes[3].Entry}},
		Result:  []Blob{c},
	}
	zr, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer zr.Close()
	for name, m := range map[string]*Manifest{"manifest-full.jsonl": full, "manifest-delta.jsonl": delta} {
		data, err := NewCodec().encodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := zr.DecodeAll(data, nil)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, lines)
	}

	h := &Head{
		Generation: 7, Commit: "SEVENTH", Manifest: &first, Time: at, Born: 3, Files: 4, Bytes: 410, Floor: 2,
		FloorTime: at,
		Recent:    []RecentTask{{"task-1", 6, "0123456789abcdef", 1_700_000_000}},
	}
	data, err := h.encode(maxHeadText)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "HEAD", data)
	tombstone := &Head{Generation: 8, Commit: "EIGHTH", Time: at, Deleted: true, Purge: at, Born: 3}
	if data, err = tombstone.encode(maxHeadText); err != nil {
		t.Fatal(err)
	}
	golden(t, "HEAD-deleted", data)

	body := append([]byte("0123456789"), bytes.Repeat([]byte{7}, 20)...)
	golden(t, "pack.hex", []byte(hex.EncodeToString(AppendIndex(body, []Blob{a, b}, nil))+"\n"))
	r := NewKeyring("acme", Secrets{Current: bytes.Repeat([]byte{1}, 32)})
	locked := r.encrypt("a thing", []byte("content"))
	golden(t, "locked-prefix", locked[:len(encryptedMagic)+keyIDLength])
	if len(locked) != encryptionOverhead+len("content") {
		t.Errorf("the encrypted object is %d bytes, want %d", len(locked), encryptionOverhead+len("content"))
	}

	ref := Ref{"acme", "main"}
	keys := []string{
		PackKey("acme", p1.ID), ref.HeadKey(), ref.PinsKey(), ref.ManifestKey(first.Name),
		ref.RetainedKey(7, 1_700_000_000), FloorKey("acme"), ManifestName(7, "0123456789abcdef"),
	}
	text, err := json.MarshalIndent(keys, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "keys.json", append(text, '\n'))
	pinned, err := json.Marshal(Pins{
		Pins: []Pin{{"v1", 1, first}}, Kept: []ManifestRef{first}, Lost: []Gap{
			{first.Name, &first},
			{Name: "000000000009-0123456789abcdef"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "pins", AppendDigest(pinned))
}
