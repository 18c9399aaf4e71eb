package pipeline

import (
	"context"
	"sync"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/guardrails"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/schemas"
)

// Levels of schemas.Finding.
const (
	levelWarning = "warning"
	levelRefused = "refused"
)

// guard applies the guardrails to one execution of a task, and collects what they find.
type guard struct {
	rules *guardrails.Rules
	data  guardrails.Data // the task's tenant and inputs

	mu    sync.Mutex
	found []schemas.Finding
}

func (p *Pipeline) guard(t task) *guard {
	g := &guard{
		rules: &guardrails.Rules{},
		data:  guardrails.Data{Tenant: t.job.Record.Tenant, Inputs: t.job.Task.Inputs},
	}
	if p.Guard != nil {
		g.rules = p.Guard(t.job.Record.Tenant)
	}
	return g
}

func (g *guard) strict() bool { return g.rules.Level == guardrails.Strict }

// note records findings about the program, its inputs and its tool calls for the result, at most
// guardrails.MaxFindings in all.
func (g *guard) note(found []guardrails.Finding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	room := guardrails.MaxFindings - len(g.found)
	g.found = append(g.found, g.listed(found[:min(len(found), room)])...)
}

// findings returns the recorded findings.
func (g *guard) findings() []schemas.Finding {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.found
}

// listed returns findings as the result lists them.
func (g *guard) listed(found []guardrails.Finding) []schemas.Finding {
	level := levelWarning
	if g.strict() {
		level = levelRefused
	}
	var list []schemas.Finding
	for _, f := range found {
		list = append(list, schemas.Finding{Rule: f.Rule, Line: f.Line, Level: level, Message: f.String()})
	}
	return list
}

// checks adds to hooks the decision whether the program may run: first the guardrails decide, then plugins. If neither
// can refuse the program, it starts without waiting. The program of a task with CheckOnly is judged by the guardrails,
// and never runs. The hooks set pluginErr if a plugin fails to decide.
func (p *Pipeline) checks(
	ctx context.Context, s steps, g *guard, hooks executor.Hooks, pluginErr *error,
) executor.Hooks {
	validate := p.validator(ctx, s, pluginErr)
	judge := func(f executor.Facts) {
		g.note(g.rules.Program(guardedProgram(s, f)))
		g.note(g.rules.Data(ctx, guardrails.OnInputs, g.data))
	}
	switch strict := g.strict(); {
	case s.task.job.Task.CheckOnly:
		hooks.Check = func(f executor.Facts) error {
			judge(f)
			return errChecked
		}
	case strict || validate != nil:
		hooks.Check = func(f executor.Facts) error {
			judge(f)
			if found := g.findings(); strict && len(found) > 0 {
				return refusal(found[0])
			}
			if validate == nil {
				return nil
			}
			return validate(f)
		}
	case g.rules.Level == guardrails.Advise:
		hooks.Facts = judge
	}
	return hooks
}

// errChecked ends a program that is judged and not run.
var errChecked = &executor.Failure{Code: errcode.Blocked, Message: "the program was judged and not run"}

// checkedOnly reports whether the program was only judged, and did not run.
func (e execution) checkedOnly() bool { return e.verdict.Error == errChecked }

const hintStrict = "change the program, or ask the operator to set guardrails.level to advise"

func refusal(f schemas.Finding) error {
	return &executor.Failure{Code: errcode.GuardrailRefused, Message: f.Message, Line: f.Line, Hint: hintStrict}
}

// reviewCall applies the guardrails to a call of a tool with these names. If there are findings, strict guardrails mark
// the call as refused.
func (g *guard) reviewCall(ctx context.Context, c broker.Call, names []string) broker.Call {
	d := g.data
	d.Server, d.Tool, d.Names, d.Args = c.Server, c.Tool, names, c.Args
	found := g.rules.Data(ctx, guardrails.OnArguments, d)
	g.note(found)
	if len(found) > 0 && g.strict() && c.Refused == nil {
		c.Refused = &broker.Error{
			Server: c.Server, Tool: c.Tool, Code: errcode.Forbidden, Message: found[0].String(), Hint: hintStrict,
		}
	}
	return c
}

// reviewResult adds the guardrails' findings to the outcome of a program that succeeded. If there are findings, strict
// guardrails refuse the outcome: the task ends blocked, without a result.
func (g *guard) reviewResult(ctx context.Context, out plugin.Result) plugin.Result {
	if out.Status != schemas.Succeeded {
		return out
	}
	d := g.data
	d.Result, d.Output = out.Value, out.Output
	found := g.listed(g.rules.Data(ctx, guardrails.OnResult, d))
	out.Notes = append(out.Notes, found...)
	if len(found) > 0 && g.strict() {
		out.Status, out.Value, out.Output, out.Stderr = schemas.Blocked, nil, "", ""
		out.Error = &schemas.Error{Code: errcode.GuardrailRefused, Message: found[0].Message, Hint: hintStrict}
	}
	return out
}

// guardedProgram returns the program and its facts as the guardrails judge them.
func guardedProgram(s steps, f executor.Facts) guardrails.Program {
	g := guardrails.Program{Code: s.draft.code, Truncated: f.Truncated, Network: len(s.network) > 0}
	for _, i := range f.Imports {
		g.Imports = append(g.Imports, guardrails.Import(i))
	}
	g.Calls, g.Attributes, g.References = uses(f.Calls), uses(f.Attributes), uses(f.References)
	for _, path := range f.Paths {
		g.Paths = append(g.Paths, guardrails.Path(path))
	}
	for _, sign := range f.Signs {
		g.Signs = append(g.Signs, guardrails.Sign(sign))
	}
	return g
}

func uses(names []executor.Name) []guardrails.Use {
	var out []guardrails.Use
	for _, n := range names {
		out = append(out, guardrails.Use(n))
	}
	return out
}
