package microsandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// image is an image in msb, from which boxes get their root file system.
type image struct {
	mu        sync.Mutex // held while the image is fetched or inspected
	ref       string     // its reference in msb; empty until the image is fetched
	python    string     // path of the interpreter; empty until the first box has found it
	protected string     // files of the image that programs must not write to, as JSON; set with python

	describing  sync.Mutex // held while a box describes the interpreter
	interpreter executor.Python
}

// fetchFactor multiplies Options.Timeout for msb commands that fetch an image.
const fetchFactor = 10

// prepareImage returns an image, or the default image if name is empty. It fetches the image unless msb has it.
func (d *Driver) prepareImage(ctx context.Context, name string) (*image, error) {
	name = cmp.Or(name, d.opts.Image)
	loaded, _ := d.images.LoadOrStore(name, &image{})
	img := loaded.(*image) //nolint:errcheck // images has no other type
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

// fetchImage pulls or loads an image unless msb has it, and returns its reference.
func (d *Driver) fetchImage(ctx context.Context, name string) (ref string, err error) {
	info, isReference, err := hostdir.FindImage(name)
	if isReference {
		return name, d.fetch(ctx, name, executor.ReasonImageMissing, name, "pull", "--quiet", name)
	}
	file := name
	if err == nil {
		file, err = filepath.EvalSymlinks(name)
	}
	if err == nil {
		file, err = filepath.Abs(file) // msb has another working directory
	}
	if err != nil {
		return "", imageError(executor.ReasonImageMissing, "find image %s: %w", name, err)
	}
	if info.IsDir() {
		return d.loadDir(ctx, file)
	}
	if mb := info.Size() >> 20; mb > d.opts.MaxImageMB {
		return "", d.tooLarge(name, mb)
	}
	ref = localRef(file, info)
	return ref, d.load(ctx, ref, file)
}

// localRef names an image by its file's path, size and time, so that a changed file is another image.
func localRef(file string, info fs.FileInfo) string {
	return localName(fmt.Sprintf("%s\x00%d\x00%d", file, info.Size(), info.ModTime().UnixNano()))
}

func localName(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return "codefleet/local:" + hex.EncodeToString(sum[:16])
}

func (d *Driver) load(ctx context.Context, ref, archive string) error {
	return d.fetch(ctx, ref, executor.ReasonImageBroken, archive,
		"load", "--quiet", "--input", archive, "--tag", ref)
}

// fetch runs an msb command that fetches the image ref, unless msb has it. If the command fails, the error has the
// reason and the name.
func (d *Driver) fetch(ctx context.Context, ref string, reason executor.Reason, name string, args ...string) error {
	if has, err := d.hasImage(ctx, ref); has || err != nil {
		return err
	}
	d.log.InfoContext(ctx, "image fetch started", "image", name)
	if _, err := d.msb(ctx, fetchFactor*d.opts.Timeout, args...); err != nil {
		if _, ok := errors.AsType[*executor.HostError](err); ok {
			return err
		}
		return imageError(reason, "fetch image %s: %w", name, err)
	}
	has, err := d.hasImage(ctx, ref) // checks the size, which is known now
	if err == nil && !has {
		d.log.WarnContext(ctx, "size of image unknown: msb does not list it under its name", "image", name)
	}
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

// listsImage searches the output of `msb image list` for a reference. One that names no registry is of Docker Hub. The
// default tag is latest.
func listsImage(list []byte, ref string) (has bool, bytes int64, err error) {
	var found []struct {
		Reference string `json:"reference"`
		Bytes     int64  `json:"size_bytes"`
	}
	if err := json.Unmarshal(list, &found); err != nil {
		return false, 0, fmt.Errorf("decode msb's list of images: %w", err)
	}
	if !strings.ContainsAny(path.Base(ref), ":@") {
		ref += ":latest"
	}
	for _, i := range found {
		if i.Reference == ref || i.Reference == "docker.io/"+ref || i.Reference == "docker.io/library/"+ref {
			return true, i.Bytes, nil
		}
	}
	return false, 0, nil
}

// imageError returns a HostError that suggests another image.
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
		Err:    fmt.Errorf("image %s is %d MB; the limit is %d MB", name, mb, d.opts.MaxImageMB),
		Fix:    "use a smaller image; python:3.12-slim is 150 MB",
	}
}
