package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/form"
	"github.com/codefleet/codefleet/internal/text"
)

// This file asks the client's user about tool calls that wait for approval. Older revisions of the protocol do this
// by elicitation within a call, newer ones with an input_required result (SEP-2322), and the extension for long calls
// (taskext.go) with an input_required task. The pending calls and the decisions are in the task's record, so a person
// may also decide at another bridge or at the command line. No tool sends a decision, because a model must not approve
// its own calls.

func (c *call) canAsk() bool { return c.may(scopeApprove) && canElicit(c.req) }

// askThenView asks the user about the task's pending calls, waits for the task until end, and returns the task as a
// result. With newer revisions of the protocol, it returns the questions instead, and the client repeats the call. It
// does not ask if the token may not approve calls, if the client cannot show a form to the user, or if the client
// asks for no wait. skip lists the calls that the user did not decide.
func (c *call) askThenView(
	ctx context.Context, rec client.Record, got *partial, end time.Time, o viewOptions, skip []string,
) (*result, error) {
	for end.After(c.begun) && c.canAsk() {
		pending := pendingExcept(rec, skip)
		if len(pending) == 0 {
			break
		}
		if c.req.ProtocolVersion() >= modern {
			return &result{questions: formsAbout(pending), requestState: rec.TaskID}, nil
		}
		decided, err := c.elicit(ctx, rec.TaskID, pending[0])
		if err != nil {
			return nil, err
		}
		if !decided {
			skip = append(skip, pending[0].Call)
		}
		if rec, err = c.follow(ctx, rec.TaskID, max(0, time.Until(end)), got, skip...); err != nil {
			return nil, err
		}
	}
	if o.part != "" && rec.Status.Terminal() {
		return c.viewPart(ctx, rec.TaskID, o.part, o.offset)
	}
	return c.view(ctx, rec, got, o), nil
}

// elicit asks the user about one call, until the approval expires or MaxWait has passed since the client's call began.
// It reports whether the call has been decided.
func (c *call) elicit(ctx context.Context, id string, q client.Approval) (decided bool, err error) {
	until := c.begun.Add(c.b.o.MaxWait)
	if q.ExpiresAt.Before(until) {
		until = q.ExpiresAt
	}
	asking, stop := context.WithDeadline(ctx, until)
	defer stop()
	defer context.AfterFunc(c.b.stopping, stop)()
	r, err := c.req.Session.Elicit(asking, formAbout(q))
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		c.b.o.Log.DebugContext(ctx, "elicitation failed", "task_id", id, "error", err)
		return false, nil
	}
	return c.decide(ctx, id, q.Call, r)
}

// The choices of the form.
const (
	choiceApprove    = "approve"
	choiceApproveAll = "approve_all"
	choiceDeny       = "deny"
)

// approvalForm is the form with which a person decides on a call.
var approvalForm = sync.OnceValue(func() form.Form {
	f, err := form.Parse(fmt.Appendf(nil, `{"type": "object", "required": ["decision"], "properties": {"decision": {
		"type": "string", "title": "Decision", "enum": [%q, %q, %q],
		"description": "approve_all approves this and every further call of the same tool in this task"}}}`,
		choiceApprove, choiceApproveAll, choiceDeny))
	if err != nil {
		panic("bridge: form of approvals: " + err.Error())
	}
	return f
})

// formAbout returns the form that asks about one call.
func formAbout(q client.Approval) *mcp.ElicitParams {
	message := fmt.Sprintf("A program that runs in codefleet wants to call %s/%s.\n%s\n", q.Server, q.Tool, q.Signature)
	if q.Effects != "" {
		message += "declared effects: " + q.Effects + "\n"
	}
	message += "arguments: " + string(text.UnescapeHTML(q.Arguments))
	return &mcp.ElicitParams{Mode: "form", Message: message, RequestedSchema: approvalForm()}
}

func formsAbout(pending []client.Approval) mcp.InputRequestMap {
	m := mcp.InputRequestMap{}
	for _, q := range pending {
		m[q.Call] = formAbout(q)
	}
	return m
}

// decide sends the user's decision about a call to the fleet. It reports whether the call has been decided, now or
// earlier. A user who closed the form has not decided.
func (p *principal) decide(ctx context.Context, id, call string, r *mcp.ElicitResult) (bool, error) {
	d := client.Decision{Call: call}
	switch choice := r.Content["decision"]; {
	case r.Action == "decline", r.Action == "accept" && choice == choiceDeny:
	case r.Action == "accept" && (choice == choiceApprove || choice == choiceApproveAll):
		d.Approve, d.AllOfTool = true, choice == choiceApproveAll
	default:
		return false, nil
	}
	_, err := p.fleet.Decide(ctx, id, d)
	if e, ok := errors.AsType[*client.APIError](err); ok &&
		(e.Code == errcode.AlreadyAnswered || e.Code == errcode.ApprovalOver) {
		return true, nil
	}
	return err == nil, err
}

// applyResponses applies the user's decisions in a repeated call. It returns the calls that the user did not decide.
func (c *call) applyResponses(ctx context.Context, id string) (undecided []string, err error) {
	if !c.may(scopeApprove) {
		return nil, badArgument("this token may not approve tool calls")
	}
	for call, response := range c.req.Params.InputResponses {
		decided := false
		if r, ok := response.(*mcp.ElicitResult); ok {
			if decided, err = c.decide(ctx, id, call, r); err != nil {
				return nil, err
			}
		}
		if !decided {
			undecided = append(undecided, call)
		}
	}
	return undecided, nil
}
