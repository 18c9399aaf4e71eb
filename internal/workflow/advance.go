package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

const (
	maxMessage    = 500 // most bytes of an error's message
	maxItemError  = 60  // most bytes of the error message of an item if the loop has more than manyItems items
	manyItems     = 100
	maxAsked      = 4096 // most bytes of what people are asked
	retryFactor   = 2
	maxRetryDelay = 24 * time.Hour
)

// Change is the outcome of Advance.
type Change struct {
	Run     schemas.WorkflowRun
	Values  map[string]json.RawMessage // values to store before the record
	Changed bool                       // the record differs from the one before
}

// New returns the record of a run before its first Advance.
func (p *Plan) New(run schemas.WorkflowRun, now time.Time) schemas.WorkflowRun {
	run.Name, run.Status, run.CreatedAt = p.Definition.Name, schemas.WorkflowRunning, now
	run.Deadline = now.Add(p.time)
	run.Steps = make([]schemas.StepRun, len(p.steps))
	for i, s := range p.steps {
		run.Steps[i] = schemas.StepRun{ID: s.ID, Status: schemas.WorkflowPending}
	}
	return run
}

// Cancelled returns a new run that was cancelled before its first step.
func (p *Plan) Cancelled(run schemas.WorkflowRun, now time.Time) schemas.WorkflowRun {
	run.Status, run.EndedAt, run.Error = schemas.WorkflowCancelled, now, runCancelled()
	for i := range run.Steps {
		run.Steps[i].Status = schemas.WorkflowCancelled
	}
	return run
}

// machine is the state machine of a run during one call of Advance, or of a method that reads the run. Only Advance
// sets now.
type machine struct {
	*Plan
	run     *schemas.WorkflowRun
	now     time.Time
	load    Load
	values  map[string]json.RawMessage
	changed bool
	loadErr error // the first error that load returned
}

func (p *Plan) machine(run *schemas.WorkflowRun, load Load) *machine {
	return &machine{Plan: p, run: run, load: load, values: map[string]json.RawMessage{}}
}

// Advance applies an event to a run, and begins all steps that can begin. It does not change the record run: the
// Change has the next one. An event that has been applied already, or that comes too late, changes nothing. The error
// is from load, or an *AnswerError.
func (p *Plan) Advance(
	ctx context.Context, run schemas.WorkflowRun, ev Event, now time.Time, load Load,
) (Change, error) {
	next := clone(run)
	m := p.machine(&next, load)
	m.now = now.UTC()
	if run.Status.Ended() {
		if ev.Answered != nil {
			return Change{}, &AnswerError{Code: errcode.NotWaiting, Message: "the run has ended"}
		}
		return Change{Run: next}, nil
	}
	if err := m.apply(ev); err != nil {
		return Change{}, err
	}
	m.tick(ctx)
	for m.proceed(ctx) {
	}
	m.finish(ctx)
	if m.loadErr != nil {
		return Change{}, m.loadErr
	}
	return Change{Run: next, Values: m.values, Changed: m.changed}, nil
}

func clone(run schemas.WorkflowRun) schemas.WorkflowRun {
	run.Steps = slices.Clone(run.Steps)
	for i := range run.Steps {
		run.Steps[i].Items = slices.Clone(run.Steps[i].Items)
	}
	return run
}

// at returns a step, or an item of a loop, with the index of the step. It returns nil if there is no such place.
func (m *machine) at(id string, item int) (int, *schemas.StepRun) {
	i, ok := m.index[id]
	if !ok || i >= len(m.run.Steps) {
		return 0, nil
	}
	s := &m.run.Steps[i]
	switch {
	case item < 0 && m.steps[i].ForEach == nil:
		return i, s
	case item >= 0 && item < len(s.Items):
		return i, &s.Items[item]
	}
	return 0, nil
}

