package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/executor/microsandbox"
)

// Remains are what an ended worker has left on this host.
type Remains struct {
	Dir       string   `json:"dir"`    // the worker's directory
	Mounts    []string `json:"mounts"` // mount points
	Disks     []string `json:"disks"`  // loop devices
	Groups    []string `json:"groups"` // control groups
	Processes int      `json:"processes"`
}

// RunningOwners returns the directories of those owners of gVisor boxes whose boxes have processes on this host.
func RunningOwners() ([]string, error) { return gvisor.RunningOwners() }

// FindRemains describes what the boxes of owners have left below dir, a worker's directory. gvisorDir is the driver
// gvisor's directory in it.
func FindRemains(dir, gvisorDir string, owners []string) (Remains, error) {
	r := Remains{Dir: dir}
	var err error
	if r.Mounts, err = hostdir.Mounts(dir); err != nil {
		return r, err
	}
	disks, err := hostdir.Disks()
	if err != nil {
		return r, err
	}
	for _, d := range disks {
		if hostdir.Below(d.Image, dir) {
			r.Disks = append(r.Disks, d.Device)
		}
	}
	for _, owner := range owners {
		r.Groups = append(r.Groups, gvisor.Groups(filepath.Join(gvisorDir, owner))...)
	}
	r.Processes, err = gvisor.Processes(gvisorDir)
	return r, err
}

// RemoveBoxes removes the boxes that an ended worker has left: gVisor's boxes of owners, and microsandbox's in msbDir.
// If there are boxes of microsandbox but its binary is not found, it returns an error.
func RemoveBoxes(ctx context.Context, c *config.Config, msbDir, gvisorDir string, owners []string) error {
	errs := []error{removeMicrosandboxes(ctx, c, msbDir)}
	driver, err := gvisor.New(gvisor.Options{Dir: gvisorDir})
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, owner := range owners {
		errs = append(errs, driver.Sweep(ctx, owner))
	}
	return errors.Join(append(errs, driver.Close())...)
}

func removeMicrosandboxes(ctx context.Context, c *config.Config, dir string) error {
	owners, err := os.ReadDir(filepath.Join(dir, "owners"))
	if err != nil || len(owners) == 0 {
		return nil //nolint:nilerr // the worker had no such boxes
	}
	msb, err := Msb(c)
	if err != nil {
		return err
	}
	driver, err := microsandbox.New(microsandbox.Options{Msb: msb, Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	var errs []error
	for _, owner := range owners {
		errs = append(errs, driver.Sweep(ctx, owner.Name()))
	}
	return errors.Join(append(errs, driver.Close())...)
}
