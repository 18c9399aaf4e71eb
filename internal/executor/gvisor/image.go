package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/codefleet/codefleet/internal/executor"
)

// images are the root file systems of boxes with an image, by directory. A failed inspection is not kept.
type images struct {
	mu    sync.Mutex
	known map[string]*imageRoot
}

type imageRoot struct {
	mu     sync.Mutex // held while it is inspected
	dir    string     // absolute
	python string     // path of its interpreter; empty until it has run in a box
}

// image prepares a directory to be the root of boxes. The first time it boots one to test its Python.
func (d *Driver) image(ctx context.Context, dir string) (*imageRoot, error) {
	d.images.mu.Lock()
	i := d.images.known[dir]
	if i == nil {
		if d.images.known == nil {
			d.images.known = map[string]*imageRoot{}
		}
		i = &imageRoot{}
		d.images.known[dir] = i
	}
	d.images.mu.Unlock()
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

func (d *Driver) inspectImage(ctx context.Context, i *imageRoot, dir string) (python string, err error) {
	if i.dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if info, err := os.Stat(i.dir); err != nil || !info.IsDir() {
		return "", &executor.HostError{
			Reason: executor.ReasonImageMissing, Err: fmt.Errorf("%s is not a directory", dir),
			Fix: "name a directory that is a complete root file system",
		}
	}
	if python, err = findPython(i.dir); err != nil {
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
