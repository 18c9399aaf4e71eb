package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/errcode"
)

// Decision is what a Policy does with a call.
type Decision string

// The decisions.
const (
	Allow           Decision = "allow"
	Deny            Decision = "deny"
	RequireApproval Decision = "approve" // by an Approver; without one, the call is rejected
)

// Decisions lists all decisions.
var Decisions = []Decision{Allow, Deny, RequireApproval}

// Policy decides what happens to a call. Destructive applies to tools that declare, or do not rule out, that they
// delete or overwrite.
type Policy struct {
	Destructive Decision
	Tools       map[string]Decision // by "server/tool" or "server/*"; overrides Destructive, for any tool
}

func (p Policy) check() error {
	all := []error{checkDecision("destructive", p.Destructive)}
	for id, d := range p.Tools {
		all = append(all, checkDecision(id, d))
	}
	return errors.Join(all...)
}

func checkDecision(what string, d Decision) error {
	if !slices.Contains(Decisions, d) {
		return fmt.Errorf("policy of %s: %q is not one of %q", what, d, Decisions)
	}
	return nil
}

func (p Policy) decide(c Call) Decision {
	for _, id := range []string{c.ID(), c.Server + "/*"} {
		if d, ok := p.Tools[id]; ok {
			return d
		}
	}
	if c.def.Annotations.Destroys() {
		return p.Destructive
	}
	return Allow
}

func policy(cfg Config) layer {
	return func(next handler) handler {
		return func(ctx context.Context, c Call) (Result, error) {
			switch cfg.Policy.decide(c) {
			case Deny:
				return Result{}, fail(c, errcode.Forbidden, "the fleet's policy denies this call").
					hint("see tools.destructive and tools.policy in the settings")
			case RequireApproval:
				if err := awaitApproval(ctx, cfg, c); err != nil {
					return Result{}, err
				}
			case Allow:
			}
			return next(ctx, c)
		}
	}
}
