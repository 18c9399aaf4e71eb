package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/expression"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

const (
	inlineValue   = 512      // bytes of a result that stays in the record
	inlineAll     = 32 << 10 // bytes of all such results
	maxMessage    = 500      // bytes of an error's message
	maxItemError  = 60       // of an item of a loop with more than manyItems
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

// Load returns a value that is kept apart from a run's record, by its key.
type Load func(key string) (json.RawMessage, error)

// InputsKey is the key of the inputs, which are kept apart from the record.
const InputsKey = "inputs"

// ResultKey returns the key of the result of a step, or of one of its items.
func ResultKey(step string, item int) string {
	if item < 0 {
		return "result." + step
	}
	return fmt.Sprintf("result.%s.%d", step, item)
}

func itemsKey(step string) string { return "items." + step }

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

// machine is one call of Advance.
type machine struct {
	*Plan
	run     *schemas.WorkflowRun
	now     time.Time
	load    Load
	values  map[string]json.RawMessage
	changed bool
	failed  error // of load
}

// Advance applies an event to a run, and begins all steps that can begin. It does not change its argument. An event
// that has been applied already, or that comes too late, changes nothing. The error is one of load, or an
// *AnswerError.
func (p *Plan) Advance(
	ctx context.Context, run schemas.WorkflowRun, ev Event, now time.Time, load Load,
) (Change, error) {
	next := clone(run)
	m := &machine{Plan: p, run: &next, now: now.UTC(), load: load, values: map[string]json.RawMessage{}}
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
	for m.settle(ctx) {
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
	m.fail(i, x, failure, e.Final || e.Status == schemas.WorkflowCancelled)
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

// keep stores a result: in the record if it is small, or else apart. A result that is too large is not kept.
func (m *machine) keep(key string, x *schemas.StepRun, result json.RawMessage) {
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	x.Result, x.ResultBytes = nil, 0
	switch {
	case len(result) <= inlineValue && m.inline()+len(result) <= inlineAll:
		x.Result = slices.Clone(result)
	case len(result) <= MaxValue:
		x.ResultBytes = len(result)
		m.values[key] = result
	default:
		x.ResultBytes = len(result)
	}
}

func (m *machine) inline() (n int) {
	for _, s := range m.run.Steps {
		n += len(s.Result)
		for _, item := range s.Items {
			n += len(item.Result)
		}
	}
	return n
}

// fail ends an attempt that failed. Unless final is set, the step may be tried again.
func (m *machine) fail(i int, x *schemas.StepRun, err *schemas.WorkflowError, final bool) {
	s := m.steps[i]
	if !final && s.Retry != nil && x.Attempt < s.Retry.Attempts && m.mayBegin(s) {
		factor := s.Retry.Factor
		if factor == 0 {
			factor = retryFactor
		}
		delay := float64(s.delay) * math.Pow(factor, float64(x.Attempt-1))
		m.end(x, schemas.WorkflowWaiting, err)
		x.EndedAt, x.Due = time.Time{}, m.now.Add(time.Duration(min(delay, float64(maxRetryDelay))))
		return
	}
	m.end(x, schemas.WorkflowFailed, err)
	if x == &m.run.Steps[i] && s.OnError != schemas.OnErrorContinue {
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
			m.fail(i, x, &schemas.WorkflowError{
				Code: errcode.StepTimeout, Message: "nothing came within " + s.Timeout,
			}, true)
		default:
			m.begin(ctx, i, item, x)
		}
	})
}

// settle begins what can begin, and ends the loops whose items have ended. It reports whether it did something.
func (m *machine) settle(ctx context.Context) (progress bool) {
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
	s, x := m.steps[i], &m.run.Steps[i]
	m.changed = true
	if s.when != nil {
		value, err := m.value(ctx, s.when, m.scope(i, -1))
		switch {
		case err != nil:
			m.fail(i, x, m.expressionError("when", err), true)
			return
		case string(value) == "false":
			m.end(x, schemas.WorkflowSkipped, nil)
			return
		case string(value) != "true":
			m.fail(i, x, m.expressionError("when", errors.New("it is neither true nor false")), true)
			return
		}
	} else if len(s.needs) > 0 && !slices.ContainsFunc(s.needs, func(j int) bool {
		return m.run.Steps[j].Status != schemas.WorkflowSkipped
	}) {
		m.end(x, schemas.WorkflowSkipped, nil)
		return
	}
	if s.ForEach == nil {
		m.begin(ctx, i, -1, x)
		return
	}
	items, err := m.items(ctx, i)
	if err != nil {
		m.fail(i, x, m.expressionError("for_each", err), true)
		return
	}
	x.Status, x.StartedAt, x.Before = schemas.WorkflowRunning, m.now, m.run.Generation
	x.Items = make([]schemas.StepRun, len(items))
	for k := range x.Items {
		x.Items[k].Status = schemas.WorkflowPending
	}
}

// items returns the list of a loop, and keeps it.
func (m *machine) items(ctx context.Context, i int) (items []json.RawMessage, err error) {
	s := m.steps[i]
	if s.list != nil {
		value, err := m.value(ctx, s.list, m.scope(i, -1))
		if err != nil {
			return nil, err
		}
		if string(value) == "null" || json.Unmarshal(value, &items) != nil {
			return nil, errors.New("the value is not a list: " + text.Truncate(string(value), 100))
		}
		if len(items) > s.ForEach.Max {
			return nil, fmt.Errorf("the list has %d items, more than max, which is %d", len(items), s.ForEach.Max)
		}
	}
	for _, t := range s.items {
		value, err := m.fill(ctx, t, m.scope(i, -1))
		if err != nil {
			return nil, err
		}
		items = append(items, value)
	}
	total := len(m.run.Steps) + len(items)
	for _, other := range m.run.Steps {
		total += len(other.Items)
	}
	if total > maxInstances {
		return nil, fmt.Errorf("the run would have %d steps and items; the limit is %d", total, maxInstances)
	}
	if items == nil {
		items = []json.RawMessage{}
	}
	list, err := json.Marshal(items)
	if err == nil && len(list) > MaxValue {
		err = errTooLarge
	}
	m.values[itemsKey(s.ID)] = list
	return items, err
}

// loop begins items of a loop, as many at once as it allows, and ends it.
func (m *machine) loop(ctx context.Context, i int) (progress bool) {
	s, x := m.steps[i], &m.run.Steps[i]
	going, failed := 0, -1
	for k, item := range x.Items {
		switch {
		case item.Status == schemas.WorkflowFailed && failed < 0:
			failed = k
		case item.Status == schemas.WorkflowRunning || item.Status == schemas.WorkflowWaiting:
			going++
		}
	}
	more := m.mayBegin(s) && (failed < 0 || s.OnError == schemas.OnErrorContinue)
	pending := false
	for k := range x.Items {
		item := &x.Items[k]
		if item.Status != schemas.WorkflowPending {
			continue
		}
		if !more {
			m.end(item, schemas.WorkflowSkipped, nil)
			continue
		}
		if going >= max(1, s.ForEach.Parallel) {
			pending = true
			continue
		}
		m.begin(ctx, i, k, item)
		progress = true
		if !item.Status.Ended() {
			going++
		}
	}
	if going > 0 || pending || progress {
		return progress
	}
	m.closeLoop(i, failed)
	return true
}

// closeLoop ends a loop with the list of its items' results.
func (m *machine) closeLoop(i, failed int) {
	s, x := m.steps[i], &m.run.Steps[i]
	list := make([]json.RawMessage, len(x.Items))
	size := 0
	cancelled := false
	for k, item := range x.Items {
		list[k] = json.RawMessage("null")
		cancelled = cancelled || item.Status == schemas.WorkflowCancelled
		if item.Status == schemas.WorkflowSucceeded && size <= MaxValue {
			value, err := m.result(s.ID, k, &x.Items[k])
			if err != nil && m.failed == nil {
				size = MaxValue + 1 // an item's result was too large
				continue
			}
			list[k] = value
			size += len(value)
		}
	}
	if size > MaxValue {
		x.ResultBytes = size
	}
	switch {
	case failed >= 0:
		e := x.Items[failed].Error
		m.fail(i, x, &schemas.WorkflowError{
			Code: e.Code, Message: fmt.Sprintf("item %d: %s", failed, e.Message),
		}, true)
	case cancelled:
		m.end(x, schemas.WorkflowCancelled, nil)
	default:
		m.end(x, schemas.WorkflowSucceeded, nil)
	}
	if size > MaxValue {
		return
	}
	value, err := json.Marshal(list)
	if err != nil {
		m.failed = err
		return
	}
	m.keep(ResultKey(s.ID, -1), x, value)
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
	in := m.scope(i, item)
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
		m.fail(i, x, m.expressionError(s.kind(), err), true)
	}
}

