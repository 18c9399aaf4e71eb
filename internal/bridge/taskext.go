package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

// This file implements the protocol's extension for long-running calls (SEP-2663). For a client that declares it,
// tools/call may return a task. tasks/get reads the task, tasks/update sends the user's decisions, and tasks/cancel
// cancels it. The tasks are the fleet's; the bridge stores nothing.

// taskState is a task as the extension defines it.
type taskState struct {
	TaskID         string    `json:"taskId"`
	Status         string    `json:"status"` // working | input_required | completed | failed | cancelled
	StatusMessage  string    `json:"statusMessage,omitempty"`
	CreatedAt      time.Time `json:"createdAt"`
	LastUpdatedAt  time.Time `json:"lastUpdatedAt"`
	TTLMs          *int64    `json:"ttlMs"` // how long an ended task is kept after LastUpdatedAt; null means for ever
	PollIntervalMs int       `json:"pollIntervalMs,omitempty"`

	// Only in responses to tasks/get. Each belongs to one status: completed, failed, input_required.
	Result        *mcp.CallToolResult `json:"result,omitempty"`
	Error         *jsonrpc.Error      `json:"error,omitempty"`
	InputRequests mcp.InputRequestMap `json:"inputRequests,omitempty"`
}

type taskResult struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
	taskState
}

// callResult is an mcp.CallToolResult with a resultType, which the SDK adds only to the results of its own handlers.
type callResult struct {
	mcp.ResultBase
	ResultType        string        `json:"resultType"`
	Content           []mcp.Content `json:"content"`
	StructuredContent any           `json:"structuredContent,omitempty"`
	IsError           bool          `json:"isError,omitempty"`
}

type taskParams struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses,omitempty"`
}

type taskAck struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

// addTaskMethods adds the methods of the extension.
func (p *principal) addTaskMethods(s *mcp.Server) {
	addTaskMethod(s, "tasks/get", func(ctx context.Context, t *taskParams) (*taskResult, error) {
		state, err := p.getTask(ctx, t.TaskID)
		return &taskResult{ResultType: "complete", taskState: state}, err
	})
	ack := &taskAck{ResultType: "complete"}
	addTaskMethod(s, "tasks/cancel", func(ctx context.Context, t *taskParams) (*taskAck, error) {
		if !p.may(scopeSubmit) {
			return nil, forbidden("cancel tasks")
		}
		_, err := p.fleet.Cancel(ctx, t.TaskID)
		return ack, taskError(t.TaskID, err)
	})
	addTaskMethod(s, "tasks/update", func(ctx context.Context, t *taskParams) (*taskAck, error) {
		return ack, p.updateTask(ctx, t.TaskID, t.InputResponses)
	})
}

func addTaskMethod[R mcp.Result](s *mcp.Server, name string, handle func(context.Context, *taskParams) (R, error)) {
	h := func(ctx context.Context, _ *mcp.ServerSession, t *taskParams) (R, error) { return handle(ctx, t) }
	if err := mcp.AddReceivingCustomMethod(s, name, h); err != nil {
		panic(fmt.Sprintf("%s: %v", name, err)) // the SDK defines a method of this name
	}
}

// getTask reads a task, with its result once it has ended.
func (p *principal) getTask(ctx context.Context, id string) (taskState, error) {
	if !p.may(scopeRead) {
		return taskState{}, forbidden("read tasks")
	}
	rec, err := p.fleet.Get(ctx, id)
	if err != nil {
		return taskState{}, taskError(id, err)
	}
	if !rec.Status.Terminal() {
		canAsk, _ := ctx.Value(canElicitKey{}).(bool)
		return p.pendingTask(rec, canAsk), nil
	}
	result, err := p.view(ctx, rec, &partial{}, viewOptions{}).encode()
	return stateOf(rec, result), err
}

// pendingTask returns, in the extension's form, a task that has not ended. If canAsk is true, it asks about the task's
// calls that wait for approval.
func (p *principal) pendingTask(rec client.Record, canAsk bool) taskState {
	s := stateOf(rec, nil)
	pending := rec.Pending(time.Now())
	if len(pending) == 0 {
		return s
	}
	s.StatusMessage = fmt.Sprintf("a tool call waits for approval: codefleet approve %s %s",
		rec.TaskID, pending[0].Call)
	if canAsk && p.may(scopeApprove) {
		s.Status, s.InputRequests = "input_required", formsAbout(pending)
	}
	return s
}

// updateTask applies the decisions in a tasks/update. It ignores decisions about calls that are not pending.
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

