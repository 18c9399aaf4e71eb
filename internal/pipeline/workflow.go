package pipeline

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// startWorkflow starts the run of a task whose data is a workflow. The task ends as soon as the run is stored: a run
// that waits holds no slot. Its result names the run, whose id is the task's.
func (p *Pipeline) startWorkflow(ctx context.Context, t task) (*schemas.Result, error) {
	res := &schemas.Result{Workspace: schemas.WorkspaceChange{Name: t.ref.Workspace}}
	if p.Queue.StartWorkflow == nil {
		res.Status = schemas.Blocked
		res.Error = &schemas.Error{Code: errcode.NotSupported, Message: "this worker does not start workflows"}
		return res, nil
	}
	run, err := p.Queue.StartWorkflow(ctx, t.job.Record, t.job.Task)
	if refused, ok := errors.AsType[*jobs.RefusedError](err); ok {
		res.Status = schemas.Blocked
		res.Error = &schemas.Error{Code: refused.Code, Message: refused.Message, Hint: refused.Hint}
		return res, nil
	}
	if err != nil {
		return nil, err
	}
	res.Status = schemas.Succeeded
	res.Result, err = json.Marshal(map[string]string{"workflow_run": run.RunID})
	return res, err
}
