package engine

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

// doAll carries out the effects of an advance. isNew says that the attempts have just been recorded; otherwise their
// effects may have been carried out before. For each effect whose attempt has ended already, doAll returns the end of
// the attempt.
func (e *Engine) doAll(
	ctx context.Context, run schemas.WorkflowRun, effects []workflow.Effect, isNew bool,
) (ends []workflow.Event, err error) {
	ended := make([]*workflow.Ended, len(effects))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, effect := range effects {
		group.Go(func() (err error) {
			ended[i], err = e.do(ctx, run, effect, isNew)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, end := range ended {
		if end != nil {
			ends = append(ends, workflow.Event{Ended: end})
		}
	}
	return ends, nil
}

// do carries out the effect of one attempt: it begins or cancels a task or a workflow, or publishes an event. It may be
// repeated. If the attempt has ended already, do returns its end.
func (e *Engine) do(
	ctx context.Context, run schemas.WorkflowRun, effect workflow.Effect, isNew bool,
) (end *workflow.Ended, err error) {
	defer e.contain(ctx, run.Tenant, run.RunID, &err)
	switch {
	case effect.Failed != nil:
		return &workflow.Ended{
			Place: effect.Place, Status: schemas.WorkflowFailed, Final: true, Error: effect.Failed,
		}, nil
	case effect.Task != nil:
		return e.doTask(ctx, run, effect, isNew)
	case effect.Workflow != nil:
		return e.doWorkflow(ctx, run, effect)
	default:
		return e.doEvent(ctx, run, effect)
	}
}

// doTask submits or cancels the task of a step.
func (e *Engine) doTask(
	ctx context.Context, run schemas.WorkflowRun, effect workflow.Effect, isNew bool,
) (*workflow.Ended, error) {
	ev, err := taskEvent(run, effect)
	if err != nil {
		return nil, err
	}
	var rec schemas.Record
	if effect.Cancel {
		rec, err = e.queue.Cancel(ctx, run.Tenant, attemptID(run, effect.Place))
		if errors.Is(err, jobs.ErrUnknownTask) { // the process that began the attempt may be about to submit it
			rec, err = e.queue.CancelEarly(ctx, run.Tenant, ev)
		}
	} else {
		err = jobs.ErrUnknownTask
		if !isNew { // a task that exists goes on, even if the queue would refuse it now
			rec, err = e.queue.Record(ctx, run.Tenant, attemptID(run, effect.Place))
		}
		if errors.Is(err, jobs.ErrUnknownTask) { // SubmitNew finds a task that another process has submitted meanwhile
			rec, err = e.queue.SubmitNew(ctx, run.Tenant, ev)
		}
		if errors.Is(err, jobs.ErrKeyReused) {
			err = nil // the task exists; a value of an expression, such as run.status, has changed since
		}
	}
	if refused, ok := errors.AsType[*jobs.RefusedError](err); ok {
		if effect.Cancel { // it cannot begin
			return &workflow.Ended{Place: effect.Place, Status: schemas.WorkflowCancelled}, nil
		}
		end := failed(effect.Place, refused)
		if refused.Code == errcode.Expired { // no process has submitted the task within the step's timeout
			end.Final, end.Error = false, stepTimeout()
		}
		return end, nil
	}
	if err != nil || !rec.Status.Terminal() {
		return nil, err
	}
	return endOfTask(effect.Place, rec), nil
}

// attemptID returns the id of the task or run that is an attempt of a step.
func attemptID(run schemas.WorkflowRun, place workflow.Place) string {
	return jobs.TaskID(run.Tenant, jobs.RunSource(run.RunID, run.Depth), place.ID())
}

// taskEvent returns the event that submits the task of a step. Equal arguments return equal events.
func taskEvent(run schemas.WorkflowRun, effect workflow.Effect) (event.Event, error) {
	ev := event.New()
	ev.SetID(effect.Place.ID())
	ev.SetSource(jobs.RunSource(run.RunID, run.Depth))
	ev.SetType(schemas.TypeTask)
	ev.SetExtension("workspace", run.Workspace)
	if run.Session != "" {
		ev.SetExtension("session", run.Session)
	}
	if run.Priority != "" {
		ev.SetExtension("priority", run.Priority)
	}
	if !effect.Expires.IsZero() {
		ev.SetExtension("expirytime", effect.Expires.UTC())
	}
	data, err := json.Marshal(effect.Task)
	if err != nil {
		return ev, err
	}
	return ev, ev.SetData(event.ApplicationJSON, json.RawMessage(data))
}

// failed returns the end of an attempt that could not begin.
func failed(place workflow.Place, refused *jobs.RefusedError) *workflow.Ended {
	return &workflow.Ended{
		Place: place, Status: schemas.WorkflowFailed, Final: true,
		Error: &schemas.WorkflowError{Code: refused.Code, Message: refused.Message},
	}
}

// stepTimeout returns the error of an attempt whose task has expired.
func stepTimeout() *schemas.WorkflowError {
	return &schemas.WorkflowError{Code: errcode.StepTimeout, Message: "the task did not end in time"}
}

// TaskEnded advances the run of a task that has ended. It is the hook Ended of jobs.
func (e *Engine) TaskEnded(ctx context.Context, rec schemas.Record) error {
	id, _, ok := jobs.WorkflowOf(rec)
	place, isPlace := workflow.ParsePlace(rec.EventID)
	if !ok || !isPlace {
		return nil // a caller has submitted the task under a CloudEvents source like those of runs
	}
	_, err := e.advance(ctx, rec.Tenant, id, workflow.Event{Ended: endOfTask(place, rec)})
	if errors.Is(err, jobs.ErrRunNotFound) {
		return nil
	}
	return err
}

// endOfTask returns the end of the attempt whose task has ended.
func endOfTask(place workflow.Place, rec schemas.Record) *workflow.Ended {
	end := &workflow.Ended{Place: place, TaskID: rec.TaskID, Status: schemas.WorkflowFailed}
	res := rec.Result
	if res == nil {
		res = &schemas.Result{}
	}
	end.Result, end.Generation = res.Result, res.Workspace.Generation
	end.Changed = len(res.Workspace.Changed) > 0
	switch rec.Status {
	case schemas.Succeeded:
		end.Status = schemas.WorkflowSucceeded
	case schemas.Cancelled:
		end.Status = schemas.WorkflowCancelled
	case schemas.Expired:
		end.Error = stepTimeout()
	case schemas.Blocked:
		end.Final = true
	default:
	}
	if end.Error == nil && res.Error != nil {
		end.Error = &schemas.WorkflowError{Code: res.Error.Code, Message: res.Error.Message}
	}
	if end.Error == nil && end.Status == schemas.WorkflowFailed {
		end.Error = &schemas.WorkflowError{Code: string(rec.Status), Message: "the task ended " + string(rec.Status)}
	}
	return end
}

// doWorkflow starts or cancels the workflow of a step.
func (e *Engine) doWorkflow(
	ctx context.Context, run schemas.WorkflowRun, effect workflow.Effect,
) (*workflow.Ended, error) {
	p := effect.Place
	from := origin{
		id: attemptID(run, p), depth: run.Depth, due: effect.Due, cancelled: effect.Cancel,
		parent: &schemas.WorkflowParent{RunID: run.RunID, Step: p.Step, Item: p.Item, Attempt: p.Attempt},
	}
	child, err := schemas.WorkflowRun{}, jobs.ErrRunNotFound
	if effect.Cancel {
		child, _, err = e.read(ctx, run.Tenant, from.id)
	}
	if errors.Is(err, jobs.ErrRunNotFound) { // to cancel it, too: another process may be about to start it
		child, err = e.start(ctx, run.Tenant, *effect.Workflow, from)
	}
	if effect.Cancel && err == nil && !child.Status.Ended() && child.Stopping != schemas.WorkflowCancelled {
		child, err = e.advance(ctx, run.Tenant, from.id, workflow.Event{
			Cancel: effect.Finally, ParentCancelled: !effect.Finally,
		})
	}
	if refused, ok := errors.AsType[*jobs.RefusedError](err); ok {
		if effect.Cancel {
			return &workflow.Ended{Place: effect.Place, Status: schemas.WorkflowCancelled}, nil
		}
		return failed(effect.Place, refused), nil
	}
	if err != nil || !child.Status.Ended() {
		return nil, err
	}
	return endOfRun(child), nil
}

// doEvent publishes the event of a step. If the attempt is cancelled, doEvent does not publish it; another process may
// have done so.
func (e *Engine) doEvent(
	ctx context.Context, run schemas.WorkflowRun, effect workflow.Effect,
) (*workflow.Ended, error) {
	if effect.Cancel {
		return &workflow.Ended{Place: effect.Place, Status: schemas.WorkflowCancelled}, nil
	}
	ev := event.New()
	ev.SetID(effect.Place.ID())
	ev.SetSource(jobs.RunSource(run.RunID, run.Depth))
	ev.SetType(effect.Event.Type)
	ev.SetSubject(effect.Event.Subject)
	ev.SetTime(e.Now(ctx))
	ev.SetExtension(jobs.ChainDepth, run.Depth)
	var err error
	if len(effect.Event.Data) > 0 {
		err = ev.SetData(event.ApplicationJSON, effect.Event.Data)
	}
	if err == nil {
		err = e.queue.PublishEvent(ctx, run.Tenant, ev)
	}
	if refused, ok := errors.AsType[*jobs.RefusedError](err); ok {
		return failed(effect.Place, refused), nil
	}
	if err != nil {
		return nil, err
	}
	return &workflow.Ended{Place: effect.Place, Status: schemas.WorkflowSucceeded}, nil
}
