package wire

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/packages"
)

// addPackages builds the packages of the settings, where there are some, and gives them to the boxes
// of a pool. It returns their names.
func addPackages(ctx context.Context, c *config.Config, info executor.Info, pool *executor.PoolOptions) ([]string, error) {
	pool.Preload = c.Execution.Preload
	if c.Execution.Requirements == "" {
		return nil, nil
	}
	if info.Driver != "gvisor" || c.Execution.Rootfs != "" {
		return nil, errors.New("execution.requirements is for sandboxes with the host's Python: install the packages in the image or in execution.rootfs instead")
	}
	layer, err := packages.Build(ctx, packages.Options{
		Python: executor.DefaultGuest().Python, Requirements: c.Execution.Requirements, Dir: filepath.Join(c.Data, "packages"),
	})
	if err != nil {
		return nil, err
	}
	pool.Mounts = append(pool.Mounts, executor.Mount{Source: layer.Dir, Target: executor.PackagesDir, ReadOnly: true})
	pool.Environment = "requirements " + layer.Hash[:12]
	return layer.Names, nil
}
