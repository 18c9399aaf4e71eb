package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// repairable reports whether the program failed and its model may correct it. After a mutating call that is
// in doubt it may not, because the corrected program could make the call twice.
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

// inDoubt reports whether a call that ended with this error code may have taken effect.
func inDoubt(code string) bool {
	switch code {
	case errcode.InDoubt, errcode.Timeout, errcode.Unavailable,
		errcode.ResultTooLarge, errcode.OverBudget, errcode.Internal:
		return true
	}
	return false
}

// repair returns the draft for the next attempt, which the last attempt may have made. If there is none, repair returns
// false, and a draft with the same program.
// The calls of failed attempts are not made again: the model learns of them, and equal calls are replayed from the
// journal.
func (p *Pipeline) repair(ctx context.Context, s steps) (d draft, repaired bool, err error) {
	d = s.draft
	last := s.attempts[len(s.attempts)-1]
	if last.repaired || !s.repairable(last) {
		return d, last.repaired, nil
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
		Progress: s.task.modelEmitter(ctx, d), Budgets: budgets, Private: s.task.promptPrivacy(),
	})
	d.usage = p.countTokens(ctx, s.task, d.usage, program.Usage)
	if ctx.Err() != nil {
		return d, false, withCause(ctx, ctx.Err())
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

// failure returns what the model learns: its failed program, the error, and the calls that changed something in any
// attempt.
func (s steps) failure() codegen.Failure {
	f := codegen.Failure{Program: s.draft.code}
	if e := s.attempts[len(s.attempts)-1].failureReason(); e != nil {
		f.Error = fmt.Sprintf("%s: %s\n%s", e.Code, e.Message, e.Cause)
	}
	for _, a := range s.attempts {
		for _, e := range a.execution.calls {
			if !e.OK || e.Local || !s.tools.mutates(e) {
				continue
			}
			done := fmt.Sprintf("%s/%s with %s returned %s", e.Server, e.Tool, e.ArgsExcerpt, e.ResultExcerpt)
			if !slices.Contains(f.Done, done) {
				f.Done = append(f.Done, done)
			}
		}
	}
	return f
}

// failureReason returns why the attempt did not succeed, or nil if it did.
func (a attempt) failureReason() *schemas.Error {
	if a.commit.refused != nil {
		return a.commit.refused
	}
	return a.outcome.Error
}
