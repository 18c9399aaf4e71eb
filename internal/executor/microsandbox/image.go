package microsandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/executor"
)

// images are the images of boxes, by Spec.Image.
type images struct {
	mu    sync.Mutex
	known map[string]*image
}

// image is the root file system of boxes in msb. A failure to fetch it is not kept.
type image struct {
	mu     sync.Mutex // held while it is fetched or inspected
	ref    string     // in msb; empty until it is fetched
	python string     // path of the interpreter; empty until the first box has found it
	closed string     // files of the image that programs must not write to, as JSON; set with python

	describing  sync.Mutex // held while a box describes the interpreter
	interpreter executor.Python
}

// fetchFactor is how many times as long as other calls fetching an image may take.
const fetchFactor = 10

// prepareImage makes sure that msb has the image.
func (d *Driver) prepareImage(ctx context.Context, name string) (*image, error) {
	if name == "" {
		name = d.opts.Image
	}
	d.images.mu.Lock()
	img := d.images.known[name]
	if img == nil {
		img = &image{}
		d.images.known[name] = img
	}
	d.images.mu.Unlock()
	img.mu.Lock()
	defer img.mu.Unlock()
	if img.ref != "" {
		return img, nil
	}
	ref, err := d.fetchImage(ctx, name)
	if err != nil {
		return nil, err
	}
	img.ref = ref
	return img, nil
}

// isPath reports whether an image is a file or directory of this host, not a reference.
func isPath(name string) bool {
	return strings.HasPrefix(name, "/") || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../")
}

// displayName is the name of an image in results: without the directory on this host.
func displayName(name string) string {
	if isPath(name) {
		name = filepath.Base(name)
	}
	return "image " + name
}

// fetchImage returns msb's reference of an image, after pulling or loading it if necessary.
func (d *Driver) fetchImage(ctx context.Context, name string) (ref string, err error) {
	if !isPath(name) {
		return name, d.pull(ctx, name)
	}
	path, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", imageError(executor.ReasonImageMissing, "the image %s: %w", name, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", imageError(executor.ReasonImageMissing, "the image %s: %w", name, err)
	}
	if info.IsDir() {
		return d.loadDir(ctx, path)
	}
	if mb := info.Size() >> 20; mb > d.opts.MaxImageMB {
		return "", d.tooLarge(name, mb)
	}
	ref = localRef(path, info)
	return ref, d.load(ctx, ref, path)
}

// localRef names an image by the path, size and time of its file: a changed file is another image.
func localRef(path string, info fs.FileInfo) string {
	return localName(fmt.Sprintf("%s\x00%d\x00%d", path, info.Size(), info.ModTime().UnixNano()))
}

func localName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return "codefleet/local:" + hex.EncodeToString(sum[:16])
}

func (d *Driver) pull(ctx context.Context, ref string) error {
	if has, err := d.hasImage(ctx, ref); has || err != nil {
		return err
	}
	d.log.InfoContext(ctx, "pulling image", "image", ref)
	if _, err := d.msb(ctx, fetchFactor*d.opts.Timeout, "pull", "--quiet", ref); err != nil {
		if host := (*executor.HostError)(nil); errors.As(err, &host) {
			return err
		}
		return imageError(executor.ReasonImageMissing, "the image %s: %w", ref, err)
	}
	_, err := d.hasImage(ctx, ref) // checks its size, which is known now
	return err
}

func (d *Driver) load(ctx context.Context, ref, archive string) error {
	if has, err := d.hasImage(ctx, ref); has || err != nil {
		return err
	}
	if _, err := d.msb(ctx, fetchFactor*d.opts.Timeout, "load", "--quiet", "--input", archive, "--tag",
		ref); err != nil {
		if host := (*executor.HostError)(nil); errors.As(err, &host) {
			return err
		}
		return imageError(executor.ReasonImageBroken, "the image %s: %w", archive, err)
	}
	_, err := d.hasImage(ctx, ref)
	return err
}

// hasImage reports whether msb has an image. It returns an error if the image is too large.
func (d *Driver) hasImage(ctx context.Context, ref string) (bool, error) {
	out, err := d.msb(ctx, d.opts.Timeout, "image", "list", "--format", "json")
	if err != nil {
		return false, err
	}
	has, bytes, err := listsImage(out, ref)
	if mb := bytes >> 20; err == nil && mb > d.opts.MaxImageMB {
		return false, d.tooLarge(ref, mb)
	}
	return has, err
}

// listsImage searches for a reference in the output of msb image list, with or without its registry.
func listsImage(list []byte, ref string) (has bool, bytes int64, err error) {
	var found []struct {
		Reference string `json:"reference"`
		Bytes     int64  `json:"size_bytes"`
	}
	if err := json.Unmarshal(list, &found); err != nil {
		return false, 0, fmt.Errorf("parse msb's list of images: %w", err)
	}
	for _, i := range found {
		if i.Reference == ref || strings.HasSuffix(i.Reference, "/"+ref) {
			return true, i.Bytes, nil
		}
	}
	return false, 0, nil
}

func imageError(reason executor.Reason, format string, args ...any) error {
	return &executor.HostError{
		Reason: reason, Err: fmt.Errorf(format, args...),
		Fix: "set execution.sandbox_image to an OCI reference, " +
			"or to an archive or directory of this host that has Python 3.9 or newer",
	}
}

func (d *Driver) tooLarge(name string, mb int64) error {
	return &executor.HostError{
		Reason: executor.ReasonImageTooLarge,
		Err:    fmt.Errorf("the image %s has %d MB; the limit is %d MB", name, mb, d.opts.MaxImageMB),
		Fix:    "use a smaller one: python:3.12-slim has 150 MB",
	}
}
