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
	partBytes = 16 << 20 // bytes of a layer's compressed archive in one object
	maxParts  = 1024
	layerMB   = 16 << 10 // limit of a layer's unpacked size
)

// layerManifest is the object packages/HASH.json, which is written last. HASH is Layer.Hash. The manifest lists the
// parts of the layer's archive in order; each part is the object packages/SHA256, named by the hash of its bytes.
type layerManifest struct {
	Parts []string `json:"parts"` // SHA-256, hex
}

func manifestKey(hash string) string { return "packages/" + hash + ".json" }
func partKey(sum string) string      { return "packages/" + sum }

// store uploads a layer to the bucket.
func store(ctx context.Context, bucket objects.Objects, hash, dir string) error {
	parts := &partWriter{ctx: ctx, bucket: bucket}
	z, err := zstd.NewWriter(parts, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	if err := hostdir.Tar(t, dir, makeReproducible); err != nil {
		return errors.Join(err, z.Close())
	}
	if err := errors.Join(t.Close(), z.Close(), parts.flush()); err != nil {
		return err
	}
	text, err := json.Marshal(parts.layer)
	if err != nil {
		return err
	}
	return bucket.Put(ctx, manifestKey(hash), text, objects.Sum(text))
}

// partWriter writes a stream as objects of partBytes, and lists them in layer. Call flush for the last, smaller one.
type partWriter struct {
	ctx    context.Context //nolint:containedctx // io.Writer has no parameter for a context
	bucket objects.Objects
	buffer []byte
	layer  layerManifest
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

// put stores one part.
func (w *partWriter) put(data []byte) error {
	if len(w.layer.Parts) == maxParts {
		return fmt.Errorf("more than %d parts of %d bytes", maxParts, partBytes)
	}
	sum := objects.Sum(data)
	name := sum.String()
	if err := w.bucket.Put(w.ctx, partKey(name), data, sum); err != nil {
		return err
	}
	w.layer.Parts = append(w.layer.Parts, name)
	return nil
}

// makeReproducible removes from a header what differs between hosts, such as owners and times.
func makeReproducible(h *tar.Header) {
	*h = tar.Header{Typeflag: h.Typeflag, Name: h.Name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o777}
}

// fetch downloads a layer into a directory. It returns fs.ErrNotExist if the bucket does not have the layer.
func fetch(ctx context.Context, bucket objects.Objects, hash, dir string) error {
	obj, err := bucket.Get(ctx, manifestKey(hash), objects.GetOptions{})
	if err != nil {
		return err
	}
	var list layerManifest
	if err := json.Unmarshal(obj.Data, &list); err != nil {
		return fmt.Errorf("decode %s: %w", manifestKey(hash), err)
	}
	if len(list.Parts) == 0 || len(list.Parts) > maxParts {
		return fmt.Errorf("%s lists %d parts; want 1 to %d", manifestKey(hash), len(list.Parts), maxParts)
	}
	parts := &partReader{ctx: ctx, bucket: bucket, left: list.Parts}
	z, err := zstd.NewReader(parts, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(partBytes*8))
	if err != nil {
		return err
	}
	defer z.Close()
	if err := image.Untar(ctx, dir, z, layerMB); err != nil {
		return notMissing(err)
	}
	return nil
}

// notMissing removes fs.ErrNotExist from an error, because the layer exists even if a part is missing.
func notMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New(err.Error())
	}
	return err
}

// partReader reads parts one after the other. It checks the hash of each part before it returns any of its bytes.
type partReader struct {
	ctx    context.Context //nolint:containedctx // io.Reader has no parameter for a context
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
			return 0, fmt.Errorf("%s does not match its hash", partKey(name))
		}
		r.data = obj.Data
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}
