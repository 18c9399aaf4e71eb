// Package image unpacks an OCI image into a directory that boxes use as their root file system. The image is on this
// host, as an archive in Docker's or OCI's format or a directory in OCI's layout, or it is pulled from a registry. An
// image is unpacked once, into a directory named by the digest of its configuration. The key function is Unpack.
//
// The image is untrusted: nothing is written outside of the directory, devices and set-user-ID bits are left out, the
// size is bounded, and each layer must match its digest. Package go-containerregistry reads manifests and layouts; it
// reads them whole, so their sizes are checked first. Layers are unpacked here.
package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// Options configure Unpack. Path and Dir are required.
type Options struct {
	Path  string // the image: an archive or a directory, or a reference if this host has no such file
	Dir   string // directory of unpacked images
	MaxMB int64  // size limit of all layers together, unpacked; default 4096
}

// Root is a root file system.
type Root struct {
	Dir    string
	Digest string // sha256:…, the digest of the image's configuration; empty if Options.Path is a root file system

	lock *os.File // keeps Prune from removing Dir; nil if Dir is not an unpacked image
}

// Errors that Unpack returns.
var (
	ErrMissing  = errors.New("the image does not exist or cannot be fetched")
	ErrTooLarge = errors.New("the image is too large")
	ErrBroken   = errors.New("the image cannot be read")
)

const (
	maxFiles  = 1_000_000      // files and directories in all layers together
	maxText   = 4 << 20        // bytes of a manifest, an index or a configuration
	abandoned = 24 * time.Hour // age at which a temporary directory is removed
	nameLen   = 32             // length of the name of an unpacked image: the first half of its digest
)

// Unpack unpacks an image, unless that was done before, and returns its root file system. Prune does not remove the
// root before Release. If Path is a directory that is not an image, that directory is returned as the root. Several
// processes may call Unpack at once. After an error, nothing is left behind.
func Unpack(ctx context.Context, o Options) (Root, error) {
	o.MaxMB = cmp.Or(o.MaxMB, 4096)
	root, err := o.unpack(ctx)
	if err != nil {
		return Root{}, fmt.Errorf("unpack image %s: %w", o.Path, err)
	}
	return root, nil
}

func (o Options) unpack(ctx context.Context) (Root, error) {
	info, isReference, err := hostdir.FindImage(o.Path)
	if isReference {
		src, err := openReference(ctx, o.Path)
		if err != nil {
			return Root{}, err
		}
		defer src.close()
		if err := o.makeDir(); err != nil {
			return Root{}, err
		}
		return o.unpackOnce(ctx, src)
	}
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
		return Root{}, fmt.Errorf("%w: the archive is %d MB; the limit is %d MB", ErrTooLarge, info.Size()>>20, o.MaxMB)
	}
	if err := o.makeDir(); err != nil {
		return Root{}, err
	}
	src, err := openSource(ctx, o.Path, info, o.Dir, o.MaxMB)
	if err != nil {
		return Root{}, err
	}
	defer src.close()
	return o.unpackOnce(ctx, src)
}

// unpackOnce unpacks an open image, unless that was done before.
func (o Options) unpackOnce(ctx context.Context, src source) (root Root, err error) {
	sum := sha256.Sum256(src.config)
	digest := hex.EncodeToString(sum[:])
	root = Root{Dir: filepath.Join(o.Dir, digest[:nameLen]), Digest: "sha256:" + digest}
	for { // again if Prune removed it before it was locked
		if root.lock, err = lock(ctx, root.Dir); !errors.Is(err, fs.ErrNotExist) {
			return root, err
		}
		err = hostdir.CreateOnce(root.Dir, tempPrefix, func(temp string) error { return o.fill(ctx, src, temp) })
		if err != nil {
			return root, err
		}
	}
}

// makeDir creates the directory of unpacked images, and removes what killed processes left in it.
func (o Options) makeDir() error {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	removeAbandoned(o.Dir)
	return os.Chmod(o.Dir, 0o755) // programs in boxes read files below it
}

// fill unpacks the layers into a directory.
func (o Options) fill(ctx context.Context, src source, dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacker{root: root, bytesLeft: o.MaxMB << 20, maxMB: o.MaxMB, filesLeft: maxFiles, whiteouts: true}
	for i, l := range src.layers {
		if err := u.applyLayer(ctx, l); err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	now := time.Now()
	return os.Chtimes(dir, now, now) // Prune goes by this time, and unpacking may have taken long
}
