package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/errcode"
)

// Decision is what happens to a destructive call.
type Decision string

// The decisions.
const (
	Allow           Decision = "allow"
	Deny            Decision = "deny"
	RequireApproval Decision = "approve" // an Approver says; where there is none, it is refused
)

// Policy decides about the tools that may delete or overwrite, or do not say that they do not.
type Policy struct {
	Destructive Decision
	Tools       map[string]Decision // by "server/tool" or "server/*", before all else, destructive or not
}

// Approver asks somebody about a call that a Policy wants approved, which waits for it. The wait
// counts as time of the call. An error means that nobody could be asked, and the call is not made. It
// may be called by several goroutines, and again for the same call when the task runs again: then the
// answer of before counts.
type Approver func(ctx context.Context, q ApprovalRequest) (Approval, error)

// Question is a call that somebody is asked about.
type ApprovalRequest struct {
	Task         Task
	Call         string // names the call within its task, the same in every run
	Server, Tool string
	Signature    string          // of the tool, in Python
	Args         json.RawMessage // as the program gave them, with privacy tokens; Shown makes them fit to be seen
	ArgsHash     string
}

// Verdict is what came of a Question.
type Approval struct {
	State  ApprovalState
	By     string // who said so
	Reason string
}

// Approved says how a Question was answered.
type ApprovalState string

// The answers.
const (
	Granted ApprovalState = "approved"
	Denied  ApprovalState = "denied"
	Expired ApprovalState = "expired" // nobody answered in time
)

func (p Policy) check() error {
	all := []error{checkDecision("destructive", p.Destructive)}
	for id, d := range p.Tools {
		all = append(all, checkDecision(id, d))
	}
	return errors.Join(all...)
}

func checkDecision(what string, d Decision) error {
	switch d {
	case Allow, Deny, RequireApproval:
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

func policy(cfg Config) func(handler) handler {
	return func(next handler) handler {
		return func(ctx context.Context, c Call) (Result, error) {
			switch cfg.Policy.decide(c) {
			case Deny:
				return Result{}, fail(c, errcode.Forbidden, "the fleet's policy refuses this call").hint("tools.destructive and tools.policy of the settings say what is refused")
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

// approved returns nil when somebody has approved the call, and that is on record.
func awaitApproval(ctx context.Context, cfg Config, c Call) error {
	if cfg.Hooks.Approve == nil {
		return fail(c, errcode.ApprovalRequired, "approval_required: somebody has to approve this call, and nobody can be asked").
			hint("an operator may set tools.policy of %s to allow, or tools.approval_timeout", c.ID())
	}
	q := ApprovalRequest{
		Task: cfg.Task, Call: c.key.name(), Server: c.Server, Tool: c.Tool, Signature: c.def.Signature, Args: c.originalArgs, ArgsHash: c.key.ArgsHash,
	}
	v, err := cfg.Hooks.Approve(ctx, q)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fail(c, errcode.ApprovalRequired, "approval_required: somebody has to approve this call, and could not be asked: %v", err)
	}
	if c.record != nil {
		c.record.Call, c.record.Approval, c.record.ApprovedBy = q.Call, v.State, v.By
		if err := cfg.Audit.Decided(ctx, *c.record); err != nil {
			return fail(c, errcode.Internal, "the call was not made: its approval could not be put on record")
		}
	}
	switch v.State {
	case Granted:
		return nil
	case Denied:
		message := "the call was not approved: " + v.By + " said no"
		if v.Reason != "" {
			message += ": " + v.Reason
		}
		return fail(c, errcode.Forbidden, "%s", message)
	case Expired:
	}
	return fail(c, errcode.ApprovalRequired, "approval_required: nobody approved this call in time").hint("run the task again when somebody is there")
}