func forbidden(what string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "this token may not " + what}
}

// taskError returns a protocol error. The error is the same for an unknown task and for another tenant's task.
func taskError(id string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*client.APIError](err); ok && e.Code == errcode.UnknownTask {
		return &jsonrpc.Error{
			Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown task %q", text.Truncate(id, 64)),
		}
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: publicMessage(err)}
}

// retention is how long the fleet keeps an ended task.
const retention = 7 * 24 * time.Hour

// stateOf returns a record in the extension's form. result is the result of a task that has ended.
func stateOf(rec client.Record, result *mcp.CallToolResult) taskState {
	s := taskState{
		TaskID: rec.TaskID, Status: "working", StatusMessage: string(rec.Status), PollIntervalMs: pollAfter(rec),
		CreatedAt: rec.SubmittedAt, LastUpdatedAt: rec.SubmittedAt, TTLMs: new(retention.Milliseconds()),
	}
	for _, t := range []time.Time{rec.StartedAt, rec.EndedAt} {
		if t.After(s.LastUpdatedAt) {
			s.LastUpdatedAt = t
		}
	}
	switch {
	case rec.Status == client.Cancelled:
		s.Status = "cancelled"
	case rec.Status.Terminal(): // even if the program failed: the call completed, with an error as its result
		s.Status, s.Result = "completed", result
	}
	return s
}

// errNoTasks is the error for a client that uses the extension without declaring it.
func errNoTasks() error {
	required := map[string]any{"extensions": map[string]any{tasksExtension: struct{}{}}}
	data, _ := json.Marshal(map[string]any{"requiredCapabilities": required}) // constants
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "the client has not declared the extension " + tasksExtension, Data: data,
	}
}

// middleware handles the extension, before the SDK's own handlers.
func (ts *toolSet) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if strings.HasPrefix(method, "tasks/") {
			if err := checkTaskRequest(req); err != nil {
				return nil, err
			}
			return next(context.WithValue(ctx, canElicitKey{}, canElicit(req)), method, req)
		}
		if c, ok := req.(*mcp.CallToolRequest); ok && method == "tools/call" && acceptsTasks(req) {
			if h := ts.submittingTool(c); h != nil {
				return ts.callForTask(ctx, c, h)
			}
		}
		return next(ctx, method, req)
	}
}

// submittingTool returns the handler of the called tool if the call may return a task: the tool submits one, and the
// call does not continue an earlier call. Otherwise it returns nil.
func (ts *toolSet) submittingTool(c *mcp.CallToolRequest) handler {
	if c.Params.RequestState != "" {
		return nil
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.submitted[c.Params.Name]
}

// callForTask calls a tool for a client that accepts a task instead of a result.
func (ts *toolSet) callForTask(ctx context.Context, req *mcp.CallToolRequest, h handler) (mcp.Result, error) {
	c := &call{principal: ts.principal, req: req, begun: time.Now(), returnTask: true}
	r := ts.handle(ctx, c, h)
	if r.task != nil {
		return &taskResult{ResultType: "task", taskState: *r.task}, nil
	}
	out, err := r.encode()
	if err != nil {
		return nil, err
	}
	return &callResult{
		ResultType: "complete", Content: out.Content, StructuredContent: out.StructuredContent, IsError: out.IsError,
	}, nil
}

// canElicitKey is the context key of a bool: whether the client can ask its user. The SDK passes only the parameters of
// a custom method to its handler, without the client's capabilities.
type canElicitKey struct{}

// checkTaskRequest refuses a request of the extension if it names no task, if the client has not declared the
// extension, or if the routing header does not name the task in the body.
func checkTaskRequest(req mcp.Request) error {
	t, ok := req.GetParams().(*taskParams)
	if !ok || t == nil { // the SDK calls the handler of a custom method even if there are no parameters
		return errTaskParams("the parameters are missing")
	}
	if !acceptsTasks(req) {
		return errNoTasks()
	}
	if t.TaskID == "" {
		return errTaskParams("taskId is missing")
	}
	if req.GetExtra() == nil {
		return nil
	}
	if name := strings.TrimSpace(req.GetExtra().Header.Get("Mcp-Name")); name != "" && name != t.TaskID {
		return &jsonrpc.Error{
			Code: mcp.CodeHeaderMismatch, Message: "the header Mcp-Name differs from the taskId of the body",
		}
	}
	return nil
}

func errTaskParams(what string) error {
	return &jsonrpc.Error{
		Code: jsonrpc.CodeInvalidParams, Message: what + ": send the id of a task as taskId in params",
	}
}
