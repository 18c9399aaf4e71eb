package pipeline

import (
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/schemas"
)

// steps are the values that the stages of a task have returned so far. Each field has one stage that
// returns it, except that a program repair replaces the draft.
type steps struct {
	task     task
	network  []allowlist.Pattern // from admit
	tools    toolset             // from discover
	draft    draft               // from write, then from repair
	attempts []attempt           // the latest last
}

// attempt is one execution of the program with the stages around it. Each field has one stage that returns
// it; the fields of stages that were not reached are zero.
type attempt struct {
	box       box
	checkout  checkout
	execution execution
	outcome   plugin.Result // from review: the execution's outcome, perhaps changed by plugins
	draft     draft         // for the next attempt; the task's draft if the program was not repaired before the commit
	repaired  bool          // whether the draft has a repaired program
	commit    commit
	revertMS  float64
}

// with returns s with one more attempt.
func (s steps) with(a attempt) steps {
	s.attempts = append(slices.Clip(s.attempts), a)
	return s
}

// commits reports whether the attempt's changes are to be committed. If the program was repaired or the task runs
// again, they are not: a run that finds a commit of its task does not execute the program.
func (s steps) commits(a attempt) bool {
	switch a.outcome.Status {
	case schemas.Succeeded:
		return s.task.job.Task.Commit != "never"
	case schemas.Failed, schemas.Timeout:
		return s.task.job.Task.Commit == "always" && !a.repaired && !s.task.job.RetriesOn(a.outcome.Status)
	default:
		return false
	}
}

// result returns the result of the steps so far. Status, output and calls are the latest attempt's.
func (s steps) result() *schemas.Result {
	r := &schemas.Result{
		Workspace:  schemas.WorkspaceChange{Name: s.task.ref.Workspace},
		Guardrails: slices.Concat(s.tools.findings, s.draft.findings),
		Repairs:    s.draft.repairs,
		Usage:      s.draft.usage,
		Tools: schemas.ToolsUsed{
			Available: s.tools.available, Selected: s.draft.selected, Degraded: s.draft.degraded,
		},
	}
	if n := r.Tools.Available; n > 0 {
		r.Tools.Share = float64(len(r.Tools.Selected)) / float64(n)
	}
	for _, a := range s.attempts {
		r.Egress = addEgress(r.Egress, a.execution.egress)
	}
	if n := len(s.attempts); n > 0 {
		r = s.attempts[n-1].describe(r)
	}
	r.Code, r.GeneratedBy, r.TimingMS = s.draft.code, s.draft.by, s.timing()
	return r
}

// describe returns r with the attempt's outcome, or the result that an earlier run has committed.
func (a attempt) describe(r *schemas.Result) *schemas.Result {
	if a.commit.earlier != nil {
		earlier := *a.commit.earlier
		return &earlier
	}
	r.Sandbox = a.box.sandbox
	v, o := a.execution.verdict, a.outcome
	r.Status, r.Result, r.Output, r.Stderr, r.Error = o.Status, o.Value, o.Output, o.Stderr, o.Error
	r.Truncated, r.Labels = v.Truncated, o.Labels
	r.Guardrails = slices.Concat(r.Guardrails, a.findings(), o.Notes, a.commit.findings)
	if a.commit.refused == nil {
		r.Checkpoint = o.Checkpoint
	}
	r.Resources = schemas.Resources{CPUMS: v.CPUMS, PeakMemoryMB: v.PeakMemoryMB}
	for _, e := range a.execution.calls {
		r.Tools.Calls = append(r.Tools.Calls, schemas.ToolCall{
			Server: e.Server, Tool: e.Tool, MS: e.MS, OK: e.OK, Replayed: e.Replayed,
		})
	}
	r.Workspace.Base, r.Workspace.Generation = a.checkout.generation, a.checkout.generation
	if a.execution.checkedOnly() {
		r.Status, r.Error = schemas.Succeeded, nil
	}
	if a.commit.refused != nil {
		r.Status, r.Error = schemas.Failed, a.commit.refused
	}
	if a.commit.stored {
		r.Workspace, r.Artifacts = a.commit.change, a.commit.artifacts
	}
	return r
}

// findings returns what the guardrails found about the program and its calls.
func (a attempt) findings() []schemas.Finding {
	if a.execution.guard == nil { // the program was not reached
		return nil
	}
	return a.execution.guard.findings()
}

// timing sums up the durations of all attempts. The time in tools is the latest attempt's only.
func (s steps) timing() schemas.Timing {
	t := schemas.Timing{Select: s.draft.selectMS, Generate: s.draft.generateMS}
	for _, a := range s.attempts {
		t.SandboxWait += a.box.waitMS
		t.Checkout += a.checkout.ms
		t.Run += a.execution.ms
		t.Tools = busyMS(a.execution.calls)
		t.Commit += a.commit.ms + a.revertMS
	}
	return t
}

// measure starts a timer. The returned function adds the elapsed milliseconds to ms.
func measure(ms *float64) func() {
	start := time.Now()
	return func() { *ms += float64(time.Since(start).Microseconds()) / 1000 }
}

// addEgress adds an execution's connection attempts to those of earlier executions.
func addEgress(all []schemas.EgressAttempt, attempts []egress.Attempt) []schemas.EgressAttempt {
	for _, a := range attempts {
		i := slices.IndexFunc(all, func(e schemas.EgressAttempt) bool {
			return e.Host == a.Host && e.Port == a.Port && e.Verdict == a.Verdict
		})
		if i < 0 {
			i = len(all)
			all = append(all, schemas.EgressAttempt{Host: a.Host, Port: a.Port, Verdict: a.Verdict})
		}
		all[i].Bytes += a.Bytes
	}
	return all
}
