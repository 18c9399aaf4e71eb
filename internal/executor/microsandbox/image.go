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

// images are those that boxes were made from, by what a Spec calls them.
type images struct {
	mu    sync.Mutex
	known map[string]*image
}

// image is the root file system of boxes, as msb has it. A failure to get it is not remembered.
type image struct {
	mu     sync.Mutex // held while it is fetched or looked at
	ref    string     // msb's; empty until it has it
	python string     // path of the interpreter; empty until a box has shown it
	closed string     // what programs might write to, as JSON; with python

	asking sync.Mutex      // held while a box is asked
	answer executor.Python // what it said
}

// getTime is how many times as long as any other call getting an image may take.
const getTime = 10

// prepareImage makes sure that msb has an image.
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
	ref, err := d.getImage(ctx, name)
	if err != nil {
		return nil, err
	}
	img.ref = ref
	return img, nil
}

// isPath tells a file or directory of this host from a reference.
func isPath(name string) bool {
	return strings.HasPrefix(name, "/") || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../")
}

// shown is how results name an image: not by where it lies on this host.
func shown(name string) string {
	if isPath(name) {
		name = filepath.Base(name)
	}
	return "image " + name
}

// getImage returns msb's reference of an image, after fetching or loading it where it must.
func (d *Driver) getImage(ctx context.Context, name string) (ref string, err error) {
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

// localRef names an image of this host by its file: as it is now, not as it may become.
func localRef(path string, info fs.FileInfo) string {
	return localName(fmt.Sprintf("%s\x00%d\x00%d", path, info.Size(), info.ModTime().UnixNano()))
}

func localName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return "codefleet/local:" + hex.EncodeToString(sum[:16])
}

// shortHash keeps names apart that would otherwise be equal.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

func (d *Driver) pull(ctx context.Context, ref string) error {
	if has, err := d.hasImage(ctx, ref); has || err != nil {
		return err
	}
	d.log.InfoContext(ctx, "fetching the image of boxes", "image", ref)
	if _, err := d.msb(ctx, getTime*d.opts.Timeout, "pull", "--quiet", ref); err != nil {
		if host := (*executor.HostError)(nil); errors.As(err, &host) {
			return err
		}
		return imageError(executor.ReasonImageMissing, "the image %s: %w", ref, err)
	}
	_, err := d.hasImage(ctx, ref) // how large it is shows now
	return err
}

func (d *Driver) load(ctx context.Context, ref, archive string) error {
	if has, err := d.hasImage(ctx, ref); has || err != nil {
		return err
	}
	if _, err := d.msb(ctx, getTime*d.opts.Timeout, "load", "--quiet", "--input", archive, "--tag", ref); err != nil {
		if host := (*executor.HostError)(nil); errors.As(err, &host) {
			return err
		}
		return imageError(executor.ReasonImageBroken, "the image %s: %w", archive, err)
	}
	_, err := d.hasImage(ctx, ref)
	return err
}

// hasImage tells whether msb has an image, and refuses one that is too large.
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

// listsImage looks for a reference in what msb lists, with or without its registry.
func listsImage(list []byte, ref string) (has bool, bytes int64, err error) {
	var found []struct {
		Reference string `json:"reference"`
		Bytes     int64  `json:"size_bytes"`
	}
	if err := json.Unmarshal(list, &found); err != nil {
		return false, 0, fmt.Errorf("read msb's list of images: %w", err)
	}
	for _, i := range found {
		if i.Reference == ref || strings.HasSuffix(i.Reference, "/"+ref) || strings.HasSuffix(i.Reference, "/library/"+ref) {
			return true, i.Bytes, nil
		}
	}
	return false, 0, nil
}

func imageError(reason executor.Reason, format string, args ...any) error {
	return &executor.HostError{Reason: reason, Err: fmt.Errorf(format, args...), Fix: "set execution.sandbox_image to an OCI reference, or to an archive or directory of this host that has Python 3.9 or newer"}
}

func (d *Driver) tooLarge(name string, mb int64) error {
	return &executor.HostError{
		Reason: executor.ReasonImageTooLarge, Err: fmt.Errorf("the image %s has %d MB, and at most %d are allowed", name, mb, d.opts.MaxImageMB),
		Fix: "use a smaller one: python:3.12-slim has 150",
	}
}
