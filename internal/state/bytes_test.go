package state

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

// TestStoredBytes pins what is written: other releases read it.
func TestStoredBytes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	p1 := &pack{ID: objects.Sum([]byte("pack 1")), Size: 4096}
	p2 := &pack{ID: objects.Sum([]byte("pack 2")), Size: 8192, Key: "0123abcd"}
	a := blob{objects.Sum([]byte("a")), p1, 0, 10, 10}
	b := blob{objects.Sum([]byte("b")), p1, 10, 20, 300}
	c := blob{objects.Sum([]byte("c")), p2, 0, 128, 100}
	full := &manifest{
		header: header{
			Generation: 1, Commit: "FIRST", Time: at, TaskID: "task-1", Attempt: 2, Message: "<first>", Files: 4, Bytes: 410,
			Result: json.RawMessage(`{"n":1}`),
		},
		changes: []change{
			{"dir", &entry{Path: "dir", Kind: kindDir, Mode: 0o755}},
			{"dir/large", &entry{Path: "dir/large", Kind: kindFile, Mode: 0o644, Size: 400, MTime: 1_000_000_007, Blobs: []blob{b, c}}},
			{"dir/link", &entry{Path: "dir/link", Kind: kindLink, Mode: 0o777, Link: "to \xff"}},
			{"name \xff & ü", &entry{Path: "name \xff & ü", Kind: kindFile, Mode: 0o600, Size: 10, MTime: -1, Blobs: []blob{a}}},
		},
	}
	first := link{"000000000001-0123456789abcdef", objects.Sum([]byte("first"))}
	delta := &manifest{
		header: header{
			Generation: 2, Commit: "SECOND", Time: at, Parent: &first, Chain: []link{first}, ChainBytes: 5, FullBytes: 700,
			Changed: []string{"dir/link"}, Moved: 1, Conflicts: []string{"x"}, Files: 3, Bytes: 410,
		},
		changes: []change{{path: "dir/link"}, {"name \xff & ü", full.changes[3].entry}},
		result:  []blob{c},
	}
	zr, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer zr.Close()
	for name, m := range map[string]*manifest{"manifest-full.jsonl": full, "manifest-delta.jsonl": delta} {
		data, err := newCodec().encodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := zr.DecodeAll(data, nil)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, lines)
	}

	h := &head{
		Generation: 7, Commit: "SEVENTH", Manifest: &first, Time: at, Born: 3, Files: 4, Bytes: 410, Floor: 2, FloorTime: at,
		Recent: []recent{{"task-1", 6, "0123456789abcdef", 1_700_000_000}},
	}
	data, err := h.encode(maxHead)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "HEAD", data)
	tombstone := &head{Generation: 8, Commit: "EIGHTH", Time: at, Deleted: true, Purge: at, Born: 3}
	if data, err = tombstone.encode(maxHead); err != nil {
		t.Fatal(err)
	}
	golden(t, "HEAD-deleted", data)

	body := append([]byte("0123456789"), bytes.Repeat([]byte{7}, 20)...)
	golden(t, "pack.hex", []byte(hex.EncodeToString(appendIndex(body, []blob{a, b}, nil))+"\n"))
	r := newKeyring("acme", Secrets{Current: bytes.Repeat([]byte{1}, 32)})
	locked := r.lock("a thing", []byte("content"))
	golden(t, "locked-prefix", locked[:len(lockMagic)+keyIDLen])
	if len(locked) != lockOverhead+len("content") {
		t.Errorf("encrypted object has %d bytes, want %d", len(locked), lockOverhead+len("content"))
	}

	keys := []string{
		packKey("acme", p1.ID), Ref{"acme", "main"}.headKey(), Ref{"acme", "main"}.pinsKey(), Ref{"acme", "main"}.manifestKey(first.Name),
		Ref{"acme", "main"}.keptKey(7, 1_700_000_000), floorKey("acme"), turnKey("acme"), manifestName(7, "0123456789abcdef"),
	}
	text, err := json.MarshalIndent(keys, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "keys.json", append(text, '\n'))
	pinned, err := json.Marshal(pins{
		Pins: []pin{{"v1", 1, first}}, Kept: []link{first}, Lost: []gap{{first.Name, &first}, {Name: "000000000009-0123456789abcdef"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "pins", seal(pinned))
}
