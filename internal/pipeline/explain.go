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

// handleFullDisk empties the worker's cache if err says that a disk is full, and returns an error that explains
// this. It returns other errors unchanged. If the host's disk is full, the task is retried, perhaps on a worker with
// more space. If the task's files do not fit on the box's own disk, which has the same size on every worker, the task
// ends blocked. box is nil if the task has not acquired a box.
func (p *Pipeline) handleFullDisk(ctx context.Context, box *executor.AcquiredBox, err error) error {
	if !isDiskFull(err) {
		return err
	}
	p.Store.Repo().EmptyCache(ctx)
	if box != nil && !errors.Is(err, executor.ErrDiskFull) {
		if hostErr := box.CheckDisk(); hostErr == nil && box.DiskMB() > 0 { // the host's disk is not full
			return &schemas.Error{
				Code: errcode.WorkspaceLimit,
				Message: fmt.Sprintf("the workspace and the files of the task do not fit on "+
					"the sandbox's disk of %d MiB", box.DiskMB()),
				Hint: "remove files from the workspace, or raise limits.workspace_mb",
			}
		}
	}
	return jobs.WithDetails(err, schemas.Error{
		Code:    errcode.DiskFull,
		Message: "the worker's disk has no space left for the task's workspace",
		Hint: "free space on the disk of the worker's data directory, or give it a larger one; " +
			"then redrive the task",
	})
}

// explainMissingKey explains that the worker lacks a workspace's encryption key, and returns other errors
// unchanged. The task is retried, perhaps on a worker that has the key.
func explainMissingKey(err error) error {
	if !errors.Is(err, state.ErrKey) {
		return err
	}
	return jobs.WithDetails(err, schemas.Error{
		Code:    errcode.NoKey,
		Message: "the workspace is encrypted with a key that the worker does not have",
		Hint:    "set the secret in workspaces.encryption, or in the tenant's encryption; then redrive the task",
	})
}
