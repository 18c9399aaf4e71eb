package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/image"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/pylayer"
)

// Environments are what the pools of the settings are made from.
type Environments struct {
	Config  *config.Config
	Driver  executor.Driver
	Info    executor.Info    // of the driver
	Objects objects.Objects  // where layers of packages are kept for all hosts; nil: nowhere
	Joined  <-chan struct{}  // closed when Objects may be asked; nil: at once
	Hold    func(image.Root) // is given what is unpacked, to release it when no box is made of it; nil: that is so at once
	Log     *slog.Logger
}

// List are the environments of a worker's pools: first the one that execution describes, where a pool
// has no other.
func (e Environments) List() []executor.Environment {
	var own, others []executor.Environment
	for _, name := range e.Config.TakesFrom() {
		p, ok := e.Config.Pools[name]
		switch {
		case ok:
			others = append(others, executor.Environment{
				Name: name, MinReady: e.ready(p), Prepare: func(ctx context.Context) (executor.Root, error) { return e.pool(ctx, name, p) },
			})
		case own == nil:
			own = []executor.Environment{{Name: name, MinReady: e.ready(config.Pool{}), Prepare: e.execution, Required: true}}
		}
	}
	return append(own, others...)
}

// ready is how many boxes a pool keeps ready, in the executor's words.
func (e Environments) ready(p config.Pool) int {
	n := e.Config.Optimizations.ReadyBoxes()
	if p.Ready != nil && n > 0 {
		n = *p.Ready
	}
	if n == 0 {
		return -1
	}
	return n
}

// execution prepares what the section execution describes.
func (e Environments) execution(ctx context.Context) (executor.Root, error) {
	x := e.Config.Execution
	root := executor.Root{Preload: x.Preload}
	if x.Requirements != "" && x.Rootfs != "" && e.imaged() == nil {
		return root, &executor.HostError{
			Reason: executor.ReasonRequirements, Err: errors.New("execution.requirements is for sandboxes with the host's Python, and execution.rootfs has its own"), Fix: "install the packages in execution.rootfs",
		}
	}
	return e.layer(ctx, root, "execution.requirements", x.Requirements)
}

// pool prepares what a pool of its own describes.
func (e Environments) pool(ctx context.Context, name string, p config.Pool) (executor.Root, error) {
	root := executor.Root{Preload: p.Preload}
	if p.Image != "" && p.Requirements != "" && e.imaged() == nil {
		return root, &executor.HostError{
			Reason: executor.ReasonRequirements, Err: fmt.Errorf("pools.%s.requirements cannot be beside an image under %s", name, e.Info.Driver), Fix: "install the packages in the image",
		}
	}
	if p.Image != "" {
		var err error
		if root, err = e.image(ctx, root, "pools."+name+".image", p.Image); err != nil {
			return root, err
		}
	} else if p.Requirements != "" && e.Config.Execution.Rootfs != "" && e.imaged() == nil {
		return root, &executor.HostError{
			Reason: executor.ReasonRequirements, Err: fmt.Errorf("pools.%s.requirements is for sandboxes with the host's Python, and execution.rootfs has its own", name), Fix: "use pools." + name + ".image",
		}
	}
	return e.layer(ctx, root, "pools."+name+".requirements", p.Requirements)
}

