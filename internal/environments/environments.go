// Package environments prepares what the boxes of a worker's task pools contain: a root file system from an
// image, and package layers from requirements files. It turns the sections execution and pools of the settings
// into executor.Environment values. The key type is Environments.
package environments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/image"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/pylayer"
)

// Options configure New. Config, Driver, Info and Log are required.
type Options struct {
	Config  *config.Config
	Driver  executor.Driver
	Info    executor.Info   // describes Driver
	Objects objects.Objects // shares package layers between hosts; if nil, each host builds them
	Joined  <-chan struct{} // closed when Objects may be used; if nil, it may be used at once
	Log     *slog.Logger
}

// Environments are the environments of one worker. Close releases what they hold.
type Environments struct {
	Options

	mu     sync.Mutex
	images []image.Root // unpacked images in use by boxes
}

// New returns the environments of the settings without preparing them.
func New(o Options) *Environments { return &Environments{Options: o} }

// List returns the environments of the worker's task pools. Task pools without an entry in the section `pools` share
// the environment of the section `execution`, which comes first.
func (e *Environments) List() []executor.Environment {
	var shared, pools []executor.Environment
	for _, name := range e.Config.WorkerPools() {
		p, ok := e.Config.Pools[name]
		switch {
		case ok:
			pools = append(pools, executor.Environment{
				Name: name, MinReady: e.minReady(p),
				Prepare: func(ctx context.Context) (executor.Root, error) { return e.preparePool(ctx, name, p) },
			})
		case shared == nil:
			shared = []executor.Environment{{
				Name: name, MinReady: e.minReady(config.Pool{}), Prepare: e.prepareShared, Required: true,
			}}
		}
	}
	return append(shared, pools...)
}

// minReady returns a task pool's executor.Environment.MinReady: how many boxes are kept ready, or -1 for none.
func (e *Environments) minReady(p config.Pool) int {
	n := e.Config.Optimizations.ReadyBoxes()
	if p.Ready != nil && e.Config.Optimizations.Pools() {
		n = *p.Ready
	}
	if n == 0 {
		return -1
	}
	return n
}

// SharedWithHost returns the task pools whose boxes see files of the host. Tenants must not share such task pools.
func (e *Environments) SharedWithHost() []string {
	var pools []string
	for _, name := range e.Config.WorkerPools() {
		multi := e.Info.MultiTenant
		if e.Config.Pools[name].Image != "" || e.Config.Execution.SandboxImage != "" {
			multi = e.Info.ImageMultiTenant
		}
		if !multi {
			pools = append(pools, name)
		}
	}
	return pools
}

// prepareShared prepares the environment that the section execution describes.
func (e *Environments) prepareShared(ctx context.Context) (executor.Root, error) {
	x := e.Config.Execution
	root := executor.Root{Preload: x.Preload}
	if x.Requirements != "" && x.Rootfs != "" && e.interpreter() == nil {
		return root, requirementsError("install the packages in execution.rootfs",
			"execution.requirements needs the host's Python, but execution.rootfs has a Python of its own")
	}
	if x.SandboxImage != "" && e.interpreter() == nil { // an Interpreter uses execution.sandbox_image by itself
		if x.Requirements != "" {
			return root, requirementsError("install the packages in the image",
				"execution.requirements cannot be combined with execution.sandbox_image under %s", e.Info.Driver)
		}
		return e.addImage(ctx, root, "execution.sandbox_image", x.SandboxImage)
	}
	return e.addPackages(ctx, root, "execution.requirements", x.Requirements)
}

// preparePool prepares the environment of a task pool with an entry in the section `pools`.
func (e *Environments) preparePool(ctx context.Context, name string, p config.Pool) (executor.Root, error) {
	root := executor.Root{Preload: p.Preload}
	key := "pools." + name + ".image"
	if p.Image == "" && e.interpreter() == nil {
		key, p.Image = "execution.sandbox_image", e.Config.Execution.SandboxImage
	}
	if p.Image != "" && p.Requirements != "" && e.interpreter() == nil {
		return root, requirementsError("install the packages in the image",
			"pools.%s.requirements cannot be combined with an image under %s", name, e.Info.Driver)
	}
	if p.Image != "" {
		var err error
		if root, err = e.addImage(ctx, root, key, p.Image); err != nil {
			return root, err
		}
	} else if p.Requirements != "" && e.Config.Execution.Rootfs != "" && e.interpreter() == nil {
		return root, requirementsError("use pools."+name+".image",
			"pools.%s.requirements needs the host's Python, but execution.rootfs has a Python of its own", name)
	}
	return e.addPackages(ctx, root, "pools."+name+".requirements", p.Requirements)
}

