package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
)

// Decision is what a Policy decides about a call.
type Decision string

// The decisions, as the settings name them.
const (
	Allow           Decision = "allow"
	Deny            Decision = "deny"
	RequireApproval Decision = "approve" // an Approver must approve the call; without one, it is rejected
)

// Decisions lists all decisions.
var Decisions = []Decision{Allow, Deny, RequireApproval}

// Policy decides whether a call may be made. Destructive applies to tools that declare, or do not rule out,
// that they delete or overwrite something.
type Policy struct {
	Destructive Decision
	Tools       map[string]Decision // by "server/tool" or "server/*", see tools.Tool.Names; precedes Destructive
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
		return fmt.Errorf("policy for %s is %q; want one of %q", what, d, Decisions)
	}
	return nil
}

// decide returns the decision for the tool, or else for its server, or else for its effects.
func (p Policy) decide(c Call) Decision {
	names := c.def.Names()
	for _, name := range names {
		if d, ok := p.Tools[name]; ok {
			return d
		}
	}
	for _, name := range names {
		server, _, _ := strings.Cut(name, "/")
		if d, ok := p.Tools[server+"/*"]; ok {
			return d
		}
	}
	if c.def.Annotations.Destroys() {
		return p.Destructive
	}
	return Allow
}

// policy rejects calls that the Policy denies. If the Policy requires approval of a call, it waits for the approval.
func policy(cfg Config) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		switch cfg.Policy.decide(c) {
		case Allow:
			return next(ctx, c)
		case RequireApproval:
			if err := awaitApproval(ctx, cfg, c); err != nil {
				return Result{}, err
			}
			return next(ctx, c)
		case Deny:
		}
		return Result{}, fail(c, errcode.Forbidden, "the fleet's policy denies this call").
			hint("see the settings tools.destructive and tools.policy")
	}
}
