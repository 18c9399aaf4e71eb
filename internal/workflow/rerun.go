package workflow

import (
	"fmt"
	"math"
	"slices"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Rerun is what a new run inherits from an earlier one.
type Rerun struct {
	Steps      []schemas.StepRun // for the new run: steps that are kept, and pending ones
	Keep       []string          // keys of the values to copy
	Generation int64             // generation of the old run's workspace to begin with; 0 if it was empty or unknown
	Changed    bool              // the steps that are repeated have changed the workspace since that generation
	Forks      bool              // the new run needs a fork of the workspace: a repeated step is a task or a workflow
}

// RerunError says why a run cannot be repeated from a step.
type RerunError struct{ Code, Message string }

func (e *RerunError) Error() string { return e.Message }

// Rerun plans a run that repeats a step of an earlier run, and what depends on it. It keeps the results of the other
// steps that have succeeded, were skipped or failed without ending the run, unless they changed the workspace after the
// repeated step had begun, because the new run begins with the files with which that step began.
func (p *Plan) Rerun(old schemas.WorkflowRun, from string) (Rerun, error) {
	first, ok := p.index[from]
	if ok && p.steps[first].finally {
		return Rerun{}, &RerunError{errcode.UnknownStep, "the step " + from +
			" belongs to `finally`, whose steps always run: name an earlier step"}
	}
	if !ok {
		return Rerun{}, &RerunError{errcode.UnknownStep, "there is no step " + text.Truncate(from, 100) +
			p.suggestion(from)}
	}
	if !old.Status.Ended() {
		return Rerun{}, &RerunError{errcode.RunActive, "the run has not ended: it is " + string(old.Status)}
	}
	if old.Steps[first].StartedAt.IsZero() {
		return Rerun{}, &RerunError{errcode.UnknownStep, "the step " + from + " has not begun in that run"}
	}
	if old.Steps[first].Kept && slices.ContainsFunc(old.Steps, func(x schemas.StepRun) bool {
		return x.Kept && x.After > 0
	}) {
		return Rerun{}, &RerunError{errcode.UnknownStep, fmt.Sprintf("this run kept the result of the step %[1]s from "+
			"the run %[2]s, so its workspace has no version from before the step: rerun %[2]s instead",
			from, old.RerunOf)}
	}
	base := beganWith(old, first)
	again := make([]bool, len(p.steps))
	for i := range p.steps {
		again[i] = p.repeats(old, i, first, base)
	}
	for changed := true; changed; {
		changed = false
		for i, s := range p.steps {
			for j := range s.before {
				if again[j] && !again[i] {
					again[i], changed = true, true
				}
			}
		}
	}
	out := Rerun{Generation: base, Steps: make([]schemas.StepRun, len(p.steps))}
	for i, s := range p.steps {
		out.Steps[i] = schemas.StepRun{ID: s.ID, Status: schemas.WorkflowPending}
		if again[i] {
			out.Changed = out.Changed || changedSince(old.Steps[i], base)
			out.Forks = out.Forks || s.Wait == nil && s.Ask == nil && s.Emit == nil
			continue
		}
		x := old.Steps[i]
		x.After = lastCommit(x)
		x.Before, x.Kept, x.Items, x.ItemsKey = 0, true, nil, ""
		if x.ResultBytes > 0 {
			x.Result = nil // it is stored separately
		}
		out.Steps[i] = x
		if x.ResultBytes > 0 && x.ResultBytes <= MaxValue {
			out.Keep = append(out.Keep, ResultKey(s.ID, -1))
			if x.ResultKey != "" {
				out.Keep = append(out.Keep, x.ResultKey)
			}
		}
	}
	return out, nil
}

// beganWith returns the generation of the workspace with which a step began, or 0 if the workspace was empty or no task
// has used it. A step that began before the run's first task had ended, such as a question, counts as if it had
// begun with the generation with which this task began.
func beganWith(run schemas.WorkflowRun, step int) int64 {
	if s := run.Steps[step]; s.Before > 0 && !s.Kept {
		return s.Before
	}
	return earliest(run)
}

// earliest returns the generation of the workspace with which the first task of a run began, or 0 in the same
// cases as beganWith.
func earliest(run schemas.WorkflowRun) int64 {
	first := int64(math.MaxInt64)
	consider := func(x schemas.StepRun) {
		if !x.Kept && (x.Before > 0 || x.After > 0) {
			first = min(first, x.Before)
		}
	}
	for _, s := range run.Steps {
		consider(s)
		for _, item := range s.Items {
			consider(item)
		}
	}
	if first == math.MaxInt64 {
		return 0
	}
	return first
}

// repeats reports whether a rerun from step `first` repeats step `i`, whatever it does with the steps before i.
func (p *Plan) repeats(old schemas.WorkflowRun, i, first int, base int64) bool {
	s, x := p.steps[i], old.Steps[i]
	if i == first || s.finally {
		return true
	}
	before := p.steps[first].before[i]
	failed := x.Status == schemas.WorkflowFailed && s.OnError == schemas.OnErrorContinue
	// A step was skipped for its condition, or because the run stopped before the step began. Only the former is kept.
	skipped := x.Status == schemas.WorkflowSkipped && (before || old.Status == schemas.WorkflowSucceeded)
	return x.Status != schemas.WorkflowSucceeded && !failed && !skipped || changedSince(x, base) && !before
}

// changedSince reports whether a step has committed a later generation than base. A step that is kept has committed to
// the workspace of an earlier run.
func changedSince(x schemas.StepRun, base int64) bool { return !x.Kept && lastCommit(x) > base }

// lastCommit returns the latest generation that a step has committed.
func lastCommit(x schemas.StepRun) int64 {
	last := x.After
	for _, item := range x.Items {
		last = max(last, item.After)
	}
	return last
}

// Versions returns the generations of a run's workspace with which a rerun of the run may begin.
func Versions(run schemas.WorkflowRun) []int64 {
	out := []int64{earliest(run)}
	for _, s := range run.Steps {
		if !s.Kept {
			out = append(out, s.Before)
		}
	}
	return out
}
