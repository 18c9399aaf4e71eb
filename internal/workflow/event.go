package workflow

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// Place is an attempt of a step, or of one of its items. Item is -1 for a step without for_each.
type Place struct {
	Step    string
	Item    int
	Attempt int
}

// ID returns the place as a text, which is unique in the run.
func (p Place) ID() string { return fmt.Sprintf("%s/%d/%d", p.Step, p.Item, p.Attempt) }

// ParsePlace returns the place whose ID is id.
func ParsePlace(id string) (p Place, ok bool) {
	part := strings.Split(id, "/")
	if len(part) != 3 {
		return p, false
	}
	p.Step = part[0]
	_, err := fmt.Sscanf(part[1]+" "+part[2], "%d %d", &p.Item, &p.Attempt)
	return p, err == nil && p.ID() == id
}

// Event is what happened to a run. At most one of its fields is set; if none is set, only time has passed.
type Event struct {
	Ended    *Ended
	Answered *Answered
	Occurred *Occurred
	Cancel   bool
	// ParentCancelled says that the step that started the run, which is not under finally, is cancelled. The event may
	// be applied repeatedly: unlike Cancel, it does not cancel the steps under finally.
	ParentCancelled bool
}

// Ended says that an attempt of a step has ended: its task or workflow has ended, or its event was published.
type Ended struct {
	Place      Place
	TaskID     string                 // of the attempt's task
	RunID      string                 // of the attempt's workflow
	Status     schemas.WorkflowStatus // succeeded, failed or cancelled
	Result     json.RawMessage
	Error      *schemas.WorkflowError
	Final      bool  // another attempt would fail in the same way
	Generation int64 // generation of the workspace; 0 if unknown
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
			m.accept(i, o.Place.Item, x, o.Data)
		}
	case ev.Cancel, ev.ParentCancelled && !m.run.Finishing:
		m.cancel()
	}
	return nil
}

func (m *machine) isEventWait(i int) bool {
	return m.steps[i].Wait != nil && m.steps[i].Wait.Event != nil
}

// applyEnd ends an attempt, and records the generations of the workspace before and after it. The end of an attempt
// that does not run changes nothing.
func (m *machine) applyEnd(e *Ended) {
	i, x := m.at(e.Place.Step, e.Place.Item)
	if x == nil || x.Status != schemas.WorkflowRunning || x.Attempt != e.Place.Attempt {
		return
	}
	if e.Place.Item < 0 {
		x.TaskID, x.RunID = e.TaskID, e.RunID
	}
	switch {
	case m.steps[i].Workflow != nil && e.Changed, e.Changed && e.Generation == 0:
		// Before stays: a workflow may have committed several generations, or the generation is unknown.
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
		m.end(i, x, schemas.WorkflowCancelled, failure)
		return
	}
	if e.Final || e.Status == schemas.WorkflowCancelled || x.Cancelled {
		m.giveUp(i, x, failure)
		return
	}
	m.fail(i, x, failure)
}

// cancel stops the run, and interrupts its steps. While the steps under finally run, it interrupts these.
func (m *machine) cancel() {
	if !m.run.Finishing {
		m.stop(schemas.WorkflowCancelled, runCancelled(), "")
	}
	m.interrupt(m.run.Finishing)
}

// runCancelled returns the error of a run that was cancelled.
func runCancelled() *schemas.WorkflowError {
	return &schemas.WorkflowError{Code: errcode.Cancelled, Message: "the run was cancelled"}
}

// interrupt cancels the attempts of the steps under finally, and those of these steps that have not begun; or else the
// attempts of all other steps.
func (m *machine) interrupt(finally bool) {
	m.each(func(i, _ int, x *schemas.StepRun) {
		switch {
		case m.steps[i].finally != finally:
		case x.Status == schemas.WorkflowRunning && !x.Cancelled:
			x.Cancelled, m.changed = true, true
		case x.Status == schemas.WorkflowWaiting,
			finally && x.Status == schemas.WorkflowPending:
			m.end(i, x, schemas.WorkflowCancelled, x.Error)
		}
	})
}
