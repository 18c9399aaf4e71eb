package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/codegen/rules"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/schemas"
)

// discover takes the catalogue that the task's record pins.
func (p *Pipeline) discover(ctx context.Context, t *task) error {
	if p.Tools.Catalogue == nil {
		return nil
	}
	version, snap, err := p.catalogue(ctx, t)
	if err != nil {
		return orCause(ctx, err)
	}
	t.tools, t.allow = &toolset{version, p.Index(snap)}, []string{"*"}
	if p.Tools.Allow != nil {
		t.allow = p.Tools.Allow(t.ref.Tenant)
	}
	if choice := t.job.Task.Tools; choice != nil && choice.Allow != nil {
		t.allow = broker.Narrow(choice.Allow, t.allow)
	}
	t.result.Tools.Available = t.tools.Count(t.allow)
	return nil
}

// catalogue is the version that the record pins. One that is not to be had any more (it was made from
// the files of a host that is gone) is no reason to give the task up: it gets the tools of now, and
// the result says so.
func (p *Pipeline) catalogue(ctx context.Context, t *task) (version string, snap *tools.Listing, err error) {
	tenant := t.job.Record.Tenant
	if version = t.job.Record.Catalogue; version != "" {
		snap, err = p.Tools.Catalogue.Pinned(ctx, tenant, version)
		if !errors.Is(err, fs.ErrNotExist) {
			return version, snap, err
		}
		t.finding("catalogue", "the tools are those of now: version "+version+", with which the task began, is not to be had any more")
	}
	return p.Tools.Catalogue.Current(ctx, tenant)
}

// program settles which program runs: the one of an earlier run, the caller's, or one written now
// for the task's description. A refusal means that nobody could write it.
func (p *Pipeline) program(ctx context.Context, t *task) (*schemas.Error, error) {
	data := t.job.Task
	if refusal := p.chooseModel(t); refusal != nil {
		return refusal, nil
	}
	if data.Description != "" {
		if err := p.selectTools(ctx, t); err != nil {
			return nil, err
		}
	}
	switch record := t.job.Record; {
	case record.Code != "":
		t.code, t.generatedBy = record.Code, record.GeneratedBy
	case data.Code != "":
		t.code, t.generatedBy = data.Code, "caller"
	case data.Description != "":
		refusal, err := p.generate(ctx, t)
		if err == nil {
			refusal = p.rewrite(ctx, t, refusal)
		}
		if refusal != nil || err != nil {
			return refusal, err
		}
	default:
		return &schemas.Error{
			Code: errcode.NotSupported, Message: "this fleet runs no skills and no workflows yet",
			Hint: "send the task with `code` or `description`",
		}, nil
	}
	if t.generatedBy == codegen.ByModel && t.writer != nil {
		t.repairs = p.Repairs
		if n := data.RepairAttempts; n != nil {
			t.repairs = *n
		}
	}
	return nil, nil
}

// chooseModel takes the writer that the task names, or the fleet's own.
func (p *Pipeline) chooseModel(t *task) *schemas.Error {
	name := t.job.Task.Model
	if t.writer = p.Writer; name == "" {
		return nil
	}
	writer, ok := p.Models[name]
	if t.writer = writer; ok {
		return nil
	}
	hint := "leave `model` out: the fleet's own model, or its rules, write the program"
	if len(p.Models) > 0 {
		hint = "its profiles are " + strings.Join(slices.Sorted(maps.Keys(p.Models)), ", ") + "; or " + hint
	}
	return &schemas.Error{Code: errcode.UnknownModel, Message: fmt.Sprintf("the fleet has no model profile %q", name), Hint: hint}
}

// selectTools finds the few tools that the description needs, and what a writer is to know.
func (p *Pipeline) selectTools(ctx context.Context, t *task) error {
	defer t.clock(&t.timing.Select)()
	ctx, span := p.Trace.Start(ctx, "select")
	defer span.End()
	t.request = codegen.Request{Task: t.job.Task.Description, Inputs: string(t.job.Task.Inputs)}
	t.request.Files = p.files(ctx, t)
	t.result.Usage = &schemas.Usage{}
	if t.tools == nil {
		return nil
	}
	t.job.Emit(ctx, schemas.Progress{Stage: "select"})
	var past *selection.History
	if p.History != nil {
		past = p.History.Past(ctx, t.ref.Tenant)
	}
	ids, degraded, err := t.tools.Pick(ctx, toolsearch.Wanted{
		Description: t.request.Task, Allow: t.allow, Max: t.maxTools(), History: past,
	})
	if err != nil {
		return jobs.Permanent(fmt.Errorf("select tools: %w", err))
	}
	ids = p.reselect(ctx, t, ids)
	t.request.Tools = t.tools.Definitions(ids)
	t.result.Tools.Selected, t.result.Tools.Degraded = ids, degraded
	if n := t.result.Tools.Available; n > 0 {
		t.result.Tools.Share = float64(len(ids)) / float64(n)
	}
	t.result.Usage.DirectToolTokens = t.tools.DefinitionTokens(t.allow)
	return nil
}

