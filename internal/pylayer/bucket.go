package pylayer

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/image"
	"github.com/codefleet/codefleet/internal/objects"
)

const (
	partBytes = 16 << 20 // of a compressed archive in one object
	mostParts = 1024
	layerMB   = 16 << 10 // of a layer, unpacked
)

// listing is the object packages/HASH.json, written last: the parts of the layer's archive, in order,
// each packages/SHA256. HASH is of what the layer was made from, the parts' of what they hold.
type listing struct {
	Parts []string `json:"parts"` // SHA-256, hex
	Bytes int64    `json:"bytes"` // of all parts
}

func listKey(hash string) string { return "packages/" + hash + ".json" }
func partKey(sum string) string  { return "packages/" + sum }

// store writes a layer to the bucket.
func store(ctx context.Context, bucket objects.Objects, hash, dir string) error {
	parts := &partWriter{ctx: ctx, bucket: bucket}
	z, err := zstd.NewWriter(parts, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	if err := errors.Join(hostdir.Tar(t, dir, plain), t.Close(), z.Close(), parts.flush()); err != nil {
		return err
	}
	text, err := json.Marshal(parts.listing)
	if err != nil {
		return err
	}
	return bucket.Put(ctx, listKey(hash), text, objects.Sum(text))
}

// partWriter cuts what is written into objects.
type partWriter struct {
	ctx     context.Context //nolint:containedctx // an io.Writer has none of its own
	bucket  objects.Objects
	buffer  []byte
	listing listing
}

func (w *partWriter) Write(p []byte) (int, error) {
	w.buffer = append(w.buffer, p...)
	for len(w.buffer) >= partBytes {
		if err := w.put(w.buffer[:partBytes]); err != nil {
			return 0, err
		}
		w.buffer = append(w.buffer[:0], w.buffer[partBytes:]...)
	}
	return len(p), nil
}

func (w *partWriter) flush() error {
	if len(w.buffer) == 0 {
		return nil
	}
	return w.put(w.buffer)
}

func (w *partWriter) put(data []byte) error {
	if len(w.listing.Parts) == mostParts {
		return fmt.Errorf("more than %d parts of %d bytes", mostParts, partBytes)
	}
	sum := objects.Sum(data)
	name := sum.String()
	if err := w.bucket.Put(w.ctx, partKey(name), data, sum); err != nil {
		return err
	}
	w.listing.Parts = append(w.listing.Parts, name)
	w.listing.Bytes += int64(len(data))
	return nil
}

// plain leaves nothing in a header that differs from host to host: no owners, no times.
func plain(h *tar.Header) {
	*h = tar.Header{Typeflag: h.Typeflag, Name: h.Name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o777}
}

// fetch fills a directory with a layer of the bucket. fs.ErrNotExist: it is not there.
func fetch(ctx context.Context, bucket objects.Objects, hash, dir string) error {
	obj, err := bucket.Get(ctx, listKey(hash), objects.GetOptions{})
	if err != nil {
		return err
	}
	var list listing
	if err := json.Unmarshal(obj.Data, &list); err != nil {
		return fmt.Errorf("%s: %w", listKey(hash), err)
	}
	if len(list.Parts) == 0 || len(list.Parts) > mostParts {
		return fmt.Errorf("%s has %d parts", listKey(hash), len(list.Parts))
	}
	z, err := zstd.NewReader(&partReader{ctx: ctx, bucket: bucket, left: list.Parts}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(partBytes*8))
	if err != nil {
		return err
	}
	defer z.Close()
	if err := image.Untar(ctx, dir, z, layerMB); err != nil {
		return notMissing(err)
	}
	return nil
}

// notMissing hides that a part was missing: the layer is there, and broken.
func notMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New(err.Error())
	}
	return err
}

// partReader reads parts one after the other, each checked before a byte of it is used.
type partReader struct {
	ctx    context.Context //nolint:containedctx // an io.Reader has none of its own
	bucket objects.Objects
	left   []string
	data   []byte
}

func (r *partReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if len(r.left) == 0 {
			return 0, io.EOF
		}
		name := r.left[0]
		r.left = r.left[1:]
		var want objects.Digest
		if want.UnmarshalText([]byte(name)) != nil {
			return 0, fmt.Errorf("part %.80q is not named by a SHA-256", name)
		}
		obj, err := r.bucket.Get(r.ctx, partKey(name), objects.GetOptions{})
		if err != nil {
			return 0, err
		}
		if objects.Sum(obj.Data) != want {
			return 0, fmt.Errorf("%s has another digest", partKey(name))
		}
		r.data = obj.Data
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}
