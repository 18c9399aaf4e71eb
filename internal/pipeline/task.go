package pipeline

import (
	"cmp"
	"context"
	"time"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/guardrails/privacy"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/schemas"
)

// task is what the stages know about a task from the start.
type task struct {
	job    *jobs.Job
	ref    state.Ref
	limits executor.Limits
	head   func(context.Context) *state.Prefetched // waits for the prefetched HEAD; returns nil if there is none
	tokens *privacy.Tokens                         // the privacy tokens of the task; nil replaces nothing
}

func newTask(j *jobs.Job, defaults executor.Limits, head func(context.Context) *state.Prefetched) task {
	return task{job: j, ref: refOf(j.Record), limits: limits(j.Task.Limits, defaults), head: head}
}

func refOf(rec schemas.Record) state.Ref {
	return state.Ref{Tenant: rec.Tenant, Workspace: rec.Workspace}
}

// limits returns the limits that the task sets, and the defaults for the others.
func limits(set *schemas.Limits, l executor.Limits) executor.Limits {
	if set != nil {
		l.Timeout = cmp.Or(time.Duration(set.TimeoutS*float64(time.Second)), l.Timeout)
		l.MemoryMB = cmp.Or(set.MemoryMB, l.MemoryMB)
		l.CPUs = cmp.Or(set.CPUs, l.CPUs)
		l.OutputBytes = cmp.Or(set.OutputBytes, l.OutputBytes)
	}
	return l
}

func (t task) id() string { return t.job.Record.TaskID }

// admit returns the hosts that the task may reach. Submission has already refused a task whose tenant may not
// reach them.
func admit(t task) ([]allowlist.Pattern, error) {
	if t.job.Task.Network == nil {
		return nil, nil
	}
	hosts, _, err := allowlist.ParseAll(t.job.Task.Network.Allow)
	if err != nil {
		return nil, &schemas.Error{
			Code: errcode.BadData, Message: "/network/allow: " + err.Error(),
			Hint: "a host is written as example.org or *.example.org",
		}
	}
	return hosts, nil
}

// maxTools returns how many tools may be selected for the task.
func (t task) maxTools() int {
	if choice := t.job.Task.Tools; choice != nil && choice.Max > 0 {
		return min(choice.Max, selection.MaxTools)
	}
	return selection.MaxTools
}

// forPlugins returns what plugins learn about the task.
func (t task) forPlugins() plugin.Task {
	r := t.job.Record
	return plugin.Task{ID: r.TaskID, Tenant: r.Tenant, Workspace: r.Workspace, Session: r.Session, Data: t.job.Task}
}
