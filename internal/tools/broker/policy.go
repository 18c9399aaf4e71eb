package broker

import (
	"context"
	"errors"
	"fmt"
)

// Decision is what happens to a destructive call.
type Decision string

// The decisions.
const (
	Allow Decision = "allow"
	Deny  Decision = "deny"
	Ask   Decision = "approve" // by Hooks.Approve; where there is none, it is refused
)

// Policy decides about the tools that may delete or overwrite, or do not say that they do not.
type Policy struct {
	Destructive Decision
	Tools       map[string]Decision // by "server/tool" or "server/*", before all else, destructive or not
}

func (p Policy) check() error {
	all := []error{one("destructive", p.Destructive)}
	for id, d := range p.Tools {
		all = append(all, one(id, d))
	}
	return errors.Join(all...)
}

func one(what string, d Decision) error {
	switch d {
	case Allow, Deny, Ask:
		return nil
	}
	return fmt.Errorf("policy of %s is %q: there are allow, deny and approve", what, d)
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

func policy(cfg Config) func(Caller) Caller {
	return func(next Caller) Caller {
		return func(ctx context.Context, c Call) (Result, error) {
			switch cfg.Policy.decide(c) {
			case Deny:
				return Result{}, fail(c, Forbidden, "the tool may delete or overwrite, and the fleet's policy refuses such calls")
			case Ask:
				if cfg.Hooks.Approve == nil {
					return Result{}, fail(c, Forbidden, "the call needs somebody's approval, and nobody can be asked").
						hint("an operator may set the policy of %s to allow", c.ID())
				}
				if err := cfg.Hooks.Approve(ctx, c); err != nil {
					return Result{}, fail(c, Forbidden, "the call was not approved: %v", err)
				}
			case Allow:
			}
			return next(ctx, c)
		}
	}
}
