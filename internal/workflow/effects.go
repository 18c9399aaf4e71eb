package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/expression"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/tools/pygen"
	"github.com/codefleet/codefleet/schemas"
)

// Effect is what an attempt of a step begins. The same record of a run always has the same effects, and the
// place of an effect identifies what it begins. So an effect may be repeated. One of Task, Workflow, Event and Failed
// is set.
type Effect struct {
	Place    Place
	Expires  time.Time // when the task expires; zero if it does not
	Due      time.Time // by when the workflow must end
	Cancel   bool      // whether to cancel what the effect began
	Finally  bool      // whether the step is under finally
	Task     *schemas.Task
	Workflow *schemas.WorkflowRequest
	Event    *EmittedEvent
	Failed   *schemas.WorkflowError // why the attempt cannot begin: the run's values do not fit its record
}

// EmittedEvent is the event of a step that emits.
type EmittedEvent struct {
	Type, Subject string
	Data          json.RawMessage
}

// Effects returns the effects of the running attempts. It omits those for which skip returns true, unless they have
// to be cancelled.
func (p *Plan) Effects(
	ctx context.Context, run schemas.WorkflowRun, skip func(Place) bool, load Load,
) ([]Effect, error) {
	m := p.machine(&run, load)
	var out []Effect
	var failed error
	m.each(func(i, item int, x *schemas.StepRun) {
		if x.Status != schemas.WorkflowRunning || m.steps[i].Wait != nil || m.steps[i].Ask != nil || failed != nil ||
			!x.Cancelled && skip(Place{m.steps[i].ID, item, x.Attempt}) {
			return
		}
		var e Effect
		e, failed = m.effect(ctx, m.steps[i], item, x)
		out = append(out, e)
	})
	return out, failed
}

// effect returns the effect of an attempt of a step.
func (m *machine) effect(ctx context.Context, s *step, item int, x *schemas.StepRun) (Effect, error) {
	e := Effect{Place: Place{s.ID, item, x.Attempt}, Expires: x.Due, Cancel: x.Cancelled, Finally: s.finally}
	in, err := m.input(ctx, s, site{m.index[s.ID], item})
	if e.Cancel && m.loadErr == nil && !expression.Interrupted(err) {
		// The place says what to cancel. The inputs may no longer be valid, because run.status has changed.
		if err != nil {
			in, err = input{text: s.Task}, nil // a task that is cancelled before it is submitted needs a description
		}
	}
	if e.Failed, _ = errors.AsType[*schemas.WorkflowError](err); e.Failed != nil {
		return e, nil //nolint:nilerr // the effect has the error
	}
	if err != nil {
		return e, fmt.Errorf("step %s: %w", s.ID, err)
	}
	switch {
	case s.Workflow != nil:
		definition, err := json.Marshal(s.Workflow)
		e.Workflow = &schemas.WorkflowRequest{
			Workflow: definition, Inputs: in.with,
			Workspace: m.run.Workspace, Session: m.run.Session, Priority: m.run.Priority,
		}
		if e.Due = m.run.Deadline; s.finally {
			e.Due = m.finallyDeadline()
		}
		return e, err
	case s.Emit != nil:
		e.Event = &EmittedEvent{s.Emit.Type, s.Emit.Subject, in.with}
		return e, nil
	}
	e.Task = s.task(in)
	e.Task.Labels = map[string]string{"workflow": m.run.Name, "workflow_run": m.run.RunID, "workflow_step": s.ID}
	return e, nil
}

// task returns the task of a step.
func (s *step) task(in input) *schemas.Task {
	t := schemas.Task{}
	if s.Options != nil {
		t = *s.Options
	}
	t.Inputs = in.with
	switch {
	case s.Code != "":
		t.Code = s.Code
	case s.Task != "":
		t.Description = in.text
	case s.Skill != "":
		t.Skill = s.Skill
	default:
		server, tool, _ := strings.Cut(s.Tool, "/")
		t.Code = pygen.Program(server, tool)
	}
	return &t
}

// Running calls fn with each attempt that runs and is a task or a workflow. fn may change the attempt.
func (p *Plan) Running(run *schemas.WorkflowRun, fn func(place Place, isWorkflow bool, x *schemas.StepRun)) {
	p.machine(run, nil).each(func(i, item int, x *schemas.StepRun) {
		s := p.steps[i]
		if x.Status == schemas.WorkflowRunning && s.Wait == nil && s.Ask == nil && s.Emit == nil {
			fn(Place{s.ID, item, x.Attempt}, s.Workflow != nil, x)
		}
	})
}

