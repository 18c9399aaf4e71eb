// Package image turns an OCI image that lies on this host (an archive of Docker or of OCI, or a
// directory in OCI's layout) into a directory that boxes have as their root file system: once for
// each content, named by its digest. The image may be anybody's: nothing of it leads out of the
// directory, it has no devices and no set-user-ID programs, it is as large as it may be and no larger,
// and each layer is what its image says it is. Its key function is Unpack.
//
// It is its own reader of images because the known ones hold what an image calls its manifest in
// memory, however large, and write where its links lead. Formats: github.com/opencontainers/image-spec,
// and what `docker save` writes.
package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Options of Unpack. Path and Dir are required.
type Options struct {
	Path  string // of the image: an archive or a directory
	Dir   string // where unpacked images are kept
	MaxMB int64  // of an image, unpacked, all layers together; 4096
}

// Root is a root file system.
type Root struct {
	Dir    string
	Digest string // of the image's configuration, as sha256:…; empty: Path is a root file system itself

	held *os.File // keeps it there; nil: it is not ours
}

// What an error of Unpack may be.
var (
	ErrMissing  = errors.New("there is no such image")
	ErrTooLarge = errors.New("the image is too large")
	ErrBroken   = errors.New("the image cannot be read")
)

const (
	defaultMB  = 4096
	maxEntries = 1_000_000 // of all layers together
	maxText    = 4 << 20   // bytes of a manifest, an index or a configuration
	abandoned  = 24 * time.Hour
	nameLen    = 32 // of the directory of an unpacked image: the first half of its digest
)

// Unpack returns the root file system of an image, which it makes unless it is there, and which stays until
// Release. A directory that is no image is taken for a root file system itself. Several processes may do so
// at once. After an error nothing is left.
func Unpack(ctx context.Context, o Options) (Root, error) {
	if o.MaxMB <= 0 {
		o.MaxMB = defaultMB
	}
	root, err := o.unpack(ctx)
	if err != nil {
		return Root{}, fmt.Errorf("unpack the image %s: %w", o.Path, err)
	}
	return root, nil
}

func (o Options) unpack(ctx context.Context) (Root, error) {
	info, err := os.Stat(o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Root{}, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if err != nil {
		return Root{}, err
	}
	if info.IsDir() && !isLayout(o.Path) {
		dir, err := filepath.Abs(o.Path)
		return Root{Dir: dir}, err
	}
	if !info.IsDir() && info.Size()>>20 > o.MaxMB {
		return Root{}, fmt.Errorf("%w: the archive has %d MB, and %d are allowed", ErrTooLarge, info.Size()>>20, o.MaxMB)
	}
	src, err := open(o.Path, info)
	if err != nil {
		return Root{}, err
	}
	defer func() { _ = src.close() }() // it was only read
	m, err := src.manifest()
	if err != nil {
		return Root{}, err
	}
	sum := sha256.Sum256(m.config)
	digest := hex.EncodeToString(sum[:])
	root := Root{Dir: filepath.Join(o.Dir, digest[:nameLen]), Digest: "sha256:" + digest}
	for {
		if root.held, err = hold(root.Dir); !errors.Is(err, fs.ErrNotExist) {
			return root, err
		}
		if err := o.fill(ctx, src, m, root.Dir); err != nil {
			return root, err
		}
	}
}

// fill unpacks the layers into a directory beside dir, which takes its place in one step.
func (o Options) fill(ctx context.Context, src source, m manifest, dir string) error {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(o.Dir, 0o755); err != nil { // programs of boxes read below
		return err
	}
	sweep(o.Dir)
	temp, err := os.MkdirTemp(o.Dir, temporary)
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(temp)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacker{root: root, left: o.MaxMB << 20, maxMB: o.MaxMB, entries: maxEntries}
	for i, layer := range m.layers {
		if err := u.layer(ctx, src, layer); err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	now := time.Now()
	if err := os.Chtimes(temp, now, now); err != nil { // whatever the image says
		return err
	}
	err = os.Rename(temp, dir)
	if _, there := os.Stat(dir); err != nil && there == nil {
		return nil // somebody else was faster
	}
	return err
}
