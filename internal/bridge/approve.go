package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

// This file asks the user of a client about tool calls of tasks that wait for approval: by elicitation
// within a call of the older protocol, by an input_required result (SEP-2322) of the newer one, or by an
// input_required task of the extension. What waits, and the answers, are in the task's record; nothing
// is kept here, and another bridge, or the command line, may answer as well. There is no tool that
// answers: a model does not approve its own calls.

// scopeApprove is what a token needs for its client to be asked.
const scopeApprove = "approve"

// approvalOut is a tool call that waits, as clients that cannot be asked get to see it.
type approvalOut struct {
	Call      string    `json:"call"`
	Tool      string    `json:"tool" jsonschema:"server/tool that the program calls"`
	Arguments any       `json:"arguments" jsonschema:"of the call; secrets hidden, long values cut"`
	ExpiresAt time.Time `json:"expires_at" jsonschema:"when the program gets an error instead"`
	Approve   string    `json:"approve" jsonschema:"what a person types to approve it"`
	Deny      string    `json:"deny" jsonschema:"what a person types to deny it"`
}

// waiting fills in what waits for approval.
func (out *taskOut) waiting(rec client.Record) {
	for _, q := range rec.Pending(time.Now()) {
		approve := "codefleet approve " + rec.TaskID + " " + q.Call
		out.Approval = append(out.Approval, approvalOut{q.Call, q.Server + "/" + q.Tool, q.Arguments, q.ExpiresAt, approve, approve + " --deny"})
	}
	if len(out.Approval) == 0 {
		return
	}
	out.PollAfterMS = max(out.PollAfterMS, 5000)
	out.Hint = fmt.Sprintf("not an error: the program waits until a person approves a tool call, see approval: show it to your user, who can type `%s`, and call get_task with this task_id in %d ms",
		out.Approval[0].Approve, out.PollAfterMS)
}

// elicits reports whether the client of a request can put a form before its user.
func elicits(req mcp.Request) bool {
	r, ok := req.(modernRequest)
	if !ok {
		return false
	}
	caps := r.ClientCapabilities()
	return caps != nil && caps.Elicitation != nil && (caps.Elicitation.Form != nil || caps.Elicitation.URL == nil)
}

func (c *call) canAsk() bool { return c.may(scopeApprove) && elicits(c.req) }

// unheard are the calls of a task that wait and are not among the known ones.
func unheard(rec client.Record, known []string) []client.Approval {
	return slices.DeleteFunc(rec.Pending(time.Now()), func(q client.Approval) bool { return slices.Contains(known, q.Call) })
}

// attend shows a task, after it has asked about calls that wait where the client can be asked. end is
// when the call's wait is over (a call that does not wait does not ask); known are calls that its user
// would not decide about.
func (c *call) attend(ctx context.Context, rec client.Record, seen *seen, end time.Time, o viewOptions, known []string) (*answer, error) {
	for end.After(c.begun) && c.canAsk() {
		open := unheard(rec, known)
		if len(open) == 0 {
			break
		}
		if c.req.ProtocolVersion() >= modern {
			return &answer{ask: questions(open), state: rec.TaskID}, nil
		}
		asked, err := c.elicit(ctx, rec.TaskID, open[0])
		if err != nil {
			return nil, err
		}
		if !asked {
			known = append(known, open[0].Call)
		}
		if rec, err = c.follow(ctx, rec.TaskID, max(0, time.Until(end)), seen, known...); err != nil {
			return nil, err
		}
	}
	return c.view(rec, seen, o), nil
}

// elicit asks about one call, as long as the client is sure to wait for the answer to its own, and
// reports whether that is decided now.
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
		c.b.o.Log.DebugContext(ctx, "client's user not asked", "task_id", id, "error", err)
		return false, nil
	}
	return c.decide(ctx, id, q.Call, r)
}

// The words of the form.
const (
	sayApprove    = "approve"
	sayApproveAll = "approve_all"
	sayDeny       = "deny"
)

// question is the form about one call.
func question(q client.Approval) *mcp.ElicitParams {
	return &mcp.ElicitParams{
		Mode: "form",
		Message: fmt.Sprintf("A program that runs in codefleet wants to call %s/%s, which may delete or overwrite.\n%s\narguments: %s",
			q.Server, q.Tool, q.Signature, q.Arguments),
		RequestedSchema: &jsonschema.Schema{
			Type: "object", Required: []string{"decision"},
			Properties: map[string]*jsonschema.Schema{"decision": {
				Type: "string", Title: "Decision", Enum: []any{sayApprove, sayApproveAll, sayDeny},
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

// decide takes a user's answer about a call, and reports whether the call is decided now, by this
// answer or by an earlier one. A user who closed the form has not decided.
func (p *principal) decide(ctx context.Context, id, call string, r *mcp.ElicitResult) (bool, error) {
	a := client.Answer{Call: call}
	switch said := r.Content["decision"]; {
	case r.Action == "decline", r.Action == "accept" && said == sayDeny:
	case r.Action == "accept" && (said == sayApprove || said == sayApproveAll):
		a.Approve, a.AllOfTool = true, said == sayApproveAll
	default:
		return false, nil
	}
	_, err := p.fleet.Answer(ctx, id, a)
	if e, ok := errors.AsType[*client.APIError](err); ok && (e.Code == errcode.AlreadyAnswered || e.Code == errcode.ApprovalOver) {
		return true, nil
	}
	return err == nil, err
}

// resume takes the answers that came with a call which was made again for them, and returns the calls
// that its user would not decide about.
func (c *call) resume(ctx context.Context, id string) (known []string, err error) {
	if !c.may(scopeApprove) {
		return nil, badArgument("this token may not approve tool calls")
	}
	for call, said := range c.req.Params.InputResponses {
		r, ok := said.(*mcp.ElicitResult)
		decided := false
		if ok {
			if decided, err = c.decide(ctx, id, call, r); err != nil {
				return nil, err
			}
		}
		if !decided {
			known = append(known, call)
		}
	}
	return known, nil
}

type askingKey struct{}

// ofFleet is a task of the fleet as the extension shows it: one with calls that wait asks, if its client
// can be asked.
func (p *principal) ofFleet(ctx context.Context, rec client.Record, result *mcp.CallToolResult) TaskState {
	s := taskState(rec, result)
	open := rec.Pending(time.Now())
	if len(open) == 0 {
		return s
	}
	s.StatusMessage = fmt.Sprintf("a tool call waits for approval: codefleet approve %s %s", rec.TaskID, open[0].Call)
	if asking, _ := ctx.Value(askingKey{}).(bool); asking && p.may(scopeApprove) {
		s.Status, s.InputRequests = "input_required", questions(open)
	}
	return s
}

// update takes the answers that tasks/update brings.
func (p *principal) update(ctx context.Context, id string, responses map[string]json.RawMessage) error {
	rec, err := p.fleet.Get(ctx, id)
	if err != nil || len(responses) == 0 {
		return taskError(id, err)
	}
	if !p.may(scopeApprove) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "this token may not approve tool calls"}
	}
	for _, q := range rec.Pending(time.Now()) { // answers to what was not asked are passed over
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
