package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

// advance applies an event to a run, and does what follows from it. If the event was applied before, it does again what
// followed from it, because the process that applied it may have been lost; but not after the end of the run, once all
// that followed from that is done. After an error advance may be called again.
func (e *Engine) advance(
	ctx context.Context, tenant, id string, ev workflow.Event,
) (run schemas.WorkflowRun, err error) {
	defer e.contain(ctx, tenant, id, &err)
	plan, err := e.plan(ctx, tenant, id)
	if err != nil {
		return run, err
	}
	load := e.load(ctx, tenant, id, map[string]json.RawMessage{})
	a, err := e.apply(ctx, plan, tenant, id, ev, load)
	if err != nil {
		return a.after, err
	}
	return e.follow(ctx, plan, a, load)
}

// follow does what follows from an applied event: it carries out the effects, and retains versions. If an effect has
// ended already, follow applies its end, and does what follows from that.
func (e *Engine) follow(
	ctx context.Context, plan *workflow.Plan, a applied, load workflow.Load,
) (run schemas.WorkflowRun, err error) {
	var queue []workflow.Event
	narrow := false
	for {
		if a.settled {
			e.forgetPlan(a.after)
			return a.after, nil
		}
		run, narrow = a.after, narrow || a.narrow
		effects, err := effectsOf(ctx, plan, a, load)
		if err != nil {
			return run, err
		}
		var ends []workflow.Event
		var both errgroup.Group
		both.Go(func() (err error) {
			defer e.contain(ctx, run.Tenant, run.RunID, &err)
			return e.retainVersions(ctx, a)
		})
		both.Go(func() (err error) {
			ends, err = e.doAll(ctx, run, effects, a.changed)
			return err
		})
		if err := both.Wait(); err != nil {
			return run, err
		}
		if queue = append(queue, ends...); len(queue) == 0 || run.Status.Ended() {
			break
		}
		if a, err = e.apply(ctx, plan, run.Tenant, run.RunID, queue[0], load); err != nil {
			return run, err
		}
		queue = queue[1:]
	}
	if run.Status.Ended() {
		err = e.finish(ctx, run)
	}
	if err == nil && narrow {
		err = e.setAlarm(ctx, plan, run, a.rev)
	}
	return run, err
}

// effectsOf returns what an applied event makes attempts begin or cancel. An event that ends the run cancels what still
// runs, also if it was applied earlier.
func effectsOf(
	ctx context.Context, plan *workflow.Plan, a applied, load workflow.Load,
) ([]workflow.Effect, error) {
	if a.after.Status.Ended() {
		before := a.before
		if !a.changed {
			before = resumed(a.after)
		}
		return plan.Effects(ctx, interrupted(before, a.after), func(workflow.Place) bool { return true }, load)
	}
	begun := map[workflow.Place]bool{}
	if a.changed { // else everything that runs is begun again
		begun = running(a.before)
	}
	return plan.Effects(ctx, a.after, func(p workflow.Place) bool { return begun[p] }, load)
}

// interrupted returns the record of a run before it ended, in which those running attempts are cancelled that the
// run's end cancelled: at the deadline of the steps under finally, or because the record was too large.
func interrupted(before, after schemas.WorkflowRun) schemas.WorkflowRun {
	before.Steps = slices.Clone(before.Steps)
	for i := range before.Steps {
		s, end := &before.Steps[i], after.Steps[i]
		s.Cancelled = end.Status == schemas.WorkflowCancelled
		s.Items = slices.Clone(s.Items)
		for k := range s.Items {
			s.Items[k].Cancelled = end.Items[k].Status == schemas.WorkflowCancelled
		}
	}
	return before
}

// resumed returns the record of a run in which the attempts that were cancelled run.
func resumed(run schemas.WorkflowRun) schemas.WorkflowRun {
	return eachAttempt(run, func(x *schemas.StepRun) {
		if x.Status == schemas.WorkflowCancelled && x.Attempt > 0 {
			x.Status = schemas.WorkflowRunning
		}
	})
}

// eachAttempt returns a copy of a run in which fn has changed the steps and the items of loops.
func eachAttempt(run schemas.WorkflowRun, fn func(*schemas.StepRun)) schemas.WorkflowRun {
	run.Steps = slices.Clone(run.Steps)
	for i := range run.Steps {
		s := &run.Steps[i]
		fn(s)
		s.Items = slices.Clone(s.Items)
		for k := range s.Items {
			fn(&s.Items[k])
		}
	}
	return run
}

// running returns the places of a run whose attempts run. The value is false for an attempt that is being cancelled.
func running(run schemas.WorkflowRun) map[workflow.Place]bool {
	out := map[workflow.Place]bool{}
	for _, s := range run.Steps {
		if s.Status == schemas.WorkflowRunning && s.Items == nil {
			out[workflow.Place{Step: s.ID, Item: -1, Attempt: s.Attempt}] = !s.Cancelled
		}
		for i, item := range s.Items {
			if item.Status == schemas.WorkflowRunning {
				out[workflow.Place{Step: s.ID, Item: i, Attempt: item.Attempt}] = !item.Cancelled
			}
		}
	}
	return out
}

// applied is an event that was applied to the record of a run. If changed is false, it was applied earlier.
type applied struct {
	before, after schemas.WorkflowRun
	rev           uint64 // revision of the record
	changed       bool
	settled       bool // the run has ended, and nothing follows from the event
	narrow        bool // the alarm may ring less often once what follows from the event has begun
}

