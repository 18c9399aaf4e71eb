package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// Codegen configures who writes programs for descriptions. The zero value uses the rules alone.
type Codegen struct {
	Writer     *codegen.Writer            // the fleet's own model; may be nil
	Profiles   map[string]*codegen.Writer // models that a task may name
	Repairs    int                        // maximum number of program repairs, unless the task sets one
	TaskTokens int                        // limit of model tokens for one task; 0 means no limit
	Ledger     Ledger                     // nil means no limit for tenants
}

// Ledger counts the model tokens that tenants spend in the whole fleet.
type Ledger interface {
	// Left returns how many tokens the tenant may still spend today, or that it has no limit.
	Left(ctx context.Context, tenant string) (left int, unlimited bool, err error)
	Spend(ctx context.Context, tenant string, tokens int) error
}

// ledgerTime bounds a request to the ledger.
const ledgerTime = 5 * time.Second

// budgets returns what models may spend on the task now: the task's budget, and the rest of its tenant's daily
// budget. If the ledger cannot be read, the task is retried.
func (c Codegen) budgets(ctx context.Context, tenant string, d draft) ([]*codegen.Budget, error) {
	if d.writer == nil {
		return nil, nil
	}
	out := []*codegen.Budget{d.budget}
	if c.Ledger == nil {
		return out, nil
	}
	limited, stop := context.WithTimeout(ctx, ledgerTime)
	defer stop()
	left, unlimited, err := c.Ledger.Left(limited, tenant)
	if err != nil {
		return nil, fmt.Errorf("read the budget of tenant %s: %w", tenant, withCause(ctx, err))
	}
	if !unlimited {
		out = append(out, codegen.NewBudget(left))
	}
	return out, nil
}

// countTokens returns usage with a model's tokens added, and counts them: in the ledger, and as the tenant's usage.
func (p *Pipeline) countTokens(ctx context.Context, t task, usage *schemas.Usage, u codegen.Usage) *schemas.Usage {
	sum := *usage
	if u.Model != "" {
		sum.Model = u.Model
	}
	sum.PromptTokens += u.PromptTokens
	sum.CompletionTokens += u.CompletionTokens
	tokens := u.PromptTokens + u.CompletionTokens
	if tokens == 0 {
		return &sum
	}
	ctx, release := jobs.UntilExit(ctx) // the tokens of a cancelled task count, too
	defer release()
	ctx, stop := context.WithTimeout(ctx, ledgerTime)
	defer stop()
	err := t.job.CountTokens(ctx, tokens)
	if p.Codegen.Ledger != nil {
		err = errors.Join(err, p.Codegen.Ledger.Spend(ctx, t.ref.Tenant, tokens))
	}
	if err != nil {
		p.Log.WarnContext(ctx, "model tokens not counted", "task_id", t.id(), "tokens", tokens, "error", err)
	}
	return &sum
}