// maxTools is how many tools may be selected for the task.
func (t *task) maxTools() int {
	if choice := t.job.Task.Tools; choice != nil && choice.Max > 0 {
		return min(choice.Max, selection.AtMost)
	}
	return selection.AtMost
}

// listTime bounds reading the list of a workspace's files: a prompt can do without it.
const listTime = 2 * time.Second

// files are the names of the task's files, and for a model those of its workspace, the least deep first.
func (p *Pipeline) files(ctx context.Context, t *task) (names []string) {
	for _, f := range t.job.Task.Files {
		names = append(names, f.Name)
	}
	if t.writer == nil {
		return names
	}
	ctx, stop := context.WithTimeout(ctx, listTime)
	defer stop()
	list, err := p.Store.List(ctx, t.ref, 0, "")
	if err != nil {
		p.Log.DebugContext(ctx, "files of the workspace not listed for the model", "task_id", t.job.Record.TaskID, "error", err)
	}
	slices.SortStableFunc(list, func(a, b state.FileInfo) int { return strings.Count(a.Path, "/") - strings.Count(b.Path, "/") })
	for _, f := range list {
		if f.Kind == state.File && !slices.Contains(names[:len(t.job.Task.Files)], f.Path) {
			names = append(names, f.Path)
		}
	}
	return names
}

// generate lets the model or the rules write the program.
func (p *Pipeline) generate(ctx context.Context, t *task) (*schemas.Error, error) {
	defer t.clock(&t.timing.Generate)()
	ctx, span := p.Trace.Start(ctx, "generate")
	defer span.End()
	t.job.Emit(ctx, schemas.Progress{Stage: "generate"})
	budgets, err := p.budgets(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("read the budget of tenant %s: %w", t.ref.Tenant, orCause(ctx, err))
	}
	program, err := codegen.Generate(ctx, t.writer, rules.Write, t.request, codegen.Call{Progress: p.answer(ctx, t), Budgets: budgets})
	p.spent(ctx, t, program.Usage)
	if ctx.Err() != nil {
		return nil, orCause(ctx, errors.Join(err, ctx.Err()))
	}
	required, blocked := errors.AsType[*codegen.CodeRequiredError](err)
	switch {
	case program.Fallback != "" && blocked:
		t.finding("model", "the model gave no program: "+program.Fallback)
	case program.Fallback != "":
		t.finding("model", "the model gave no program, the rules wrote it: "+program.Fallback)
	}
	if blocked {
		return codeRequired(required, program.Fallback), nil
	}
	if err != nil {
		return nil, fmt.Errorf("write the program: %w", err)
	}
	t.code, t.generatedBy = program.Code, program.By
	return nil, nil
}

// answer shows a model's answer as it arrives, a line at a time; nil where there is no model.
func (p *Pipeline) answer(ctx context.Context, t *task) func(string) {
	if t.writer == nil {
		return nil
	}
	var line strings.Builder
	return func(text string) {
		line.WriteString(text)
		if strings.Contains(text, "\n") {
			t.job.Emit(ctx, schemas.Progress{Stage: "generate", Text: line.String()})
			line.Reset()
		}
	}
}

// used adds to the task's bill.
func (t *task) used(u codegen.Usage) {
	if u.Model != "" {
		t.result.Usage.Model = u.Model
	}
	t.result.Usage.PromptTokens += u.PromptTokens
	t.result.Usage.CompletionTokens += u.CompletionTokens
}

func (t *task) finding(rule, message string) {
	t.result.Guardrails = append(t.result.Guardrails, schemas.Finding{Rule: rule, Level: "warning", Message: message})
}

// codeRequired tells the caller's own model what it needs to finish the program in one more call.
func codeRequired(e *codegen.CodeRequiredError, model string) *schemas.Error {
	out := &schemas.Error{Code: errcode.CodeRequired, Message: e.Reason}
	if len(e.Unknown) > 0 {
		out.Message += fmt.Sprintf(": %q", e.Unknown[0])
	}
	var cause []string
	add := func(title string, lines []string) {
		if len(lines) > 0 {
			cause = append(cause, title+"\n  "+strings.Join(lines, "\n  "))
		}
	}
	add("understood:", e.Understood)
	add("not understood:", e.Unknown)
	add("tools:", e.Signatures)
	if model != "" {
		add("the model:", []string{model})
	}
	out.Cause = strings.Join(cause, "\n")
	out.Hint = "finish this program and send it as `code` (codefleet run --file FILE):\n" + e.Skeleton
	return out
}