func requirementsError(fix, format string, args ...any) error {
	return &executor.HostError{Reason: executor.ReasonRequirements, Err: fmt.Errorf(format, args...), Fix: fix}
}

// addImage adds an image to root. If the driver does not use images by name, it unpacks the image to a directory.
func (e *Environments) addImage(ctx context.Context, root executor.Root, key, name string) (executor.Root, error) {
	if driver := e.interpreter(); driver != nil {
		if _, err := os.Stat(name); err == nil { // otherwise it is an image reference
			if name, err = filepath.Abs(name); err != nil {
				return root, fmt.Errorf("%s: %w", key, err)
			}
		}
		if _, err := driver.Interpreter(ctx, name); err != nil {
			return root, fmt.Errorf("%s: %w", key, err)
		}
		root.Image, root.Description = name, "image "+hostdir.ImageName(name)
		return root, nil
	}
	unpacked, err := image.Unpack(ctx, image.Options{
		Path: name, Dir: e.imagesDir(), MaxMB: e.Config.Execution.MaxImageMB,
	})
	if err != nil {
		return root, imageError(key, err)
	}
	e.hold(unpacked)
	root.Image, root.Description = unpacked.Dir, "image "+hostdir.ImageName(name)
	if unpacked.Digest != "" {
		root.Description += " " + unpacked.Digest[:len("sha256:")+12]
	}
	return root, nil
}

// interpreter returns the driver if it uses images by their names, or nil if this host has to prepare the root file
// system.
func (e *Environments) interpreter() executor.Interpreter {
	driver, _ := e.Driver.(executor.Interpreter)
	return driver
}

func imageError(key string, err error) error {
	host := &executor.HostError{Reason: executor.ReasonImageBroken, Err: fmt.Errorf("%s: %w", key, err)}
	switch {
	case errors.Is(err, image.ErrMissing):
		host.Reason, host.Fix = executor.ReasonImageMissing, "name an image in a registry that this host can reach "+
			"(docker login for one that needs credentials), or the path of an archive "+
			"(skopeo copy docker://IMAGE oci-archive:FILE, or docker save) or of a root file system"
	case errors.Is(err, image.ErrTooLarge):
		host.Reason = executor.ReasonImageTooLarge
		host.Fix = "use a smaller image (python:3.12-slim is 150 MB), or raise execution.max_image_mb"
	case errors.Is(err, image.ErrBroken):
		host.Fix = "write it again: skopeo copy … oci-archive:FILE, or docker save IMAGE > FILE"
	}
	return host
}

// addPackages adds the packages of a requirements file to root.
func (e *Environments) addPackages(ctx context.Context, root executor.Root, key, file string) (executor.Root, error) {
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
		Python: executor.DefaultGuest().Python, Target: target, Requirements: file,
		Dir: filepath.Join(e.Config.Data, "packages"), Objects: e.Objects, Log: e.Log,
	})
	if err != nil {
		return root, requirementsError("correct the file; the worker tries again by itself", "%s: %w", key, err)
	}
	e.Log.InfoContext(ctx, "package layer prepared",
		"setting", key, "from", layer.From, "hash", layer.Hash, "distributions", len(layer.Names))
	root.Mounts = append(slices.Clone(root.Mounts), executor.Mount{
		Source: layer.Dir, Target: executor.PackagesDir, ReadOnly: true,
	})
	root.Added, root.Packages = "requirements "+layer.Hash[:12], layer.Names
	return root, nil
}

// target returns the interpreter for which packages are installed, or nil for the host's.
func (e *Environments) target(ctx context.Context, image string) (*pylayer.Target, error) {
	driver := e.interpreter()
	if driver == nil {
		return nil, nil
	}
	python, err := driver.Interpreter(ctx, image)
	if err != nil {
		return nil, err
	}
	return &pylayer.Target{Version: python.Version, Platforms: python.Platforms}, nil
}
