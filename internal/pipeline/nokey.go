package pipeline

import (
	"errors"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

// keyless explains that the worker does not have the key of a workspace, and leaves other errors as they are. The task is
// tried again, perhaps on a worker that has it.
func keyless(err error) error {
	if !errors.Is(err, state.ErrKey) {
		return err
	}
	return jobs.WithDetails(err, schemas.Error{
		Code:    errcode.NoKey,
		Message: "the workspace is encrypted with a key that the worker does not have",
		Hint:    "give its secret in workspaces.encryption, or in the tenant's encryption; then submit the task again",
	})
}
