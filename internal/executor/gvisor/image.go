package gvisor

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/codefleet/codefleet/internal/executor"
)

// imageRoot is the root file system of boxes with an image.
type imageRoot struct {
	mu     sync.Mutex // held while the image is inspected
	dir    string     // absolute, without symbolic links
	python string     // path of the interpreter; empty until an inspection succeeds
}

// image prepares a directory to be the root of boxes. The first time, it boots a box to test the image's Python.
func (d *Driver) image(ctx context.Context, dir string) (*imageRoot, error) {
	loaded, _ := d.images.LoadOrStore(dir, &imageRoot{})
	i := loaded.(*imageRoot) //nolint:errcheck // images has no other type
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.python != "" {
		return i, nil
	}
	python, err := d.inspectImage(ctx, i, dir)
	if err != nil {
		return nil, fmt.Errorf("inspect image %s: %w", dir, err)
	}
	i.python = python
	return i, nil
}

// inspectImage finds the Python of an image, makes the image's mount points, and boots a box to test Python. It sets
// i.dir.
func (d *Driver) inspectImage(ctx context.Context, i *imageRoot, dir string) (python string, err error) {
	if i.dir, err = realPath(dir); err != nil {
		return "", err
	}
	if info, err := os.Stat(i.dir); err != nil || !info.IsDir() {
		return "", &executor.HostError{
			Reason: executor.ReasonImageMissing, Err: fmt.Errorf("%s is not a directory", dir),
			Fix: "name a directory that is a complete root file system",
		}
	}
	if python, err = findPython(ctx, i.dir); err != nil {
		return "", err
	}
	if err := makeMountPoints(i.dir); err != nil {
		return "", &executor.HostError{Reason: executor.ReasonImageBroken, Err: err}
	}
	output, err := d.runProbe(ctx, &imageRoot{dir: i.dir, python: python})
	if err != nil {
		return "", err
	}
	if err := checkVersion(output); err != nil {
		return "", &executor.HostError{Reason: executor.ReasonImageNoPython, Err: err}
	}
	return python, nil
}
