package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

const (
	maxMessage    = 500 // bytes of an error's message
	maxItemError  = 60  // of an item of a loop with more than manyItems
	manyItems     = 100
	maxAsked      = 4096 // bytes of what people are asked
	retryFactor   = 2
	maxRetryDelay = 24 * time.Hour
)

// Place is an attempt of a step, or of one of its items. Item is -1 for a step without for_each.
type Place struct {
	Step    string
	Item    int
	Attempt int
}

// ID returns the place in a text that is unique in its run.
func (p Place) ID() string { return fmt.Sprintf("%s/%d/%d", p.Step, p.Item, p.Attempt) }

// ParsePlace returns the place that ID describes.
func ParsePlace(id string) (p Place, ok bool) {
	part := strings.Split(id, "/")
	if len(part) != 3 {
		return p, false
	}
	p.Step = part[0]
	_, err := fmt.Sscanf(part[1]+" "+part[2], "%d %d", &p.Item, &p.Attempt)
	return p, err == nil && p.ID() == id
}

// Event is what happened to a run. At most one of its fields is set; none means that time has passed.
type Event struct {
	Ended    *Ended
	Answered *Answered
	Occurred *Occurred
	Cancel   bool
}

// Ended says that what an attempt of a step began has ended: its task, its workflow, or the publication of its event.
type Ended struct {
	Place      Place
	TaskID     string
	Status     schemas.WorkflowStatus // succeeded, failed or cancelled
	Result     json.RawMessage
	Error      *schemas.WorkflowError
	Final      bool  // another attempt would fail in the same way
	Generation int64 // of the workspace, 0 if unknown
	Changed    bool  // the task has committed the generation
}

// Answered is the answer to a step that asks.
type Answered struct {
	Step   string
	Item   int
	Values json.RawMessage
}

// Occurred is an event for which a step waits: Place waits, and Data is the event's data.
type Occurred struct {
	Place Place
	Data  json.RawMessage
}

