package pipeline

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/schemas"
)

// task is one run of one task on its way through the stages.
type task struct {
	job         *jobs.Job
	head        func() *state.Prefetched // waits for the prefetched HEAD; nil: none
	ref         state.Ref
	limits      executor.Limits
	environment string   // of the box, by name
	tools       *toolset // nil: the fleet has none
	allow       []string // of the tools
	request     codegen.Request
	code        string
	generatedBy string
	runs        int                  // that have ended before this one
	deadline    time.Time            // of this run
	writer      *codegen.Writer      // nil: only the rules write
	budget      *codegen.Budget      // of the task's model tokens; nil: any
	repairs     int                  // that the model may still try
	entries     []broker.AuditRecord // tool calls of the latest run
	done        []string             // calls of all runs that changed something, for the model that repairs
	timing      schemas.Timing
	result      schemas.Result
	notes       []schemas.Finding // of plugins, on the latest run

	network []allowlist.Pattern // that it may reach
}

func newTask(j *jobs.Job, defaults executor.Limits, head func() *state.Prefetched) *task {
	ref := state.Ref{Tenant: j.Record.Tenant, Workspace: j.Record.Workspace}
	return &task{
		job: j, head: head, ref: ref, limits: limits(j.Task.Limits, defaults),
		result: schemas.Result{Workspace: schemas.WorkspaceChange{Name: ref.Workspace}},
	}
}

// limits are what the task asks for, and the defaults for the rest.
func limits(asked *schemas.Limits, l executor.Limits) executor.Limits {
	if asked != nil {
		l.Timeout = cmp.Or(time.Duration(asked.TimeoutS*float64(time.Second)), l.Timeout)
		l.MemoryMB = cmp.Or(asked.MemoryMB, l.MemoryMB)
		l.CPUs = cmp.Or(asked.CPUs, l.CPUs)
		l.OutputBytes = cmp.Or(asked.OutputBytes, l.OutputBytes)
	}
	return l
}

// clock adds the time until its result is called to a stage's account.
func (t *task) clock(ms *float64) func() {
	start := time.Now()
	return func() { *ms += float64(time.Since(start).Microseconds()) / 1000 }
}

func (t *task) program() executor.Program {
	p := executor.Program{TaskID: t.job.Record.TaskID, Code: t.code, Inputs: t.job.Task.Inputs, Limits: t.limits}
	if t.tools != nil {
		p.Catalogue = t.tools.version
	}
	return p
}

// placeFiles writes the files that came with the task into the workspace.
func (t *task) placeFiles(tree *state.Tree) error {
	for i, f := range t.job.Task.Files {
		data, err := content(f)
		if err == nil {
			err = tree.WriteFile(f.Name, data, 0o644)
		}
		if isFull(err) {
			return fmt.Errorf("place the task's files: %w", err)
		}
		if err != nil {
			return &schemas.Error{
				Code: errcode.BadFile, Message: fmt.Sprintf("/files/%d: %v", i, err),
				Hint: "a name is a relative path within the workspace, as data/in.csv",
			}
		}
	}
	return nil
}

func content(f schemas.File) ([]byte, error) {
	if f.Base64 != nil {
		return base64.StdEncoding.DecodeString(*f.Base64)
	}
	return []byte(*f.Text), nil
}

// take fills in what the run said.
func (t *task) take(v executor.Verdict) {
	r := &t.result
	r.Status = schemas.Status(v.Status)
	r.Result, r.Output, r.Stderr, r.Truncated = v.Result, v.Output, v.Stderr, v.Truncated
	r.Resources = schemas.Resources{CPUMS: v.CPUMS, PeakMemoryMB: v.PeakMemoryMB}
	r.Error = nil
	if f := v.Error; f != nil {
		r.Error = &schemas.Error{Code: f.Code, Message: f.Message, Cause: f.Cause, Hint: f.Hint, Line: f.Line}
	}
}

// commits reports whether what the program changed is to be kept.
func (t *task) commits() bool {
	switch t.result.Status {
	case schemas.Succeeded:
		return true
	case schemas.Failed, schemas.Timeout:
		return t.job.Task.Commit == "always" && !t.repairable()
	default:
		return false
	}
}

// refusedCommit tells a commit that can never succeed from one to be tried again.
func (t *task) refusedCommit(err error) error {
	if errors.Is(err, state.ErrQuota) {
		t.result.Status = schemas.Failed
		t.result.Error = &schemas.Error{
			Code: errcode.WorkspaceQuota, Message: err.Error(),
			Hint: "remove files from the workspace, or ask for a larger quota",
		}
		return nil
	}
	return fmt.Errorf("commit workspace %s: %w", t.ref, err)
}

// ended is the result of a task whose program never ran.
func (t *task) ended(s schemas.Status, e *schemas.Error) *schemas.Result {
	t.result.Status, t.result.Error = s, e
	return t.finish()
}

// finish returns the result as it stands.
func (t *task) finish() *schemas.Result {
	r := t.result
	r.Code, r.GeneratedBy, r.TimingMS = t.code, t.generatedBy, t.timing
	r.Guardrails = append(slices.Clip(r.Guardrails), t.notes...)
	return &r
}
