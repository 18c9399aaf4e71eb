package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/codegen/rules"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// draft is the program of a task, with the request for it and the cost of writing it.
type draft struct {
	code string
	by   string // caller | llm | rules | skill | plugin

	request  codegen.Request // zero unless the task has a description
	selected []string        // ids of the request's tools
	degraded string          // why embeddings did not take part in the selection

	writer      *codegen.Writer // nil if only the rules write
	budget      *codegen.Budget // for the task's model tokens; nil means no limit
	repairs     int             // repairs made
	repairsLeft int             // repairs that may still be made

	usage      *schemas.Usage // what models used; nil without a description
	findings   []schemas.Finding
	selectMS   float64
	generateMS float64
}

// write returns the program: the one of an earlier run, the caller's, the call of a skill, or a new one for the task's
// description, which it saves for later runs.
func (p *Pipeline) write(ctx context.Context, t task, tools toolset) (d draft, err error) {
	if d.writer, err = p.Codegen.writer(t.job.Task.Model); err != nil {
		return d, err
	}
	if d.writer != nil && p.Codegen.TaskTokens > 0 {
		d.budget = codegen.NewBudget(p.Codegen.TaskTokens)
	}
	data, record := t.job.Task, t.job.Record
	if data.Description != "" {
		if d, err = p.selectTools(ctx, t, tools, d); err != nil {
			return d, err
		}
	}
	switch {
	case record.Code != "":
		d.code, d.by = record.Code, record.GeneratedBy
	case data.Code != "":
		d.code, d.by = data.Code, "caller"
	case data.Description != "":
		if d, err = p.generate(ctx, t, d); err != nil {
			return d, err
		}
		if err := t.job.SaveProgram(ctx, d.code, d.by); err != nil {
			return d, err
		}
	default:
		if d.code, err = tools.skillProgram(data.Skill, data.Inputs); err != nil {
			return d, err
		}
		d.by = "skill"
	}
	if d.by == codegen.ByModel && d.writer != nil {
		d.repairsLeft = p.Codegen.Repairs
		if n := data.RepairAttempts; n != nil {
			d.repairsLeft = *n
		}
	}
	return d, nil
}

// writer returns the model profile that a task names, or the fleet's own model if it names none.
func (c Codegen) writer(name string) (*codegen.Writer, error) {
	if name == "" {
		return c.Writer, nil
	}
	if writer, ok := c.Profiles[name]; ok {
		return writer, nil
	}
	hint := "leave `model` out: the fleet's own model, or its rules, write the program"
	if len(c.Profiles) > 0 {
		hint = "valid profiles: " + strings.Join(slices.Sorted(maps.Keys(c.Profiles)), ", ") + "; or " + hint
	}
	return nil, &schemas.Error{
		Code: errcode.UnknownModel, Message: fmt.Sprintf("unknown model profile %q", name), Hint: hint,
	}
}

// generate returns d with a program that the model, the rules or a plugin wrote.
func (p *Pipeline) generate(ctx context.Context, t task, d draft) (draft, error) {
	d, err := p.callWriter(ctx, t, d)
	refusal, refused := errors.AsType[*schemas.Error](err)
	if err != nil && !refused {
		return d, err
	}
	if code, by := p.rewrite(ctx, t, d); by != "" {
		d.code, d.by, refusal = code, by, nil
	}
	if refusal != nil {
		return d, refusal
	}
	return d, nil
}

// callWriter returns the draft with a program that the model or the rules wrote. If neither could, the error is
// a *schemas.Error with the reason.
func (p *Pipeline) callWriter(ctx context.Context, t task, from draft) (d draft, err error) {
	d = from
	defer measure(&d.generateMS)()
	ctx, span := p.Tracer.Start(ctx, "generate")
	defer span.End()
	t.job.Emit(ctx, schemas.Progress{Stage: "generate"})
	budgets, err := p.Codegen.budgets(ctx, t.ref.Tenant, d)
	if err != nil {
		return d, err
	}
	program, err := codegen.Generate(ctx, d.writer, rules.Write, d.request, codegen.Call{
		Progress: t.modelEmitter(ctx, d), Budgets: budgets, Private: t.promptPrivacy(),
	})
	d.usage = p.countTokens(ctx, t, d.usage, program.Usage)
	if ctx.Err() != nil {
		return d, withCause(ctx, errors.Join(err, ctx.Err()))
	}
	required, codeRequired := errors.AsType[*codegen.CodeRequiredError](err)
	switch {
	case program.Fallback != "" && codeRequired:
		d.findings = append(d.findings, warning("model", "the model did not write a program: "+program.Fallback))
	case program.Fallback != "":
		d.findings = append(d.findings,
			warning("model", "the model did not write a program, the rules did: "+program.Fallback))
	}
	if codeRequired {
		return d, describeCodeRequired(required, program.Fallback)
	}
	if err != nil {
		return d, fmt.Errorf("write the program: %w", err)
	}
	d.code, d.by = program.Code, program.By
	return d, nil
}

// modelEmitter returns a function that emits a model's response as it arrives, line by line. It is nil without a
// model.
func (t task) modelEmitter(ctx context.Context, d draft) func(string) {
	if d.writer == nil {
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

// describeCodeRequired returns an error that says how to configure a model, and what the caller's own model needs to
// finish the program. modelFailure says why the fleet's model did not write the program; it is empty without a model.
func describeCodeRequired(e *codegen.CodeRequiredError, modelFailure string) *schemas.Error {
	message := "no model is configured, and "
	advice := "configure a model: set OPENAI_API_KEY, or OPENAI_BASE_URL for your own server (docs/generation.md)"
	if modelFailure != "" {
		message, advice = "the model wrote no program, and ", "correct the model's settings"
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
	if modelFailure != "" {
		add("the model:", []string{modelFailure})
	}
	return &schemas.Error{
		Code: errcode.CodeRequired, Message: message + e.Reason, Cause: strings.Join(cause, "\n"),
		Hint: advice + "; or finish this program and send it as `code`:\n" + e.Skeleton,
	}
}