// Change is the outcome of Advance.
type Change struct {
	Run     schemas.WorkflowRun
	Values  map[string]json.RawMessage // to store before the record
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

// machine is one call of Advance, or of a method that reads a run. Only Advance sets now.
type machine struct {
	*Plan
	run     *schemas.WorkflowRun
	now     time.Time
	load    Load
	values  map[string]json.RawMessage
	changed bool
	failed  error // of load
}

func (p *Plan) machine(run *schemas.WorkflowRun, load Load) *machine {
	return &machine{Plan: p, run: run, load: load, values: map[string]json.RawMessage{}}
}

// Advance applies an event to a run, and begins all steps that can begin. It does not change its argument. An event
// that has been applied already, or that comes too late, changes nothing. The error is one of load, or an
// *AnswerError.
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
	if m.failed != nil {
		return Change{}, m.failed
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

// at returns the state of a place, whatever its attempt, or nil.
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

func (m *machine) apply(ev Event) error {
	switch {
	case ev.Ended != nil:
		m.applyEnd(ev.Ended)
	case ev.Answered != nil:
		return m.applyAnswer(ev.Answered)
	case ev.Occurred != nil:
		o := ev.Occurred
		i, x := m.at(o.Place.Step, o.Place.Item)
		if x != nil && x.Status == schemas.WorkflowWaiting && x.Attempt == o.Place.Attempt && m.isEventWait(i) {
			m.succeed(i, o.Place.Item, x, o.Data)
		}
	case ev.Cancel:
		m.cancel()
	}
	return nil
}

func (m *machine) isEventWait(i int) bool {
	return m.steps[i].Wait != nil && m.steps[i].Wait.Event != nil
}

func (m *machine) applyEnd(e *Ended) {
	i, x := m.at(e.Place.Step, e.Place.Item)
	if x == nil || x.Status != schemas.WorkflowRunning || x.Attempt != e.Place.Attempt {
		return
	}
	if e.TaskID != "" && e.Place.Item < 0 {
		x.TaskID = e.TaskID
	}
	switch {
	case m.steps[i].Workflow != nil && e.Changed, e.Changed && e.Generation == 0:
		x.After = e.Generation
	case e.Changed:
		x.Before, x.After = e.Generation-1, e.Generation
	case e.Generation > 0:
		x.Before = e.Generation
	}
	m.run.Generation = max(m.run.Generation, e.Generation)
	if e.Status == schemas.WorkflowSucceeded {
		m.succeed(i, e.Place.Item, x, e.Result)
		return
	}
	failure := e.Error
	if failure == nil {
		failure = &schemas.WorkflowError{Code: errcode.Cancelled, Message: "it was cancelled"}
	}
	if e.Status == schemas.WorkflowCancelled && x.Cancelled {
		m.end(x, schemas.WorkflowCancelled, failure)
		return
	}
	if len(m.run.Steps[i].Items) > manyItems {
		failure = &schemas.WorkflowError{Code: failure.Code, Message: text.Truncate(failure.Message, maxItemError)}
	}
	if e.Final || e.Status == schemas.WorkflowCancelled {
		m.giveUp(i, x, failure)
		return
	}
	m.fail(i, x, failure)
}

// end ends a step or an item.
func (m *machine) end(x *schemas.StepRun, status schemas.WorkflowStatus, err *schemas.WorkflowError) {
	m.changed = true
	x.Status, x.EndedAt, x.Due = status, m.now, time.Time{}
	if x.Error = nil; err != nil {
		x.Error = &schemas.WorkflowError{Code: err.Code, Message: text.Truncate(err.Message, maxMessage)}
	}
}

func (m *machine) succeed(i, item int, x *schemas.StepRun, result json.RawMessage) {
	m.end(x, schemas.WorkflowSucceeded, nil)
	m.keep(ResultKey(m.steps[i].ID, item), x, result)
}

// fail ends an attempt that failed. The step may be tried again.
func (m *machine) fail(i int, x *schemas.StepRun, err *schemas.WorkflowError) {
	s := m.steps[i]
	if s.Retry != nil && x.Attempt < s.Retry.Attempts && m.mayBegin(s) {
		factor := s.Retry.Factor
		if factor == 0 {
			factor = retryFactor
		}
		delay := float64(s.delay) * math.Pow(factor, float64(x.Attempt-1))
		m.end(x, schemas.WorkflowWaiting, err)
		x.EndedAt, x.Due = time.Time{}, m.now.Add(time.Duration(min(delay, float64(maxRetryDelay))))
		return
	}
	m.giveUp(i, x, err)
}

// giveUp ends a step or an item that failed and is not tried again.
func (m *machine) giveUp(i int, x *schemas.StepRun, err *schemas.WorkflowError) {
	m.end(x, schemas.WorkflowFailed, err)
	if s := m.steps[i]; x == &m.run.Steps[i] && s.OnError != schemas.OnErrorContinue {
		m.stop(schemas.WorkflowFailed, err, s.ID)
	}
}

// mayBegin reports whether attempts of a step may begin now.
func (m *machine) mayBegin(s *step) bool {
	if s.finally {
		return m.run.Finishing && m.now.Before(m.overdue())
	}
	return m.run.Stopping == "" && !m.run.Finishing
}

// overdue is when the steps of finally are given up.
func (m *machine) overdue() time.Time { return m.run.Deadline.Add(finallyTime) }

// stop ends the run after what is going on has ended. Nothing new begins but the steps of finally.
func (m *machine) stop(status schemas.WorkflowStatus, err *schemas.WorkflowError, step string) {
	m.changed = true
	if m.run.Stopping == "" {
		m.run.Stopping = status
		message := text.Truncate(err.Message, maxMessage)
		m.run.Error = &schemas.WorkflowError{Code: err.Code, Message: message, Step: step}
	}
	m.each(func(i, _ int, x *schemas.StepRun) {
		if x.Status == schemas.WorkflowWaiting && !m.steps[i].finally {
			m.end(x, schemas.WorkflowCancelled, x.Error)
		}
	})
}

// each calls fn with each step that is not a loop, and with each item.
func (m *machine) each(fn func(i, item int, x *schemas.StepRun)) {
	for i := range m.run.Steps {
		s := &m.run.Steps[i]
		if m.steps[i].ForEach == nil {
			fn(i, -1, s)
			continue
		}
		for k := range s.Items {
			fn(i, k, &s.Items[k])
		}
	}
}

// cancel stops the run, with what runs. A second cancel also stops the steps of finally.
func (m *machine) cancel() {
	if !m.run.Finishing {
		m.stop(schemas.WorkflowCancelled, &schemas.WorkflowError{
			Code: errcode.Cancelled, Message: "the run was cancelled",
		}, "")
	}
	m.interrupt(m.run.Finishing)
}

// interrupt cancels what runs.
func (m *machine) interrupt(finally bool) {
	m.each(func(i, _ int, x *schemas.StepRun) {
		switch {
		case m.steps[i].finally != finally:
		case x.Status == schemas.WorkflowRunning && !x.Cancelled:
			x.Cancelled, m.changed = true, true
		case x.Status == schemas.WorkflowWaiting,
			finally && m.run.Finishing && x.Status == schemas.WorkflowPending:
			m.end(x, schemas.WorkflowCancelled, x.Error)
		}
	})
}

// tick does what is due.
func (m *machine) tick(ctx context.Context) {
	if !m.now.Before(m.run.Deadline) && !m.run.Finishing && m.run.Stopping != schemas.WorkflowCancelled {
		m.stop(schemas.WorkflowFailed, &schemas.WorkflowError{
			Code: errcode.WorkflowTimeout, Message: "the time of the run has passed",
		}, "")
		m.interrupt(false)
	}
	if !m.now.Before(m.overdue()) {
		m.each(func(_, _ int, x *schemas.StepRun) {
			if !x.Status.Ended() {
				m.end(x, schemas.WorkflowCancelled, x.Error)
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
				Code: errcode.StepTimeout, Message: "nothing came within " + s.Timeout,
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
		case m.failed != nil:
			return false
		case x.Status == schemas.WorkflowPending && s.finally == m.run.Finishing && m.mayBegin(s) && m.ready(i):
			m.open(ctx, i)
			progress = true
		case x.Status == schemas.WorkflowRunning && s.ForEach != nil:
			progress = m.loop(ctx, i) || progress
		}
	}
	return m.phase() || progress
}

// phase begins the steps of finally after all others have ended.
func (m *machine) phase() bool {
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
			m.end(x, schemas.WorkflowSkipped, nil)
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

// open begins a step, or skips it: if its condition is false, or if all steps that it needs were skipped and it has no
// condition.
func (m *machine) open(ctx context.Context, i int) {
	x := &m.run.Steps[i]
	m.changed = true
	skip, err := m.skips(ctx, i)
	switch {
	case err != nil:
		m.giveUp(i, x, expressionError("when", err))
	case skip:
		m.end(x, schemas.WorkflowSkipped, nil)
	case m.steps[i].ForEach != nil:
		m.openLoop(ctx, i)
	default:
		m.begin(ctx, i, -1, x)
	}
}

func (m *machine) skips(ctx context.Context, i int) (bool, error) {
	s := m.steps[i]
	if s.when == nil {
		return len(s.needs) > 0 && !slices.ContainsFunc(s.needs, func(j int) bool {
			return m.run.Steps[j].Status != schemas.WorkflowSkipped
		}), nil
	}
	value, err := m.value(ctx, s.when, site{i, -1})
	if err == nil && string(value) != "true" && string(value) != "false" {
		err = errors.New("it is neither true nor false")
	}
	return string(value) == "false", err
}

// begin begins an attempt of a step or an item.
func (m *machine) begin(ctx context.Context, i, item int, x *schemas.StepRun) {
	s := m.steps[i]
	m.changed = true
	x.Attempt++
	x.Status, x.EndedAt, x.Due, x.Error = schemas.WorkflowRunning, time.Time{}, time.Time{}, nil
	x.TaskID = ""
	if x.StartedAt.IsZero() {
		x.StartedAt, x.Before = m.now, m.run.Generation
	}
	if s.timeout > 0 {
		x.Due = m.now.Add(s.timeout)
	}
	in := site{i, item}
	var err error
	switch {
	case s.Wait != nil:
		x.Status = schemas.WorkflowWaiting
		switch {
		case s.Wait.For != "":
			x.Due = m.now.Add(s.delay)
		case s.until != nil:
			x.Due, err = m.until(ctx, s, in)
		}
	case s.Ask != nil:
		x.Status = schemas.WorkflowWaiting
		var value json.RawMessage
		if value, err = m.fill(ctx, s.words, in); err == nil {
			x.Message, err = textOf(value)
			x.Message = text.Truncate(cmp.Or(x.Message, "please fill in the form"), maxAsked)
		}
	default: // the values are computed again when they are sent
		_, err = m.input(ctx, s, in)
	}
	if err != nil {
		m.giveUp(i, x, expressionError(s.kind(), err))
	}
}

func (m *machine) until(ctx context.Context, s *step, in site) (time.Time, error) {
	value, err := m.fill(ctx, s.until, in)
	if err != nil {
		return time.Time{}, err
	}
	written, err := textOf(value)
	if err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, written)
	if err == nil && at.After(m.now.Add(MaxTime)) {
		err = errors.New("the time is more than 30 days ahead")
	}
	return at.UTC(), err
}

// input is what an attempt sends: its words and its inputs.
type input struct {
	words string
	with  json.RawMessage
}

func (m *machine) input(ctx context.Context, s *step, in site) (out input, err error) {
	if s.words != nil {
		value, err := m.fill(ctx, s.words, in)
		if err == nil {
			out.words, err = textOf(value)
		}
		if err != nil {
			return out, err
		}
	}
	if s.with != nil {
		out.with, err = m.fill(ctx, s.with, in)
	}
	if err == nil && s.sub != nil {
		out.with, err = s.sub.Inputs(out.with)
	}
	return out, err
}

func (s *step) kind() string {
	switch {
	case s.Code != "":
		return "code"
	case s.Task != "":
		return "task"
	case s.Skill != "":
		return "skill"
	case s.Tool != "":
		return "tool"
	case s.Workflow != nil:
		return "workflow"
	case s.Wait != nil:
		return "wait"
	case s.Ask != nil:
		return "ask"
	}
	return "emit"
}

// finish ends the run after its last step, and sets its status.
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
		} else if err := m.outputsOf(ctx); err != nil {
			status, m.run.Error = schemas.WorkflowFailed, err
		}
		m.run.EndedAt, m.run.Stopping = m.now, ""
	}
	if m.run.Status != status {
		m.run.Status, m.changed = status, true
	}
}
