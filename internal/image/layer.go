package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// unpacker applies layers to a directory, the lowest first.
type unpacker struct {
	root    *os.Root
	left    int64 // bytes that may still come, of files and of all else in layers
	wrote   int64 // bytes of files: sparse ones are larger than what comes
	maxMB   int64
	entries int             // that may still come
	written map[string]bool // by the layer at hand
}

// decoderMemory bounds what a layer may make its decoder hold.
const decoderMemory = 128 << 20

// layer applies one layer, and checks that it is what the image says.
func (u *unpacker) layer(ctx context.Context, src source, l layer) error {
	part, err := src.open(l.name)
	if err != nil {
		return err
	}
	defer part.Close()
	plain, done, err := decompress(part)
	if err != nil {
		return broken(l.name, err)
	}
	defer done()
	sum := sha256.New()
	stream := io.TeeReader(&bounded{ctx: ctx, from: plain, u: u}, sum)
	u.written = map[string]bool{}
	if err := u.apply(tar.NewReader(stream)); err != nil {
		return layerError(l.name, err)
	}
	if _, err := io.Copy(io.Discard, stream); err != nil { // what comes after the archive's end is hashed too
		return layerError(l.name, err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != l.diffID {
		return fmt.Errorf("%w: it is %s, and the image says %.100s", ErrBroken, got, l.diffID)
	}
	return nil
}

// Untar unpacks an archive that is not compressed into an empty directory, with the same care as a layer
// of an image: nothing leads out, no devices, at most so many MB.
func Untar(ctx context.Context, dir string, from io.Reader, maxMB int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacker{root: root, left: maxMB << 20, maxMB: maxMB, entries: maxEntries, written: map[string]bool{}}
	stream := &bounded{ctx: ctx, from: from, u: &u}
	err = u.apply(tar.NewReader(stream))
	if err == nil {
		_, err = io.Copy(io.Discard, stream)
	}
	if err != nil {
		return fmt.Errorf("unpack an archive: %w", err)
	}
	return nil
}

// decompress tells by its first bytes how a layer is compressed.
func decompress(r io.Reader) (plain io.Reader, done func(), err error) {
	in := bufio.NewReaderSize(r, 1<<16)
	magic, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		return z, func() {}, err
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(decoderMemory))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}

// bounded ends with an error when the image has become too large, or when its context has ended.
type bounded struct {
	ctx  context.Context //nolint:containedctx // an io.Reader has none of its own
	from io.Reader
	u    *unpacker
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	n, err := b.from.Read(p)
	if b.u.left -= int64(n); b.u.left < 0 {
		return n, b.u.tooLarge()
	}
	return n, err
}

func (u *unpacker) tooLarge() error {
	return fmt.Errorf("%w: unpacked it has more than %d MB", ErrTooLarge, u.maxMB)
}

func (u *unpacker) apply(r *tar.Reader) error {
	for {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if u.entries--; u.entries < 0 {
			return fmt.Errorf("%w: it has more than %d files", ErrTooLarge, maxEntries)
		}
		if err := u.entry(head, r); err != nil {
			return fmt.Errorf("%.200s: %w", head.Name, err)
		}
	}
}

const (
	whiteout = ".wh."         // begins the names of files that a layer removes
	opaque   = ".wh..wh..opq" // a directory whose lower content is removed
)

func (u *unpacker) entry(head *tar.Header, content io.Reader) error {
	name := path.Clean(strings.TrimLeft(head.Name, "/"))
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%w: it leads out of the image", ErrBroken)
	}
	if name == "." {
		return nil
	}
	parent, err := hostdir.Resolve(u.root, path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	at := path.Join(parent, base)
	if strings.HasPrefix(base, whiteout) {
		return u.remove(parent, base)
	}
	if err := u.root.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	u.written[at] = true
	mode := fs.FileMode(head.Mode).Perm()
	switch head.Typeflag {
	case tar.TypeDir:
		return u.directory(at, mode|0o700)
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(at, mode|0o600, content)
	case tar.TypeSymlink:
		if err := u.root.RemoveAll(at); err != nil {
			return err
		}
		return u.root.Symlink(head.Linkname, at)
	case tar.TypeLink:
		return u.link(head.Linkname, at)
	}
	return nil // devices and pipes have no place here: boxes have their own
}

// remove removes what lower layers have put there.
func (u *unpacker) remove(parent, base string) error {
	if base != opaque {
		gone := path.Clean(strings.TrimPrefix(base, whiteout))
		if gone == "." || gone == ".." || gone == "" {
			return fmt.Errorf("%w: it removes nothing that has a name", ErrBroken)
		}
		return u.root.RemoveAll(path.Join(parent, gone))
	}
	dir, err := u.root.Open(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if at := path.Join(parent, name); !u.written[at] {
			err = errors.Join(err, u.root.RemoveAll(at))
		}
	}
	return err
}

func (u *unpacker) directory(at string, mode fs.FileMode) error {
	info, err := u.root.Lstat(at)
	if err == nil && !info.IsDir() {
		err = errors.Join(u.root.RemoveAll(at), fs.ErrNotExist)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = u.root.Mkdir(at, 0o700)
	}
	if err != nil {
		return err
	}
	return u.root.Chmod(at, mode)
}

func (u *unpacker) file(at string, mode fs.FileMode, content io.Reader) (err error) {
	if err := u.root.RemoveAll(at); err != nil {
		return err
	}
	f, err := u.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err := io.Copy(f, io.LimitReader(content, u.maxMB<<20-u.wrote+1))
	if err != nil {
		return err
	}
	if u.wrote += n; u.wrote > u.maxMB<<20 {
		return u.tooLarge()
	}
	return f.Chmod(mode)
}

// link makes a second name of a file that is there.
func (u *unpacker) link(target, at string) error {
	name := path.Clean(strings.TrimLeft(target, "/"))
	if !filepath.IsLocal(name) || name == "." {
		return fmt.Errorf("%w: it is a link to %.200q, out of the image", ErrBroken, target)
	}
	parent, err := hostdir.Resolve(u.root, path.Dir(name))
	if err != nil {
		return err
	}
	from := path.Join(parent, path.Base(name))
	info, err := u.root.Lstat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%w: it is a link to a directory", ErrBroken)
	}
	if from == at {
		return nil
	}
	if err := u.root.RemoveAll(at); err != nil {
		return err
	}
	return u.root.Link(from, at)
}

// layerError is what an error while a layer is applied means: too large, broken by the image, or of this
// host.
func layerError(name string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrBroken) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return broken(name, err)
}
