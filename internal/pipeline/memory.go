package pipeline

import (
	"context"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/schemas"
)

// Ledger counts the tokens of models that tenants spend, in the whole fleet.
type Ledger interface {
	// Left is how many tokens the tenant may spend today; unlimited says that nobody counts.
	Left(ctx context.Context, tenant string) (left int, unlimited bool, err error)
	Spend(ctx context.Context, tenant string, tokens int) error
}

// remember keeps what a description's task used, once it has succeeded.
func (p *Pipeline) remember(ctx context.Context, t *task) {
	if p.History == nil || t.result.Status != schemas.Succeeded || t.request.Task == "" {
		return
	}
	var used []string
	for _, c := range t.result.Tools.Calls {
		if id := c.Server + "/" + c.Tool; c.OK && !slices.Contains(used, id) {
			used = append(used, id)
		}
	}
	if len(used) > 0 {
		p.History.Record(ctx, t.ref.Tenant, t.request.Task, used)
	}
}

// ledgerTime bounds what asking for a budget may take. One that cannot be read is an error of the fleet: the task is
// tried again.
const ledgerTime = 5 * time.Second

// budgets are what the models may spend on a task: its own budget, which holds for repairs too, and what is left of
// its tenant's day.
func (p *Pipeline) budgets(ctx context.Context, t *task) ([]*codegen.Budget, error) {
	if t.writer == nil {
		return nil, nil
	}
	if t.budget == nil && p.TaskTokens > 0 {
		t.budget = codegen.NewBudget(p.TaskTokens)
	}
	out := []*codegen.Budget{t.budget}
	if p.Ledger == nil {
		return out, nil
	}
	ctx, stop := context.WithTimeout(ctx, ledgerTime)
	defer stop()
	left, unlimited, err := p.Ledger.Left(ctx, t.ref.Tenant)
	if err != nil {
		return nil, err
	}
	if !unlimited {
		out = append(out, codegen.NewBudget(left))
	}
	return out, nil
}

// spent adds a model's tokens to the task's bill and to the tenant's day.
func (p *Pipeline) spent(ctx context.Context, t *task, u codegen.Usage) {
	t.used(u)
	tokens := u.PromptTokens + u.CompletionTokens
	if p.Ledger == nil || tokens == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), ledgerTime)
	defer stop()
	if err := p.Ledger.Spend(ctx, t.ref.Tenant, tokens); err != nil {
		p.Log.WarnContext(ctx, "model tokens not counted", "task_id", t.job.Record.TaskID, "tokens", tokens, "error", err)
	}
}
