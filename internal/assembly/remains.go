package assembly

import (
	"context"
	"errors"
	"log/slog"

	"github.com/codefleet/codefleet/internal/assembly/sandbox"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/filelock"
	"github.com/codefleet/codefleet/internal/worker"
)

// Remains returns what ended workers, with any data directory, have left on this host: mounts, loop devices, control
// groups, processes and directories of boxes. If remove is set, it removes them. Boxes of workers that run are not
// touched.
func Remains(ctx context.Context, c *config.Config, remove bool) ([]sandbox.Remains, error) {
	owners, err := sandbox.RunningOwners()
	if err != nil {
		return nil, err
	}
	abandoned, err := worker.FindAbandoned(owners)
	errs := []error{err}
	var found []sandbox.Remains
	for _, a := range abandoned {
		r, err := sandbox.FindRemains(a.Path(), a.GVisor(), a.Owners)
		if remove && err == nil {
			err = removeAbandoned(ctx, c, a)
		}
		a.Close()
		if errors.Is(err, filelock.ErrLocked) {
			continue // a process has started to use the directory
		}
		if errs = append(errs, err); err == nil || !remove {
			found = append(found, r)
		}
	}
	return found, errors.Join(errs...)
}

func removeAbandoned(ctx context.Context, c *config.Config, a worker.Abandoned) error {
	err := sandbox.RemoveBoxes(ctx, c, a.Microsandbox(), a.GVisor(), a.Owners)
	if errors.Is(err, filelock.ErrLocked) {
		return err // the files may be in use
	}
	return errors.Join(err, a.RemoveFiles())
}

// removeRemains removes what ended workers have left. A worker does so when it starts.
func removeRemains(ctx context.Context, c *config.Config, log *slog.Logger) {
	found, err := Remains(ctx, c, true)
	for _, r := range found {
		log.InfoContext(ctx, "remains of an ended worker removed", "dir", r.Dir, "mounts", len(r.Mounts),
			"disks", len(r.Disks), "groups", len(r.Groups), "processes", r.Processes)
	}
	if err != nil {
		log.WarnContext(ctx, "remains of ended workers not removed", "error", err)
	}
}