// end ends step i, or an item of it.
func (m *machine) end(i int, x *schemas.StepRun, status schemas.WorkflowStatus, err *schemas.WorkflowError) {
	m.changed = true
	x.Status, x.EndedAt, x.Due = status, m.now, time.Time{}
	if x.Error = nil; err != nil {
		most := maxMessage
		if s := &m.run.Steps[i]; x != s && len(s.Items) > manyItems {
			most = maxItemError
		}
		x.Error = &schemas.WorkflowError{Code: err.Code, Message: text.Truncate(err.Message, most)}
	}
}

// succeed ends a step or an item with its result.
func (m *machine) succeed(i, item int, x *schemas.StepRun, result json.RawMessage) {
	m.end(i, x, schemas.WorkflowSucceeded, nil)
	m.keep(ResultKey(m.steps[i].ID, item), x, result)
}

// accept ends a step or an item with an answer or an event. Another process may do so at the same time with another
// one, so the result gets a key of its own.
func (m *machine) accept(i, item int, x *schemas.StepRun, result json.RawMessage) {
	m.succeed(i, item, x, result)
	x.ResultKey = m.own(ResultKey(m.steps[i].ID, item))
}

// fail ends an attempt that failed. If another attempt is permitted, the step waits for it; otherwise fail gives up.
func (m *machine) fail(i int, x *schemas.StepRun, err *schemas.WorkflowError) {
	s := m.steps[i]
	if s.Retry != nil && x.Attempt < s.Retry.Attempts && m.mayBegin(s) {
		delay := float64(s.delay) * math.Pow(cmp.Or(s.Retry.Factor, retryFactor), float64(x.Attempt-1))
		m.end(i, x, schemas.WorkflowWaiting, err)
		x.EndedAt, x.Due = time.Time{}, m.now.Add(time.Duration(min(delay, float64(maxRetryDelay))))
		return
	}
	m.giveUp(i, x, err)
}

// giveUp ends a step or an item that failed and is not tried again. If a step fails, this stops the run, unless the
// step's on_error is continue.
func (m *machine) giveUp(i int, x *schemas.StepRun, err *schemas.WorkflowError) {
	m.end(i, x, schemas.WorkflowFailed, err)
	if s := m.steps[i]; x == &m.run.Steps[i] && s.OnError != schemas.OnErrorContinue {
		m.stop(schemas.WorkflowFailed, err, s.ID)
	}
}

// mayBegin reports whether attempts of a step may begin now.
func (m *machine) mayBegin(s *step) bool {
	if s.finally {
		return m.run.Finishing && m.now.Before(m.finallyDeadline())
	}
	return m.run.Stopping == "" && !m.run.Finishing
}

// finallyDeadline is when the steps under finally are cancelled.
func (m *machine) finallyDeadline() time.Time { return m.run.Deadline.Add(finallyTime) }

// stop makes the run end with a status once its running attempts have ended. It cancels the steps that wait. From then
// on, only the steps under finally begin. If the run was stopped before, the first status and error count.
func (m *machine) stop(status schemas.WorkflowStatus, err *schemas.WorkflowError, step string) {
	if m.run.Stopping == "" {
		m.run.Stopping, m.changed = status, true
		message := text.Truncate(err.Message, maxMessage)
		m.run.Error = &schemas.WorkflowError{Code: err.Code, Message: message, Step: step}
	}
	m.each(func(i, _ int, x *schemas.StepRun) {
		if x.Status == schemas.WorkflowWaiting && !m.steps[i].finally {
			m.end(i, x, schemas.WorkflowCancelled, x.Error)
		}
	})
}

// each calls fn with each step that is not a loop or is a loop that has not begun, and with each item.
func (m *machine) each(fn func(i, item int, x *schemas.StepRun)) {
	for i := range m.run.Steps {
		s := &m.run.Steps[i]
		if m.steps[i].ForEach == nil || s.Status == schemas.WorkflowPending {
			fn(i, -1, s)
			continue
		}
		for k := range s.Items {
			fn(i, k, &s.Items[k])
		}
	}
}

