package pipeline

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

// isFull reports whether err comes from a disk without room.
func isFull(err error) bool {
	return errors.Is(err, state.ErrDiskFull) || errors.Is(err, executor.ErrDiskFull) ||
		errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// roomless explains an error of a full disk, and leaves others as they are. box is that of the box,
// or nil when there is none. The host's disk is the fleet's matter: the task is tried again, perhaps
// on a worker with more room. What does not fit on the box's own disk fits on none, and ends the task
// with a result.
func (p *Pipeline) roomless(ctx context.Context, box *executor.AcquiredBox, err error) error {
	if !isFull(err) {
		return err
	}
	p.Store.FreeDisk(ctx)
	if box != nil && !errors.Is(err, executor.ErrDiskFull) {
		if full := box.CheckDisk(); full == nil && box.DiskMB() > 0 {
			return &schemas.Error{
				Code:    errcode.WorkspaceLimit,
				Message: fmt.Sprintf("the workspace and the files of the task do not fit on the sandbox's disk of %d MiB", box.DiskMB()),
				Hint:    "remove files (codefleet workspace ls -r, codefleet workspace rm), or raise limits.workspace_mb",
			}
		}
	}
	return jobs.WithDetails(err, schemas.Error{
		Code:    errcode.DiskFull,
		Message: "the disk of the worker has no room left for the task's workspace",
		Hint:    "free space on the disk of the worker's data directory, or give it a larger one; then submit the task again",
	})
}