// image finds an image: the driver gets it, or it is unpacked for one that takes directories.
func (e Environments) image(ctx context.Context, root executor.Root, key, name string) (executor.Root, error) {
	if driver := e.imaged(); driver != nil {
		if path, err := filepath.Abs(name); err == nil && isThere(path) {
			name = path // else it is a reference
		}
		if _, err := driver.Interpreter(ctx, name); err != nil {
			return root, fmt.Errorf("%s: %w", key, err)
		}
		root.Image, root.Description = name, "image "+shown(name)
		return root, nil
	}
	unpacked, err := image.Unpack(ctx, image.Options{Path: name, Dir: imagesDir(e.Config), MaxMB: e.Config.Execution.MaxImageMB})
	if err != nil {
		return root, imageError(key, err)
	}
	if e.Hold != nil {
		e.Hold(unpacked)
	} else {
		unpacked.Release()
	}
	root.Image, root.Description = unpacked.Dir, "image "+shown(name)
	if unpacked.Digest != "" {
		root.Description += " " + unpacked.Digest[:len("sha256:")+12]
	}
	return root, nil
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// imaged is the driver where boxes have the Python of an image; nil: they have the host's.
func (e Environments) imaged() executor.Interpreter {
	driver, _ := e.Driver.(executor.Interpreter)
	return driver
}

// shown is how results name an image: not by where it lies on this host.
func shown(name string) string {
	if strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") {
		return filepath.Base(name)
	}
	return name
}

func imageError(key string, err error) error {
	host := &executor.HostError{Reason: executor.ReasonImageBroken, Err: fmt.Errorf("%s: %w", key, err)}
	switch {
	case errors.Is(err, image.ErrMissing):
		host.Reason, host.Fix = executor.ReasonImageMissing, "put an archive (skopeo copy docker://IMAGE oci-archive:FILE, or docker save) or a root file system there: gVisor takes images of this host"
	case errors.Is(err, image.ErrTooLarge):
		host.Reason, host.Fix = executor.ReasonImageTooLarge, "use a smaller one (python:3.12-slim has 150 MB), or raise execution.max_image_mb"
	case errors.Is(err, image.ErrBroken):
		host.Fix = "write it anew: skopeo copy … oci-archive:FILE, or docker save IMAGE > FILE"
	}
	return host
}

// layer adds the packages of a requirements file.
func (e Environments) layer(ctx context.Context, root executor.Root, key, file string) (executor.Root, error) {
	if file == "" {
		return root, nil
	}
	target, err := e.target(ctx, root.Image)
	if err != nil {
		return root, fmt.Errorf("%s: %w", key, err)
	}
	if e.Objects != nil && e.Joined != nil {
		select {
		case <-e.Joined:
		case <-ctx.Done():
			return root, context.Cause(ctx)
		}
	}
	layer, err := pylayer.Build(ctx, pylayer.Options{
		Python: executor.DefaultGuest().Python, Target: target, Requirements: file, Dir: filepath.Join(e.Config.Data, "packages"), Objects: e.Objects, Log: e.Log,
	})
	if err != nil {
		return root, &executor.HostError{Reason: executor.ReasonRequirements, Err: fmt.Errorf("%s: %w", key, err), Fix: "mend the file; the pool tries again by itself"}
	}
	e.Log.InfoContext(ctx, "packages", "setting", key, "from", layer.From, "hash", layer.Hash, "distributions", len(layer.Names))
	root.Mounts = append(slices.Clone(root.Mounts), executor.Mount{Source: layer.Dir, Target: executor.PackagesDir, ReadOnly: true})
	root.Added, root.Modules = "requirements "+layer.Hash[:12], layer.Names
	return root, nil
}

// target is the interpreter of boxes that packages are for; nil: it is the host's.
func (e Environments) target(ctx context.Context, image string) (*pylayer.Target, error) {
	driver := e.imaged()
	if driver == nil {
		return nil, nil
	}
	python, err := driver.Interpreter(ctx, image)
	if err != nil {
		return nil, err
	}
	return &pylayer.Target{Version: python.Version, Platforms: python.Platforms}, nil
}

// hostShared names the pools whose boxes show the host's own files, which tenants may not share.
func (e Environments) hostShared() []string {
	var pools []string
	for _, name := range e.Config.TakesFrom() {
		multi := e.Info.MultiTenant
		if e.Config.Pools[name].Image != "" {
			multi = e.Info.ImageMultiTenant
		}
		if !multi {
			pools = append(pools, name)
		}
	}
	return pools
}
