package format

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/objects"
)

func carryingHead(carried ...Carried) *Head {
	return &Head{
		Generation: 7, Commit: "x", Born: 1, Time: time.Unix(1, 0).UTC(),
		Manifest: &ManifestRef{Name: ManifestName(7, ManifestDigits(objects.Sum(nil)))}, Carried: carried,
	}
}

func carriedManifest(generation int64, data []byte) Carried {
	return Carried{Manifest: ManifestName(generation, ManifestDigits(objects.Sum(data))), Data: data}
}

// TestCarriedRoundTrip checks that a HEAD which carries objects that fit is decoded to the same HEAD, stays below its
// limit, also encrypted, and that any changed byte is noticed.
func TestCarriedRoundTrip(t *testing.T) {
	ref := Ref{Tenant: "acme", Workspace: "main"}
	rapid.Check(t, func(rt *rapid.T) {
		var carried []Carried
		for n := range rapid.IntRange(0, 80).Draw(rt, "objects") {
			data := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(rt, "data")
			if rapid.Bool().Draw(rt, "manifest") {
				carried = append(carried, carriedManifest(int64(n+1), data))
			} else {
				carried = append(carried, Carried{Pack: objects.Sum(data), Data: data})
			}
		}
		if !FitsHead(carried) {
			rt.Skip("too much")
		}
		secrets := Secrets{}
		if rapid.Bool().Draw(rt, "encrypted") {
			secrets.Current = []byte("secret")
		}
		keys := NewKeyring("acme", secrets)
		data, err := carryingHead(carried...).Encode(ref, keys)
		if err != nil || len(data) > MaxHead {
			rt.Fatalf("Encode() = %d bytes, %v, want at most %d", len(data), err, MaxHead)
		}
		h, err := DecodeHead(ref, keys, data)
		if err != nil {
			rt.Fatal(err)
		}
		if len(h.Carried) != len(carried) {
			rt.Fatalf("DecodeHead() carries %d objects, want %d", len(h.Carried), len(carried))
		}
		for i := range carried {
			got, want := h.Carried[i], carried[i]
			if got.Pack != want.Pack || got.Manifest != want.Manifest || !bytes.Equal(got.Data, want.Data) {
				rt.Fatalf("object %d is %+v, want %+v", i, got, want)
			}
		}
		data[rapid.IntRange(0, len(data)-1).Draw(rt, "byte")] ^= 1
		if _, err := DecodeHead(ref, keys, data); err == nil {
			rt.Fatal("DecodeHead() with a changed byte = nil, want an error")
		}
	})
}

// TestMalformedCarried checks that HEADs whose digest matches, but that carry anything other than valid objects, are
// refused.
func TestMalformedCarried(t *testing.T) {
	const id = "0123456789abcdef"
	text := `{"format":2,"generation":1,"commit":"x","manifest":{"name":"a","digest":"` + objects.Digest{}.String() +
		`"},"time":"2026-01-02T03:04:05Z","born":1}`
	sum := objects.Sum([]byte("data")).String()
	for name, tail := range map[string]string{
		"nothing":               "\n",
		"unknown kind":          "\nq " + sum + " 4\ndata",
		"other digest":          "\np " + objects.Digest{}.String() + " 4\ndata",
		"other manifest digits": "\nm 000000000001-" + id + " 4\ndata",
		"path as a name":        "\nm ../../HEAD 4\ndata",
		"no length":             "\np " + sum + "\ndata",
		"negative length":       "\np " + sum + " -4\ndata",
		"too long":              "\np " + sum + " 5\ndata",
		"too short":             "\np " + sum + " 4\ndatadata",
		"other spelling":        "\np  " + sum + " 04\ndata",
		"too many bytes":        "\np " + sum + " 4\ndata" + string(make([]byte, MaxHead)),
	} {
		if _, err := decodeHead(AppendDigest([]byte(text + tail))); !errors.Is(err, objects.ErrCorrupt) {
			t.Errorf("%s: decodeHead() = %v, want %v", name, err, objects.ErrCorrupt)
		}
	}
	valid := "\np " + sum + " 4\ndata"
	h, err := decodeHead(AppendDigest([]byte(text + valid)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Carried{{Pack: objects.Sum([]byte("data")), Data: []byte("data")}}, h.Carried); diff != "" {
		t.Errorf("decodeHead() (-want +got):\n%s", diff)
	}
	for name, other := range map[string]string{
		"format 1 that carries":         `{"format":1` + text[len(`{"format":1`):] + valid,
		"format 2 that carries nothing": text,
		"a tombstone that carries":      `{"format":2,"generation":1,"commit":"x","deleted":true,"born":1}` + valid,
		"a format from the future":      `{"format":3` + text[len(`{"format":3`):] + valid,
	} {
		if _, err := decodeHead(AppendDigest([]byte(other))); !errors.Is(err, objects.ErrCorrupt) {
			t.Errorf("%s: decodeHead() = %v, want %v", name, err, objects.ErrCorrupt)
		}
	}
}