// tick applies the time: the deadlines of the run, and the waits, retries and time limits of steps that are due.
func (m *machine) tick(ctx context.Context) {
	if !m.now.Before(m.run.Deadline) && !m.run.Finishing && m.run.Stopping != schemas.WorkflowCancelled {
		m.stop(schemas.WorkflowFailed, &schemas.WorkflowError{
			Code: errcode.WorkflowTimeout, Message: "the run exceeded its time limit",
		}, "")
		m.interrupt(false)
	}
	if !m.now.Before(m.finallyDeadline()) {
		m.each(func(i, _ int, x *schemas.StepRun) {
			if !x.Status.Ended() {
				m.end(i, x, schemas.WorkflowCancelled, x.Error)
			}
		})
	}
	m.each(func(i, item int, x *schemas.StepRun) {
		if x.Status != schemas.WorkflowWaiting || x.Due.IsZero() || m.now.Before(x.Due) {
			return
		}
		s := m.steps[i]
		switch {
		case s.Wait != nil && s.Wait.Event == nil:
			m.succeed(i, item, x, nil)
		case s.Wait != nil || s.Ask != nil:
			m.giveUp(i, x, &schemas.WorkflowError{
				Code: errcode.StepTimeout, Message: "no event or answer came within " + s.Timeout,
			})
		default:
			m.begin(ctx, i, item, x)
		}
	})
}

// proceed begins what can begin, and ends the loops whose items have ended. It reports whether it did something.
func (m *machine) proceed(ctx context.Context) (progress bool) {
	for i, s := range m.steps {
		x := &m.run.Steps[i]
		switch {
		case m.loadErr != nil:
			return false
		case x.Status == schemas.WorkflowPending && s.finally == m.run.Finishing && m.mayBegin(s) && m.ready(i):
			m.open(ctx, i)
			progress = true
		case x.Status == schemas.WorkflowRunning && s.ForEach != nil:
			progress = m.loop(ctx, i) || progress
		}
	}
	return m.startFinally() || progress
}

// startFinally lets the steps under finally begin after all others have ended. It reports whether it did.
func (m *machine) startFinally() bool {
	if m.run.Finishing {
		return false
	}
	for i, s := range m.steps {
		x := &m.run.Steps[i]
		if s.finally || x.Status.Ended() {
			continue
		}
		if x.Status != schemas.WorkflowPending || m.run.Stopping == "" {
			return false
		}
	}
	for i, s := range m.steps {
		if x := &m.run.Steps[i]; !s.finally && x.Status == schemas.WorkflowPending {
			m.end(i, x, schemas.WorkflowSkipped, nil)
		}
	}
	m.run.Finishing, m.changed = true, true
	return true
}

// ready reports whether the steps that a step needs have ended.
func (m *machine) ready(i int) bool {
	for _, j := range m.steps[i].needs {
		if !m.run.Steps[j].Status.Ended() {
			return false
		}
	}
	return true
}

// finish sets the status of the run. After the last step, it also sets the outputs and ends the run.
func (m *machine) finish(ctx context.Context) {
	status, over := schemas.WorkflowWaiting, m.run.Finishing
	m.each(func(_, _ int, x *schemas.StepRun) {
		if x.Status == schemas.WorkflowRunning {
			status = schemas.WorkflowRunning
		}
	})
	for i := range m.run.Steps {
		over = over && m.run.Steps[i].Status.Ended()
	}
	if over {
		status = schemas.WorkflowSucceeded
		if m.run.Stopping != "" {
			status = m.run.Stopping
		} else if err := m.setOutputs(ctx); err != nil {
			status, m.run.Error = schemas.WorkflowFailed, err
		}
		m.run.EndedAt, m.run.Stopping = m.now, ""
	}
	if m.run.Status != status {
		m.run.Status, m.changed = status, true
	}
}
