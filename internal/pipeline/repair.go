package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// repairable reports whether the program failed, is the model's and may be corrected by it. After a
// mutating call whose effect is in doubt it may not: the corrected program could make the call twice.
func (s steps) repairable(a attempt) bool {
	failed := a.outcome.Status == schemas.Failed || a.commit.refused != nil
	if !failed || a.commit.earlier != nil || s.draft.repairsLeft <= 0 {
		return false
	}
	for _, e := range a.execution.calls {
		if inDoubt(e.Code) && s.tools.mutates(e) {
			return false
		}
	}
	return true
}

// inDoubt reports whether a call that ended with the error code may have had an effect.
func inDoubt(code string) bool {
	switch code {
	case errcode.InDoubt, errcode.Timeout, errcode.Unavailable,
		errcode.ResultTooLarge, errcode.OverBudget, errcode.Internal:
		return true
	}
	return false
}

// repair returns the draft for the next attempt, or the same draft and false when there is none. What the
// calls of failed attempts changed is not changed again: equal calls are answered from the journal, and
// the model learns of them.
func (p *Pipeline) repair(ctx context.Context, s steps) (d draft, repaired bool, err error) {
	d = s.draft
	if !s.repairable(s.attempts[len(s.attempts)-1]) {
		return d, false, nil
	}
	defer measure(&d.generateMS)()
	ctx, span := p.Tracer.Start(ctx, "repair")
	defer span.End()
	s.task.job.Emit(ctx, schemas.Progress{Stage: "repair"})
	d.repairsLeft--
	budgets, err := p.Codegen.budgets(ctx, s.task.ref.Tenant, d)
	if err != nil {
		return d, false, err
	}
	program, err := d.writer.Repair(ctx, d.request, s.failure(), codegen.Call{
		Progress: s.task.emitModel(ctx, d), Budgets: budgets,
	})
	d.usage = p.charge(ctx, s.task, d.usage, program.Usage)
	if ctx.Err() != nil {
		return d, false, orCause(ctx, ctx.Err())
	}
	if err != nil {
		d.repairsLeft = 0
		d.findings = append(slices.Clip(d.findings),
			warning("model", "the failed program was not repaired: "+err.Error()))
		return d, false, nil
	}
	if err := s.task.job.SaveProgram(ctx, program.Code, codegen.ByModel); err != nil {
		return d, false, err
	}
	d.code = program.Code
	d.repairs++
	return d, true, nil
}

// failure is what the model learns about its failed program, and about what all attempts changed.
func (s steps) failure() codegen.Failure {
	f := codegen.Failure{Program: s.draft.code}
	if e := s.attempts[len(s.attempts)-1].failed(); e != nil {
		f.Error = fmt.Sprintf("%s: %s\n%s", e.Code, e.Message, e.Cause)
	}
	for _, a := range s.attempts {
		for _, e := range a.execution.calls {
			if !e.OK || e.Local || !s.tools.mutates(e) {
				continue
			}
			done := fmt.Sprintf("%s/%s with %s answered %s", e.Server, e.Tool, e.ArgsExcerpt, e.ResultExcerpt)
			if !slices.Contains(f.Done, done) {
				f.Done = append(f.Done, done)
			}
		}
	}
	return f
}

// failed is why the attempt did not succeed; nil when it did.
func (a attempt) failed() *schemas.Error {
	if a.commit.refused != nil {
		return a.commit.refused
	}
	return a.outcome.Error
}