func (m *machine) until(ctx context.Context, s *step, in values) (time.Time, error) {
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

func (m *machine) input(ctx context.Context, s *step, in values) (out input, err error) {
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

func (m *machine) outputsOf(ctx context.Context) *schemas.WorkflowError {
	out := map[string]json.RawMessage{}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(m.outputs)) {
		value, err := m.fill(ctx, m.outputs[name], m.scope(-1, -1))
		if err == nil {
			err = checkType(m.Definition.Outputs[name].Type, value)
		}
		if size += len(value); err == nil && size > inlineAll {
			err = fmt.Errorf("the outputs exceed %d bytes: pass large data in a file of the workspace", inlineAll)
		}
		if err != nil {
			return m.expressionError("output "+name, err)
		}
		out[name] = value
	}
	data, err := json.Marshal(out)
	if err != nil {
		return m.expressionError("outputs", err)
	}
	m.run.Outputs = data
	return nil
}

func (m *machine) expressionError(where string, err error) *schemas.WorkflowError {
	if known, ok := errors.AsType[*schemas.WorkflowError](err); ok {
		return &schemas.WorkflowError{Code: known.Code, Message: where + ": " + known.Message}
	}
	return &schemas.WorkflowError{Code: errcode.ExpressionFailed, Message: where + ": " + text.OneLine(err.Error())}
}

// values is where an expression is evaluated: in an item of a step, in a step if item is -1, or in the outputs if step
// is -1.
type values struct{ step, item int }

func (m *machine) scope(step, item int) values { return values{step, item} }

func (m *machine) fill(ctx context.Context, t *template, in values) (json.RawMessage, error) {
	return t.evaluate(ctx, func(ctx context.Context, e *expression.Expression) (json.RawMessage, error) {
		return m.value(ctx, e, in)
	})
}

// value evaluates an expression.
func (m *machine) value(
	ctx context.Context, e *expression.Expression, in values,
) (json.RawMessage, error) {
	variables, err := m.variables(e, in)
	if err != nil {
		return nil, err
	}
	value, err := e.Value(ctx, variables)
	if err == nil && len(value) > MaxValue {
		err = errTooLarge
	}
	return value, err
}

// variables returns the values of the variables that an expression uses.
func (m *machine) variables(e *expression.Expression, in values) (map[string]any, error) {
	out := map[string]any{"run": m.runVariable()}
	if members, complete := e.Members("inputs"); len(members) > 0 || !complete {
		inputs, err := m.read(InputsKey)
		if err != nil {
			return nil, err
		}
		if out["inputs"], err = expression.Decode(inputs); err != nil {
			return nil, err
		}
	}
	steps := map[string]any{}
	used, _ := e.Members("steps")
	for id, members := range used {
		x := m.run.Steps[m.index[id]]
		v := map[string]any{"status": string(x.Status), "result": nil, "error": nil}
		if x.Error != nil {
			v["error"] = map[string]any{"code": x.Error.Code, "message": x.Error.Message}
		}
		if len(members) == 0 || slices.Contains(members, "result") {
			raw, err := m.result(id, -1, &x)
			if err == nil {
				v["result"], err = expression.Decode(raw)
			}
			if err != nil {
				return nil, err
			}
		}
		steps[id] = v
	}
	out["steps"] = steps
	if in.item < 0 {
		return out, nil
	}
	list, err := m.read(itemsKey(m.steps[in.step].ID))
	if err != nil {
		return nil, err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, err
	}
	out["index"] = int64(in.item)
	out["item"], err = expression.Decode(items[in.item])
	return out, err
}

func (m *machine) runVariable() map[string]any {
	status, failure := "running", any(nil)
	if m.run.Stopping != "" {
		status = string(m.run.Stopping)
	} else if m.run.Finishing {
		status = string(schemas.WorkflowSucceeded)
	}
	if e := m.run.Error; e != nil {
		failure = map[string]any{"code": e.Code, "message": e.Message, "step": e.Step}
	}
	return map[string]any{
		"id": m.run.RunID, "name": m.run.Name, "workspace": m.run.Workspace, "status": status, "error": failure,
	}
}

// result returns the result of a step or an item.
func (m *machine) result(id string, item int, x *schemas.StepRun) (json.RawMessage, error) {
	switch {
	case x.Result != nil:
		return x.Result, nil
	case x.ResultBytes == 0:
		return json.RawMessage("null"), nil
	case x.ResultBytes > MaxValue:
		return nil, &schemas.WorkflowError{
			Code: errcode.StepResultTooLarge,
			Message: fmt.Sprintf("the result of step %s is %d bytes, and a workflow passes on at most %d: "+
				"write large data into a file of the workspace", id, x.ResultBytes, MaxValue),
		}
	}
	return m.read(ResultKey(id, item))
}

// read returns a value that is kept apart.
func (m *machine) read(key string) (json.RawMessage, error) {
	if value, ok := m.values[key]; ok {
		return value, nil
	}
	value, err := m.load(key)
	if err != nil {
		m.failed = err
	}
	return value, err
}
