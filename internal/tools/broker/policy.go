package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Decision is what happens to a destructive call.
type Decision string

// The decisions.
const (
	Allow Decision = "allow"
	Deny  Decision = "deny"
	Ask   Decision = "approve" // an Approver says; where there is none, it is refused
)

// Policy decides about the tools that may delete or overwrite, or do not say that they do not.
type Policy struct {
	Destructive Decision
	Tools       map[string]Decision // by "server/tool" or "server/*", before all else, destructive or not
}

// Approver decides about a call that a Policy wants approved, which waits for it: nil lets the call
// go, an error refuses it, with its text. The wait counts as time of the call. It may be called by
// several goroutines, and again for the same call when the task runs again.
type Approver func(ctx context.Context, q Question) error

// Question is a call that somebody is asked about.
type Question struct {
	Task         Task
	Server, Tool string
	Signature    string          // of the tool, in Python
	Args         json.RawMessage // as the program gave them, with privacy tokens
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
				return Result{}, fail(c, Forbidden, "the fleet's policy refuses this call").hint("tools.destructive and tools.policy of the settings say what is refused")
			case Ask:
				if cfg.Hooks.Approve == nil {
					return Result{}, fail(c, Approval, "approval_required: somebody has to approve this call, and nobody can be asked").
						hint("an operator may set tools.policy of %s to allow", c.ID())
				}
				q := Question{Task: cfg.Task, Server: c.Server, Tool: c.Tool, Signature: c.def.Signature, Args: c.given}
				if err := cfg.Hooks.Approve(ctx, q); err != nil {
					if ctx.Err() != nil {
						return Result{}, context.Cause(ctx)
					}
					return Result{}, fail(c, Forbidden, "the call was not approved: %v", err)
				}
			case Allow:
			}
			return next(ctx, c)
		}
	}
}