// NextAlarm returns when a run goes on even if no event arrives: when a wait or a retry is due, or when the run, or its
// steps under finally, reach their deadline. It returns the zero time if the run has ended.
func NextAlarm(run schemas.WorkflowRun) time.Time {
	if run.Status.Ended() {
		return time.Time{}
	}
	next := run.Deadline
	if run.Finishing || run.Stopping == schemas.WorkflowCancelled {
		next = run.Deadline.Add(finallyTime)
	}
	consider := func(x schemas.StepRun) {
		if x.Status == schemas.WorkflowWaiting && !x.Due.IsZero() && x.Due.Before(next) {
			next = x.Due
		}
	}
	for _, s := range run.Steps {
		consider(s)
		for _, item := range s.Items {
			consider(item)
		}
	}
	return next
}

// Awaits returns the types of the events for which steps wait, which may be patterns.
func (p *Plan) Awaits(run schemas.WorkflowRun) (types []string) {
	m := p.machine(&run, nil)
	m.each(func(i, _ int, x *schemas.StepRun) {
		if x.Status == schemas.WorkflowWaiting && m.isEventWait(i) {
			types = append(types, m.steps[i].Wait.Event.Type)
		}
	})
	return types
}

// AwaitsType reports whether steps wait for events of a type.
func (p *Plan) AwaitsType(run schemas.WorkflowRun, eventType string) bool {
	return slices.ContainsFunc(p.Awaits(run), func(pattern string) bool {
		return names.MatchPattern(pattern, eventType)
	})
}

// Waiting returns the places that wait for this event: its type, its source and the step's filter match. attributes and
// data are the event's. rejected has an error for each filter that cannot be evaluated for the event; its step goes on
// waiting. err is an error of load, or says that a filter was interrupted.
func (p *Plan) Waiting(
	ctx context.Context, run schemas.WorkflowRun, attributes map[string]any, data json.RawMessage, load Load,
) (places []Place, rejected []error, err error) {
	m := p.machine(&run, load)
	m.each(func(i, item int, x *schemas.StepRun) {
		if x.Status != schemas.WorkflowWaiting || !m.isEventWait(i) || m.loadErr != nil {
			return
		}
		w := m.steps[i].Wait.Event
		eventType, _ := attributes["type"].(string)
		source, _ := attributes["source"].(string)
		if !names.MatchPattern(w.Type, eventType) || w.Source != "" && !names.MatchPattern(w.Source, source) {
			return
		}
		passes, err := m.holds(ctx, m.steps[i].filter, site{i, item}, attributes, data)
		switch {
		case expression.Interrupted(err):
			m.loadErr = fmt.Errorf("filter of step %s: %w", m.steps[i].ID, err)
		case err != nil:
			rejected = append(rejected, fmt.Errorf("filter of step %s: %w", m.steps[i].ID, err))
		case passes:
			places = append(places, Place{m.steps[i].ID, item, x.Attempt})
		}
	})
	return places, rejected, m.loadErr
}

// holds reports whether an event passes a filter. After an error it does not.
func (m *machine) holds(
	ctx context.Context, filter *expression.Expression, in site, attributes map[string]any, data json.RawMessage,
) (bool, error) {
	if filter == nil {
		return true, nil
	}
	variables, err := m.variables(filter, in)
	if err != nil {
		return false, err
	}
	variables["event"] = attributes
	if variables["data"], err = expression.Decode(data); err != nil {
		return false, err
	}
	value, err := filter.Value(ctx, variables)
	return string(value) == "true", err
}

// StepTask is a task of a step, with the fields that the definition determines.
type StepTask struct {
	Path string // the step's path in the definition
	Step string
	Task *schemas.Task
}

// StepTasks returns the tasks of all steps, so that they can be checked before a run begins.
func (p *Plan) StepTasks() []StepTask { return p.stepTasks("") }

// stepTasks is like StepTasks for a workflow at path in the definition.
func (p *Plan) stepTasks(path string) (list []StepTask) {
	for i, s := range p.steps {
		at := fmt.Sprint(path, "/steps/", i)
		if s.finally {
			at = fmt.Sprint(path, "/finally/", i-len(p.Definition.Steps))
		}
		switch {
		case s.sub != nil:
			list = append(list, s.sub.stepTasks(at+"/workflow")...)
		case s.Code+s.Task+s.Skill+s.Tool != "":
			const placeholder = "text" // for a description, which may depend on other steps
			list = append(list, StepTask{at, s.ID, s.task(input{text: placeholder})})
		}
	}
	return list
}
