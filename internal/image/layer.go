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
	"github.com/codefleet/codefleet/internal/removal"
)

// unpacker applies layers to a directory, the lowest first.
type unpacker struct {
	root         *os.Root
	bytesLeft    int64 // how many bytes of layers may still be read
	bytesWritten int64 // how many bytes of files were written; more than were read if files are sparse
	maxMB        int64
	filesLeft    int             // how many files and directories may still be unpacked
	whiteouts    bool            // the archives are layers, whose whiteouts remove files of lower ones
	written      map[string]bool // paths written by the current layer, and their parents
}

// maxName is the length of the longest name in an archive, in bytes, as of a path in Linux.
const maxName = 4096

// decoderMemory bounds the memory that a layer makes its decoder allocate.
const decoderMemory = 128 << 20

// applyLayer applies one layer, and checks its digest.
func (u *unpacker) applyLayer(ctx context.Context, l layer) error {
	compressed, err := l.open()
	if err != nil {
		return layerError(ctx, l.name, err)
	}
	defer compressed.Close()
	archive, done, err := decompress(compressed)
	if err != nil {
		return layerError(ctx, l.name, err)
	}
	defer done()
	sum := sha256.New()
	stream := io.TeeReader(&bounded{ctx: ctx, from: archive, u: u}, sum)
	u.written = map[string]bool{}
	if err := u.applyArchive(ctx, tar.NewReader(stream)); err != nil {
		return layerError(ctx, l.name, err)
	}
	if _, err := io.Copy(io.Discard, stream); err != nil { // the digest includes what follows the archive's end
		return layerError(ctx, l.name, err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != l.diffID {
		return fmt.Errorf("%w: the digest is %s; want %.100s", ErrBroken, got, l.diffID)
	}
	return nil
}

// Untar unpacks an untrusted, uncompressed archive of at most maxMB into an empty directory. Like Unpack, it writes
// nothing outside of dir, and leaves out devices and set-user-ID bits.
func Untar(ctx context.Context, dir string, from io.Reader, maxMB int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacker{root: root, bytesLeft: maxMB << 20, maxMB: maxMB, filesLeft: maxFiles, written: map[string]bool{}}
	stream := &bounded{ctx: ctx, from: from, u: &u}
	err = u.applyArchive(ctx, tar.NewReader(stream))
	if err == nil {
		_, err = io.Copy(io.Discard, stream)
	}
	if err != nil {
		return fmt.Errorf("unpack archive: %w", err)
	}
	return nil
}

// decompress decompresses a layer. It recognises the compression by the first bytes. Call done after reading.
func decompress(r io.Reader) (archive io.Reader, done func(), err error) {
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

// bounded fails when the image becomes too large, or when its context ends.
type bounded struct {
	ctx  context.Context //nolint:containedctx // io.Reader has no parameter for a context
	from io.Reader
	u    *unpacker
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	n, err := b.from.Read(p)
	if b.u.bytesLeft -= int64(n); b.u.bytesLeft < 0 {
		return n, b.u.tooLarge()
	}
	return n, err
}

func (u *unpacker) tooLarge() error {
	return fmt.Errorf("%w: unpacked, it exceeds %d MB", ErrTooLarge, u.maxMB)
}

// applyArchive unpacks the files of an archive, and removes those that its whiteouts name.
func (u *unpacker) applyArchive(ctx context.Context, r *tar.Reader) error {
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := u.countFile(); err != nil {
			return err
		}
		if err := u.unpack(ctx, header, r); err != nil {
			return fmt.Errorf("unpack %.200s: %w", header.Name, err)
		}
	}
}

// countFile fails if the image has too many files.
func (u *unpacker) countFile() error {
	if u.filesLeft--; u.filesLeft < 0 {
		return fmt.Errorf("%w: it has more than %d files and directories", ErrTooLarge, maxFiles)
	}
	return nil
}

const (
	whiteout = ".wh."         // prefix of a name that a layer removes
	opaque   = ".wh..wh..opq" // removes what lower layers put into its directory
)

// cleanName returns a name in an archive as a clean path. It refuses names that are longer or deeper than names of
// files need to be: a few bytes of compressed archive could have this process make directories for hours.
func cleanName(name string) (string, error) {
	if len(name) > maxName {
		return "", fmt.Errorf("%w: the name is %d bytes long; the limit is %d", ErrBroken, len(name), maxName)
	}
	name = path.Clean(strings.TrimLeft(name, "/"))
	if depth := 1 + strings.Count(name, "/"); depth > hostdir.MaxDepth {
		return "", fmt.Errorf("%w: the name has %d components; the limit is %d", ErrBroken, depth, hostdir.MaxDepth)
	}
	return name, nil
}

// unpack applies one entry of an archive. It writes a file, a directory or a link, or removes what a whiteout names.
func (u *unpacker) unpack(ctx context.Context, header *tar.Header, content io.Reader) error {
	name, err := cleanName(header.Name)
	if err != nil {
		return err
	}
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%w: the name points outside the image", ErrBroken)
	}
	if name == "." {
		return nil
	}
	parent, err := hostdir.Resolve(ctx, u.root, path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	at := path.Join(parent, base)
	if u.whiteouts && strings.HasPrefix(base, whiteout) {
		return u.remove(parent, base)
	}
	if err := u.makeParent(parent); err != nil {
		return err
	}
	for p := at; p != "." && !u.written[p]; p = path.Dir(p) {
		u.written[p] = true
	}
	mode := fs.FileMode(header.Mode).Perm()
	switch header.Typeflag {
	case tar.TypeDir:
		return u.makeDirectory(at, mode|0o700)
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.writeFile(at, mode|0o600, content)
	case tar.TypeSymlink:
		if err := removal.All(u.root, at); err != nil {
			return err
		}
		return u.root.Symlink(header.Linkname, at)
	case tar.TypeLink:
		return u.hardLink(ctx, header.Linkname, at)
	}
	return nil // devices and pipes are left out
}

// makeParent makes a directory and its parents, unless they exist. It counts each as a file, because an archive needs
// few bytes for many of them.
func (u *unpacker) makeParent(dir string) error {
	err := u.root.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		if err := u.makeParent(path.Dir(dir)); err != nil {
			return err
		}
		err = u.root.Mkdir(dir, 0o755)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return u.countFile()
}

// remove removes the files of lower layers that a whiteout names.
func (u *unpacker) remove(parent, base string) error {
	if base != opaque {
		name := path.Clean(strings.TrimPrefix(base, whiteout))
		if name == "." || name == ".." || name == "" {
			return fmt.Errorf("%w: the whiteout has no name", ErrBroken)
		}
		return u.removeLower(path.Join(parent, name))
	}
	return u.removeBelow(parent)
}

// removeLower removes what lower layers put at a path and below it.
func (u *unpacker) removeLower(at string) error {
	if !u.written[at] {
		return removal.All(u.root, at)
	}
	info, err := u.root.Lstat(at)
	if err != nil || !info.IsDir() {
		return err
	}
	return u.removeBelow(at)
}

// removeBelow removes what lower layers put below a directory, which need not exist.
func (u *unpacker) removeBelow(parent string) error {
	dir, err := u.root.Open(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	err = errors.Join(err, dir.Close())
	for _, name := range names {
		err = errors.Join(err, u.removeLower(path.Join(parent, name)))
	}
	return err
}

// makeDirectory makes a directory, or changes the mode of one that exists. It replaces anything else at the path.
func (u *unpacker) makeDirectory(at string, mode fs.FileMode) error {
	info, err := u.root.Lstat(at)
	if err == nil && !info.IsDir() {
		err = errors.Join(removal.All(u.root, at), fs.ErrNotExist)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = u.root.Mkdir(at, 0o700)
	}
	if err != nil {
		return err
	}
	return u.root.Chmod(at, mode)
}

// writeFile writes a file. It replaces anything at the path.
func (u *unpacker) writeFile(at string, mode fs.FileMode, content io.Reader) (err error) {
	if err := removal.All(u.root, at); err != nil {
		return err
	}
	f, err := u.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err := io.Copy(f, io.LimitReader(content, u.maxMB<<20-u.bytesWritten+1))
	if err != nil {
		return err
	}
	if u.bytesWritten += n; u.bytesWritten > u.maxMB<<20 {
		return u.tooLarge()
	}
	return f.Chmod(mode)
}

// hardLink adds a name for an existing file.
func (u *unpacker) hardLink(ctx context.Context, target, at string) error {
	name, err := cleanName(target)
	if err != nil {
		return err
	}
	if !filepath.IsLocal(name) || name == "." {
		return fmt.Errorf("%w: a hard link to %.200q points outside the image", ErrBroken, target)
	}
	parent, err := hostdir.Resolve(ctx, u.root, path.Dir(name))
	if err != nil {
		return err
	}
	from := path.Join(parent, path.Base(name))
	info, err := u.root.Lstat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%w: a hard link to a directory", ErrBroken)
	}
	if from == at {
		return nil
	}
	if err := removal.All(u.root, at); err != nil {
		return err
	}
	return u.root.Link(from, at)
}

// layerError returns err, with ErrBroken and the layer's name unless its cause is the registry, the image's size, a
// full disk or a time limit. After the end of ctx it returns the cause instead.
func layerError(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, other := range []error{
		ErrMissing, ErrTooLarge, syscall.ENOSPC, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, other) {
			return err
		}
	}
	return broken(name, err)
}
