package broker

import (
	"context"
	"encoding/json"

	"github.com/codefleet/codefleet/internal/errcode"
)

// Approver requests approval of a call and blocks until a person decides or the request expires. The wait
// counts towards the call's time. If Approver returns an error, the call is not made. It may be called
// concurrently. A later run of the task may call it again for the same call; an earlier decision then still holds.
type Approver func(ctx context.Context, r ApprovalRequest) (Approval, error)

// ApprovalRequest is a call that needs approval.
type ApprovalRequest struct {
	Task         Task
	Call         string // the call's name within its task, the same in every run
	Server, Tool string
	Signature    string          // the tool's Python signature
	Effects      string          // as the tool's definition declares them
	Args         json.RawMessage // as the program passed them, with privacy tokens; use Preview to display them
	ArgsHash     string
}

// Approval is the outcome of an ApprovalRequest.
type Approval struct {
	State  ApprovalState
	By     string // who decided
	Reason string
}

// ApprovalState says how a request for approval ended.
type ApprovalState string

// The outcomes of an approval request.
const (
	Granted ApprovalState = "approved"
	Denied  ApprovalState = "denied"
	Expired ApprovalState = "expired" // without a decision
)

// awaitApproval returns nil once the call is approved and the approval is audited.
func awaitApproval(ctx context.Context, cfg Config, c Call) error {
	const required = "approval_required: this call needs approval"
	if cfg.Hooks.Approve == nil {
		return fail(c, errcode.ApprovalRequired, required+", but the fleet requests no approvals").
			hint("an operator can set tools.policy for %s to allow, or set tools.approval_timeout", c.ID())
	}
	r := ApprovalRequest{
		Task: cfg.Task, Call: c.key.name(), Server: c.Server, Tool: c.Tool, Signature: c.def.Signature,
		Effects: c.def.Annotations.Effects(), Args: c.originalArgs, ArgsHash: c.key.ArgsHash,
	}
	a, err := cfg.Hooks.Approve(ctx, r)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fail(c, errcode.ApprovalRequired, required+", but the request failed: %v", err)
	}
	if c.record != nil {
		c.record.Call, c.record.Approval, c.record.ApprovedBy = r.Call, a.State, a.By
		if err := cfg.Audit.Decided(ctx, *c.record); err != nil {
			return fail(c, errcode.Internal, "the call was not made, because its approval could not be audited")
		}
	}
	switch a.State {
	case Granted:
		return nil
	case Denied:
		message := "the call was denied by " + a.By
		if a.Reason != "" {
			message += ": " + a.Reason
		}
		return fail(c, errcode.Forbidden, "%s", message)
	case Expired:
	}
	return fail(c, errcode.ApprovalRequired, required+", but the request expired").
		hint("run the task again when a person can approve it")
}