// apply applies an event to the record of a run by compare-and-swap.
func (e *Engine) apply(
	ctx context.Context, plan *workflow.Plan, tenant, id string, ev workflow.Event, load workflow.Load,
) (a applied, err error) {
	for range swapTries {
		if a.before, a.rev, err = e.read(ctx, tenant, id); err != nil {
			return a, err
		}
		change, err := plan.Advance(ctx, a.before, ev, e.Now(ctx), load)
		if err != nil {
			a.after = a.before
			return a, err
		}
		if !change.Changed {
			a.after, a.narrow = change.Run, true
			if a.after.Status.Ended() {
				a.settled, err = e.settled(ctx, a.after, ev)
			}
			return a, err
		}
		old := alarmOf(plan, a.before)
		wide := old.or(alarmOf(plan, change.Run))
		if wide != old {
			if err := e.widenAlarm(ctx, change.Run, wide, a.rev); err != nil {
				return a, err
			}
		}
		a.after, a.rev, err = e.write(ctx, a.before, change, a.rev)
		if errors.Is(err, jobs.ErrRunConflict) {
			_ = clock.Sleep(ctx, rand.N(swapDelay)) //nolint:gosec // spreads processes; the loop ends with ctx
			continue
		}
		a.changed, a.narrow = true, wide != alarmOf(plan, a.after)
		return a, err
	}
	return a, fmt.Errorf("advance workflow run %s: other processes changed it first, %d times", id, swapTries)
}

// settled reports whether nothing follows from an event that came after the end of a run. The alarm of the run is
// removed when all that follows from the end is done; until then, the alarm and most events repeat it. The end of an
// attempt that the end of the run has cancelled does not: otherwise the ends of many attempts would cost their square.
func (e *Engine) settled(ctx context.Context, run schemas.WorkflowRun, ev workflow.Event) (bool, error) {
	if ev.Ended != nil && ev.Ended.Status == schemas.WorkflowCancelled {
		return true, nil
	}
	store, err := e.automations(ctx)
	if err == nil {
		_, err = store.Get(ctx, KindAlarm, run.Tenant, run.RunID)
	}
	if errors.Is(err, jobs.ErrAutomationNotFound) {
		return true, nil
	}
	return false, err
}

// write stores the values of a change, and then the record if it still has the revision. It returns the record and its
// new revision.
func (e *Engine) write(
	ctx context.Context, before schemas.WorkflowRun, change workflow.Change, rev uint64,
) (run schemas.WorkflowRun, next uint64, err error) {
	run = change.Run
	store, err := e.open(ctx)
	if err != nil {
		return run, 0, err
	}
	var puts errgroup.Group
	puts.SetLimit(atOnce)
	for key, value := range change.Values {
		puts.Go(func() error { return store.Put(ctx, run.Tenant, run.RunID, key, value) })
	}
	if err := puts.Wait(); err != nil {
		return run, 0, err
	}
	data, err := json.Marshal(run)
	if err == nil && len(data) > workflow.MaxRecord {
		run = tooLarge(before, len(data), e.Now(ctx))
		data, err = json.Marshal(run)
	}
	if err == nil {
		next, err = store.Swap(ctx, run.Tenant, run.RunID, data, rev)
	}
	return run, next, err
}

// tooLarge returns a run that ends because its record does not fit. The record of its end keeps the attempts that the
// end cancels, and is little larger than the record before.
func tooLarge(run schemas.WorkflowRun, size int, now time.Time) schemas.WorkflowRun {
	run = eachAttempt(run, func(x *schemas.StepRun) {
		switch {
		case x.Status.Ended():
		case x.ID == "": // an item
			*x = schemas.StepRun{Status: schemas.WorkflowCancelled, Attempt: x.Attempt}
		default:
			x.Status, x.EndedAt, x.Due, x.Message = schemas.WorkflowCancelled, now, time.Time{}, ""
		}
	})
	run.Status, run.EndedAt, run.Stopping = schemas.WorkflowFailed, now, ""
	run.Error = &schemas.WorkflowError{
		Code:    errcode.WorkflowTooLarge,
		Message: fmt.Sprintf("the record of the run would be %d bytes; the limit is %d", size, workflow.MaxRecord),
	}
	return run
}

// finish forgets the plan of a run that has ended, and tells the run's parent, if it has one.
func (e *Engine) finish(ctx context.Context, run schemas.WorkflowRun) error {
	e.forgetPlan(run)
	if run.Parent == nil {
		return nil
	}
	_, err := e.advance(ctx, run.Tenant, run.Parent.RunID, workflow.Event{Ended: endOfRun(run)})
	if errors.Is(err, jobs.ErrRunNotFound) {
		return nil
	}
	return err
}

// endOfRun returns the end of the step whose workflow has ended.
func endOfRun(run schemas.WorkflowRun) *workflow.Ended {
	p := run.Parent
	return &workflow.Ended{
		Place: workflow.Place{Step: p.Step, Item: p.Item, Attempt: p.Attempt},
		RunID: run.RunID, Status: run.Status, Result: run.Outputs, Error: run.Error, Generation: run.Generation,
		Changed: slices.ContainsFunc(run.Steps, func(s schemas.StepRun) bool {
			return s.After > 0 && !s.Kept ||
				slices.ContainsFunc(s.Items, func(x schemas.StepRun) bool { return x.After > 0 })
		}),
	}
}
