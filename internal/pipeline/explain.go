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

func isDiskFull(err error) bool {
	return errors.Is(err, state.ErrDiskFull) || errors.Is(err, executor.ErrDiskFull) ||
		errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// explainFullDisk explains the error of a full disk and returns others unchanged. The task is retried
// when the host's disk is full, perhaps on a worker with more space. It ends blocked when its files do not
// fit on the box's own disk, which has the same size everywhere. box is nil before one is acquired.
func (p *Pipeline) explainFullDisk(ctx context.Context, box *executor.AcquiredBox, err error) error {
	if !isDiskFull(err) {
		return err
	}
	p.Store.FreeDisk(ctx)
	if box != nil && !errors.Is(err, executor.ErrDiskFull) {
		if full := box.CheckDisk(); full == nil && box.DiskMB() > 0 {
			return &schemas.Error{
				Code: errcode.WorkspaceLimit,
				Message: fmt.Sprintf("the workspace and the files of the task do not fit on "+
					"the sandbox's disk of %d MiB", box.DiskMB()),
				Hint: "remove files (codefleet workspace ls -r, codefleet workspace rm), or raise limits.workspace_mb",
			}
		}
	}
	return jobs.WithDetails(err, schemas.Error{
		Code:    errcode.DiskFull,
		Message: "the disk of the worker has no space left for the task's workspace",
		Hint: "free space on the disk of the worker's data directory, or give it a larger one; " +
			"then submit the task again",
	})
}

// explainMissingKey explains that the worker does not have the key of a workspace, and returns other errors
// unchanged. The task is retried, perhaps on a worker that has it.
func explainMissingKey(err error) error {
	if !errors.Is(err, state.ErrKey) {
		return err
	}
	return jobs.WithDetails(err, schemas.Error{
		Code:    errcode.NoKey,
		Message: "the workspace is encrypted with a key that the worker does not have",
		Hint:    "give its secret in workspaces.encryption, or in the tenant's encryption; then submit the task again",
	})
}
