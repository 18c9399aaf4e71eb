package pipeline

import (
	"context"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/guardrails"
	"github.com/codefleet/codefleet/schemas"
)

// Levels of schemas.Finding.
const (
	levelWarning = "warning"
	levelRefused = "refused"
)

// checks returns hooks with the decision whether the program may run: first the guardrails decide, then plugins. The
// program does not wait for the decision if nothing could refuse it. The hooks add the guardrails' findings to found,
// and set undecided if a plugin fails to decide.
func (p *Pipeline) checks(
	ctx context.Context, s steps, hooks executor.Hooks, found *[]schemas.Finding, undecided *error,
) executor.Hooks {
	validate := p.validator(ctx, s, undecided)
	rules := p.guard(s.task)
	judge := func(f executor.Facts) {
		*found = findings(rules, judged(s, f))
	}
	switch {
	case s.task.job.Task.CheckOnly:
		hooks.Check = func(f executor.Facts) error {
			judge(f)
			return errChecked
		}
	case rules.Level == guardrails.Strict:
		hooks.Check = func(f executor.Facts) error {
			if judge(f); len(*found) > 0 {
				return refusal(*found)
			}
			if validate != nil {
				return validate(f)
			}
			return nil
		}
	case validate != nil:
		hooks.Check = func(f executor.Facts) error {
			judge(f)
			return validate(f)
		}
	case rules.Level == guardrails.Advise:
		hooks.Facts = judge
	}
	return hooks
}

// errChecked ends a program that is judged and not run.
var errChecked = &executor.Failure{Code: "checked", Message: "the program was judged and not run"}

// checkedOnly reports whether the program was judged and not run.
func (e execution) checkedOnly() bool { return e.verdict.Error == errChecked }

func (p *Pipeline) guard(t task) *guardrails.Rules {
	if p.Guard == nil {
		return &guardrails.Rules{}
	}
	return p.Guard(t.job.Record.Tenant)
}

// findings returns what is wrong with a program, as the result lists it.
func findings(rules *guardrails.Rules, program guardrails.Program) []schemas.Finding {
	level := levelWarning
	if rules.Level == guardrails.Strict {
		level = levelRefused
	}
	var found []schemas.Finding
	for _, f := range rules.Program(program) {
		found = append(found, schemas.Finding{Rule: f.Rule, Line: f.Line, Level: level, Message: f.String()})
	}
	return found
}

func refusal(found []schemas.Finding) error {
	return &executor.Failure{
		Code: errcode.GuardrailRefused, Message: found[0].Message, Line: found[0].Line,
		Hint: "change the program, or ask the operator to set guardrails.level to advise",
	}
}

// judged returns what the guardrails need of a program's facts.
func judged(s steps, f executor.Facts) guardrails.Program {
	g := guardrails.Program{Code: s.draft.code, Truncated: f.Truncated, Network: len(s.network) > 0}
	for _, i := range f.Imports {
		g.Imports = append(g.Imports, guardrails.Import(i))
	}
	g.Calls, g.Attributes, g.References = named(f.Calls), named(f.Attributes), named(f.References)
	for _, path := range f.Paths {
		g.Paths = append(g.Paths, guardrails.Path(path))
	}
	for _, sign := range f.Signs {
		g.Signs = append(g.Signs, guardrails.Sign(sign))
	}
	return g
}

func named(list []executor.Name) []guardrails.Use {
	var uses []guardrails.Use
	for _, n := range list {
		uses = append(uses, guardrails.Use(n))
	}
	return uses
}
