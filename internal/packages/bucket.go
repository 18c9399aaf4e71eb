package packages

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/codefleet/codefleet/internal/image"
)

// Objects keeps parts of layers for all hosts. An object is written once, whole; one that is not there
// is fs.ErrNotExist.
type Objects interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, data []byte) error
}

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
func store(ctx context.Context, objects Objects, hash, dir string) error {
	parts := &partWriter{ctx: ctx, objects: objects}
	z, err := zstd.NewWriter(parts, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	if err := errors.Join(addTree(t, dir), t.Close(), z.Close(), parts.flush()); err != nil {
		return err
	}
	text, err := json.Marshal(parts.listing)
	if err != nil {
		return err
	}
	return objects.Put(ctx, listKey(hash), text)
}

// partWriter cuts what is written into objects.
type partWriter struct {
	ctx     context.Context //nolint:containedctx // an io.Writer has none of its own
	objects Objects
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
	sum := sha256.Sum256(data)
	name := hex.EncodeToString(sum[:])
	if err := w.objects.Put(w.ctx, partKey(name), data); err != nil {
		return err
	}
	w.listing.Parts = append(w.listing.Parts, name)
	w.listing.Bytes += int64(len(data))
	return nil
}

// addTree writes files, directories and links below dir, in the order of their names and without times.
func addTree(w *tar.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		head := &tar.Header{Name: path, Mode: int64(info.Mode().Perm())}
		switch {
		case d.IsDir():
			head.Typeflag, head.Name = tar.TypeDir, path+"/"
		case d.Type()&fs.ModeSymlink != 0:
			head.Typeflag = tar.TypeSymlink
			if head.Linkname, err = root.Readlink(path); err != nil {
				return err
			}
		default:
			head.Typeflag, head.Size = tar.TypeReg, info.Size()
		}
		if err := w.WriteHeader(head); err != nil || head.Typeflag != tar.TypeReg {
			return err
		}
		file, err := root.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.CopyN(w, file, info.Size())
		return err
	})
}

// fetch fills a directory with a layer of the bucket. fs.ErrNotExist: it is not there.
func fetch(ctx context.Context, objects Objects, hash, dir string) error {
	text, err := objects.Get(ctx, listKey(hash))
	if err != nil {
		return err
	}
	var list listing
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("%s: %w", listKey(hash), err)
	}
	if len(list.Parts) == 0 || len(list.Parts) > mostParts {
		return fmt.Errorf("%s has %d parts", listKey(hash), len(list.Parts))
	}
	z, err := zstd.NewReader(&partReader{ctx: ctx, objects: objects, left: list.Parts}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(partBytes*8))
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
	ctx     context.Context //nolint:containedctx // an io.Reader has none of its own
	objects Objects
	left    []string
	data    []byte
}

func (r *partReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if len(r.left) == 0 {
			return 0, io.EOF
		}
		name := r.left[0]
		r.left = r.left[1:]
		if bytes, err := hex.DecodeString(name); err != nil || len(bytes) != sha256.Size {
			return 0, fmt.Errorf("%.80q is no hash", name)
		}
		data, err := r.objects.Get(r.ctx, partKey(name))
		if err != nil {
			return 0, err
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != name {
			return 0, fmt.Errorf("%s holds something else", partKey(name))
		}
		r.data = data
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}
