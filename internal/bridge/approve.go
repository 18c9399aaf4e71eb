package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

// This file asks the user of a client about tool calls that wait for approval: by elicitation within a call
// of the older protocol, by an input_required result (SEP-2322) of the newer one, or by an input_required
// task of the extension. The pending calls and the answers are in the task's record, so that another bridge
// or the command line may answer as well. No tool answers: a model must not approve its own calls.

// approvalOut is a pending tool call, for clients whose user cannot be asked.
type approvalOut struct {
	Call      string    `json:"call"`
	Tool      string    `json:"tool" jsonschema:"server/tool that the program calls"`
	Arguments any       `json:"arguments" jsonschema:"of the call; secrets redacted, long values truncated"`
	ExpiresAt time.Time `json:"expires_at" jsonschema:"when the program gets an error instead"`
	Approve   string    `json:"approve" jsonschema:"command with which a person approves it"`
	Deny      string    `json:"deny" jsonschema:"command with which a person denies it"`
}

// addApprovals adds the calls that wait for approval, and the hint to get them approved.
func (out *taskOut) addApprovals(rec client.Record) {
	for _, q := range rec.Pending(time.Now()) {
		approve := "codefleet approve " + rec.TaskID + " " + q.Call
		out.Approval = append(out.Approval, approvalOut{
			q.Call, q.Server + "/" + q.Tool, q.Arguments, q.ExpiresAt, approve, approve + " --deny",
		})
	}
	if len(out.Approval) == 0 {
		return
	}
	out.PollAfterMS = max(out.PollAfterMS, 5000)
	out.Hint = fmt.Sprintf("not an error: the program waits until a person approves a tool call, see approval: "+
		"show it to your user, who can type `%s`, and call get_task with this task_id in %d ms",
		out.Approval[0].Approve, out.PollAfterMS)
}

// canElicit reports whether the client of a request can show a form to its user.
func canElicit(req mcp.Request) bool {
	r, ok := req.(clientRequest)
	if !ok {
		return false
	}
	caps := r.ClientCapabilities()
	return caps != nil && caps.Elicitation != nil && (caps.Elicitation.Form != nil || caps.Elicitation.URL == nil)
}

func (c *call) canAsk() bool { return c.may(scopeApprove) && canElicit(c.req) }

// pendingExcept returns the calls of a task that wait for approval, without the skipped ones.
func pendingExcept(rec client.Record, skip []string) []client.Approval {
	return slices.DeleteFunc(rec.Pending(time.Now()), func(q client.Approval) bool {
		return slices.Contains(skip, q.Call)
	})
}

// askThenView returns a task as an answer. Before that, it asks about pending calls if the client can be
// asked, and waits for the task until end; a call that does not wait does not ask. skip lists the calls
// that the user did not decide.
func (c *call) askThenView(
	ctx context.Context, rec client.Record, got *partial, end time.Time, o viewOptions, skip []string,
) (*answer, error) {
	for end.After(c.begun) && c.canAsk() {
		open := pendingExcept(rec, skip)
		if len(open) == 0 {
			break
		}
		if c.req.ProtocolVersion() >= modern {
			return &answer{questions: questions(open), requestState: rec.TaskID}, nil
		}
		decided, err := c.elicit(ctx, rec.TaskID, open[0])
		if err != nil {
			return nil, err
		}
		if !decided {
			skip = append(skip, open[0].Call)
		}
		if rec, err = c.follow(ctx, rec.TaskID, max(0, time.Until(end)), got, skip...); err != nil {
			return nil, err
		}
	}
	return c.view(rec, got, o), nil
}

// elicit asks about one call, for at most as long as the client waits for the answer to its own call. It
// reports whether the call is decided now.
func (c *call) elicit(ctx context.Context, id string, q client.Approval) (decided bool, err error) {
	until := c.begun.Add(c.b.o.MaxWait)
	if q.ExpiresAt.Before(until) {
		until = q.ExpiresAt
	}
	asking, stop := context.WithDeadline(ctx, until)
	defer stop()
	defer context.AfterFunc(c.b.stopping, stop)()
	r, err := c.req.Session.Elicit(asking, question(q))
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

// question returns the form about one call.
func question(q client.Approval) *mcp.ElicitParams {
	return &mcp.ElicitParams{
		Mode: "form",
		Message: fmt.Sprintf(
			"A program that runs in codefleet wants to call %s/%s, which may delete or overwrite.\n%s\narguments: %s",
			q.Server,
			q.Tool,
			q.Signature,
			q.Arguments,
		),
		RequestedSchema: &jsonschema.Schema{
			Type: "object", Required: []string{"decision"},
			Properties: map[string]*jsonschema.Schema{"decision": {
				Type: "string", Title: "Decision", Enum: []any{choiceApprove, choiceApproveAll, choiceDeny},
				Description: "approve_all: this and every further call of the same tool in this task",
			}},
		},
	}
}

func questions(open []client.Approval) mcp.InputRequestMap {
	m := mcp.InputRequestMap{}
	for _, q := range open {
		m[q.Call] = question(q)
	}
	return m
}

// decide sends a user's decision about a call to the fleet. It reports whether the call is decided now, by
// this answer or an earlier one. A user who closed the form has not decided.
func (p *principal) decide(ctx context.Context, id, call string, r *mcp.ElicitResult) (bool, error) {
	a := client.Answer{Call: call}
	switch choice := r.Content["decision"]; {
	case r.Action == "decline", r.Action == "accept" && choice == choiceDeny:
	case r.Action == "accept" && (choice == choiceApprove || choice == choiceApproveAll):
		a.Approve, a.AllOfTool = true, choice == choiceApproveAll
	default:
		return false, nil
	}
	_, err := p.fleet.Answer(ctx, id, a)
	if e, ok := errors.AsType[*client.APIError](err); ok &&
		(e.Code == errcode.AlreadyAnswered || e.Code == errcode.ApprovalOver) {
		return true, nil
	}
	return err == nil, err
}

// applyResponses applies the user's decisions that a repeated call brings. It returns the calls that the
// user did not decide.
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

// pendingTask returns a task that has not ended in the form of the extension. If calls of it wait for
// approval and canAsk is true, it asks about them.
func (p *principal) pendingTask(rec client.Record, canAsk bool) taskState {
	s := stateOf(rec, nil)
	open := rec.Pending(time.Now())
	if len(open) == 0 {
		return s
	}
	s.StatusMessage = fmt.Sprintf("a tool call waits for approval: codefleet approve %s %s", rec.TaskID, open[0].Call)
	if canAsk && p.may(scopeApprove) {
		s.Status, s.InputRequests = "input_required", questions(open)
	}
	return s
}

// updateTask applies the decisions of a tasks/update. It ignores those about calls that are not pending.
func (p *principal) updateTask(ctx context.Context, id string, responses map[string]json.RawMessage) error {
	rec, err := p.fleet.Get(ctx, id)
	if err != nil || len(responses) == 0 {
		return taskError(id, err)
	}
	if !p.may(scopeApprove) {
		return forbidden("approve tool calls")
	}
	for _, q := range rec.Pending(time.Now()) {
		var r mcp.ElicitResult
		if raw, ok := responses[q.Call]; !ok || json.Unmarshal(raw, &r) != nil {
			continue
		}
		if _, err := p.decide(ctx, id, q.Call, &r); err != nil {
			return taskError(id, err)
		}
	}
	return nil
}
