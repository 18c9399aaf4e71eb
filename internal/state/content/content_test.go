package content_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/mem"
)

const tenant = "acme"

func open(t *testing.T, bucket objects.Objects, secrets func(string) format.Secrets) *content.Store {
	t.Helper()
	return content.New(bucket, content.Options{
		CacheDir: t.TempDir(), Secrets: secrets, Log: slog.New(slog.DiscardHandler),
	})
}

// TestRoundTrip checks that another store reads what was stored, from the bucket and from its cache, with and without
// encryption.
func TestRoundTrip(t *testing.T) {
	secret := func(string) format.Secrets { return format.Secrets{Current: bytes.Repeat([]byte{7}, 32)} }
	for name, secrets := range map[string]func(string) format.Secrets{"unencrypted": nil, "encrypted": secret} {
		t.Run(name, func(t *testing.T) {
			bucket := mem.New()
			large := strings.Repeat("large and compressible ", 500_000)
			p := open(t, bucket, secrets).NewPacker(t.Context(), tenant, format.EmptySet.BlobFinder(0))
			blobs, size, err := p.AddStream(strings.NewReader(large), 1<<30, new([]byte), new([]byte))
			if err != nil || size != int64(len(large)) || len(blobs) < 2 {
				t.Fatalf("AddStream() = %d blobs of %d bytes, %v, want several of %d", len(blobs), size, err,
					len(large))
			}
			if err := p.Finish(); err != nil {
				t.Fatal(err)
			}
			e := &format.Entry{Path: "large", Kind: format.KindFile, Size: size, Blobs: blobs}
			other := open(t, bucket, secrets)
			for range 2 {
				got, err := other.ReadFile(t.Context(), tenant, e)
				if err != nil || string(got) != large {
					t.Errorf("ReadFile() = %d bytes, %v, want what was stored", len(got), err)
				}
			}
			bucket.Calls()
			r := other.Open(t.Context(), tenant, e)
			if _, err := r.Seek(-10, io.SeekEnd); err != nil {
				t.Fatal(err)
			}
			end, err := io.ReadAll(r)
			if err != nil || string(end) != large[len(large)-10:] || len(bucket.Calls()) > 0 {
				t.Errorf("the last bytes = %q, %v, want them from the cache", end, err)
			}
			if err := bucket.Violations(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDamagedPack checks that content that does not match its digest is not returned, and that the error, which may be
// logged, has no path.
func TestDamagedPack(t *testing.T) {
	bucket := mem.New()
	p := open(t, bucket, nil).NewPacker(t.Context(), tenant, format.EmptySet.BlobFinder(0))
	b, err := p.Add([]byte("content"), nil)
	if err = errors.Join(err, p.Finish()); err != nil {
		t.Fatal(err)
	}
	bucket.Damage(format.PackKey(tenant, b.Pack.ID), func(data []byte) []byte { data[0] ^= 1; return data })
	e := &format.Entry{Path: "private", Kind: format.KindFile, Size: b.Raw, Blobs: []format.Blob{b}}
	if got, err := open(t, bucket, nil).ReadFile(t.Context(), tenant, e); !errors.Is(err, objects.ErrCorrupt) {
		t.Errorf("ReadFile() = %q, %v, want %v", got, err, objects.ErrCorrupt)
	}
	got, err := io.ReadAll(open(t, bucket, nil).Open(t.Context(), tenant, e))
	if !errors.Is(err, objects.ErrCorrupt) || strings.Contains(err.Error(), e.Path) {
		t.Errorf("Open() read %q, %v, want %v without the path", got, err, objects.ErrCorrupt)
	}
}

// TestDamagedCache damages the second of two blobs in the cached pack. Each one is delivered once.
func TestDamagedCache(t *testing.T) {
	bucket := mem.New()
	p := open(t, bucket, nil).NewPacker(t.Context(), tenant, format.EmptySet.BlobFinder(0))
	var wants []content.Want
	for i, text := range []string{"first", "second"} {
		b, err := p.Add([]byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		wants = append(wants, content.Want{Blob: &b, Target: i})
	}
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := content.New(bucket, content.Options{CacheDir: dir, Log: slog.New(slog.DiscardHandler)})
	for _, damaged := range []bool{false, true} {
		if damaged {
			flipByte(t, dir, wants[1].Blob.Offset)
		}
		var got [2]string
		err := s.Fetch(t.Context(), tenant, wants, func(_ int, w content.Want, data []byte) error {
			got[w.Target] += string(data)
			return nil
		})
		if err != nil || got != [2]string{"first", "second"} {
			t.Errorf("Fetch() with a damaged cache %v delivers %q, %v; want each blob once", damaged, got, err)
		}
	}
}

// flipByte changes the byte at an offset of the only file below a directory.
func flipByte(t *testing.T, dir string, offset int64) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[offset] ^= 1
		return os.WriteFile(path, data, 0o600)
	})
	if err != nil || files != 1 {
		t.Fatalf("%d cached files, %v; want one", files, err)
	}
}

func TestStreamLimit(t *testing.T) {
	for _, size := range []int{1000, 10 << 20} {
		p := open(t, mem.New(), nil).NewPacker(t.Context(), tenant, format.EmptySet.BlobFinder(0))
		_, _, err := p.AddStream(strings.NewReader(strings.Repeat("x", size)), int64(size-1), new([]byte), new([]byte))
		if !errors.Is(err, content.ErrTooLarge) {
			t.Errorf("AddStream() of %d bytes with a limit of %d = %v, want %v", size, size-1, err, content.ErrTooLarge)
		}
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
	}
}
