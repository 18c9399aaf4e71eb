package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

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
		m.end(i, x, schemas.WorkflowSkipped, nil)
	case m.steps[i].ForEach != nil:
		m.openLoop(ctx, i)
	default:
		m.begin(ctx, i, -1, x)
	}
}

// skips reports whether step i is skipped: because its condition is false, or, without a condition, because all steps
// that it needs were skipped.
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
	x.TaskID, x.RunID = "", ""
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
		if value, err = m.fill(ctx, s.text, in); err == nil {
			x.Message, err = textOf(value)
			x.Message = text.Truncate(cmp.Or(x.Message, "please fill in the form"), maxAsked)
		}
	default: // evaluated only to find errors: Effects evaluates the values that are sent
		_, err = m.input(ctx, s, in)
	}
	if err != nil {
		m.giveUp(i, x, expressionError(s.kind(), err))
	}
}

// until returns the time until which a step waits. A past time becomes now: in UTC it could be before year 0, which
// JSON cannot express, or the zero time, which means never.
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
	if err != nil {
		err = fmt.Errorf("until is %q: want a time with its date and zone, such as 2026-01-02T15:04:05Z (RFC 3339)",
			text.Truncate(written, 40))
	}
	if err == nil && at.After(m.now.Add(MaxTime)) {
		err = errors.New("the time is more than 30 days ahead")
	}
	if at.Before(m.now) {
		at = m.now
	}
	return at.UTC(), err
}

// input is what an attempt sends: the description of a task, and the inputs.
type input struct {
	text string
	with json.RawMessage
}

// input evaluates the templates of a step: its text and its inputs.
func (m *machine) input(ctx context.Context, s *step, in site) (out input, err error) {
	if s.text != nil {
		value, err := m.fill(ctx, s.text, in)
		if err == nil {
			out.text, err = textOf(value)
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
