package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/schemas"
)

// repairable reports whether a failed program is the model's, and may be tried again. When nobody
// knows what became of a call that changes something, it may not: it could be made twice.
func (t *task) repairable() bool {
	if t.result.Status != schemas.Failed || t.repairs <= 0 {
		return false
	}
	for _, e := range t.entries {
		if inDoubt(e.Code) && t.mutates(e) {
			return false
		}
	}
	return true
}

// inDoubt reports whether a call that ended with the error code may have taken effect.
func inDoubt(code string) bool {
	switch code {
	case errcode.InDoubt, errcode.Timeout, errcode.Unavailable, errcode.ResultTooLarge, errcode.OverBudget, errcode.Internal:
		return true
	}
	return false
}

func (t *task) mutates(e broker.AuditRecord) bool {
	tool, err := t.tools.Snapshot.Lookup(e.Server, e.Tool)
	return err == nil && tool.Annotations.Mutates()
}

// repair asks the model for a corrected program after its own failed. It reports whether there is
// one to run. What the failed run's calls changed is not done again: equal calls are answered from
// the journal, and the model is told of them.
func (p *Pipeline) repair(ctx context.Context, t *task) (again bool, err error) {
	if !t.repairable() {
		return false, nil
	}
	defer t.clock(&t.timing.Generate)()
	ctx, span := p.Trace.Start(ctx, "repair")
	defer span.End()
	t.job.Emit(ctx, schemas.Progress{Stage: "repair"})
	t.repairs--
	budgets, err := p.budgets(ctx, t)
	if err != nil {
		return false, fmt.Errorf("read the budget of tenant %s: %w", t.ref.Tenant, orCause(ctx, err))
	}
	program, err := t.writer.Repair(ctx, t.request, t.failure(), codegen.Call{Progress: p.answer(ctx, t), Budgets: budgets})
	p.spent(ctx, t, program.Usage)
	if ctx.Err() != nil {
		return false, orCause(ctx, ctx.Err())
	}
	if err != nil {
		t.repairs = 0
		t.finding("model", "the failed program was not repaired: "+err.Error())
		return false, nil
	}
	if err := t.job.SaveProgram(ctx, program.Code, codegen.ByModel); err != nil {
		return false, err
	}
	t.code = program.Code
	t.result.Repairs++
	return true, nil
}

// failure is what the model is told about its program, and about what this and the programs before it have changed.
func (t *task) failure() codegen.Failure {
	f := codegen.Failure{Program: t.code}
	if e := t.result.Error; e != nil {
		f.Error = fmt.Sprintf("%s: %s\n%s", e.Code, e.Message, e.Cause)
	}
	for _, e := range t.entries {
		if e.OK && !e.Local && t.mutates(e) {
			if done := fmt.Sprintf("%s/%s with %s answered %s", e.Server, e.Tool, e.ArgsExcerpt, e.ResultExcerpt); !slices.Contains(t.done, done) {
				t.done = append(t.done, done)
			}
		}
	}
	f.Done = t.done
	return f
}
