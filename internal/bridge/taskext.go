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

// This file implements the protocol's extension for long-running calls (SEP-2663). For a client that
// declares it, tools/call may return a task, which tasks/get reads, tasks/update sends answers to and
// tasks/cancel stops. These tasks are the fleet's; the bridge stores nothing.

// tasksExtension is the name of the extension among the capabilities.
const tasksExtension = "io.modelcontextprotocol/tasks"

// taskState is a task in the form of the extension.
type taskState struct {
	TaskID         string    `json:"taskId"`
	Status         string    `json:"status"` // working | input_required | completed | failed | cancelled
	StatusMessage  string    `json:"statusMessage,omitempty"`
	CreatedAt      time.Time `json:"createdAt"`
	LastUpdatedAt  time.Time `json:"lastUpdatedAt"`
	TTLMs          *int64    `json:"ttlMs"` // how long an ended task is kept after LastUpdatedAt; null: for ever
	PollIntervalMs int       `json:"pollIntervalMs,omitempty"`

	// Only in responses to tasks/get: of a completed, a failed and an input_required task.
	Result        *mcp.CallToolResult `json:"result,omitempty"`
	Error         *jsonrpc.Error      `json:"error,omitempty"`
	InputRequests mcp.InputRequestMap `json:"inputRequests,omitempty"`
}

type taskResult struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
	taskState
}

// callResult is an mcp.CallToolResult with its type, which the SDK sets only for its own handlers.
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
		return p.pendingTask(rec, canElicitValue(ctx)), nil
	}
	result, err := p.view(rec, &partial{}, viewOptions{}).result()
	return stateOf(rec, result), err
}

func forbidden(what string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "this token may not " + what}
}

// taskError returns an error of the protocol. An unknown id and an id of another tenant look alike.
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

// stateOf returns a record in the form of the extension, with the result of a task that has ended.
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
	case rec.Status.Terminal(): // also a failed program: the call completed, with an error as its result
		s.Status, s.Result = "completed", result
	}
	return s
}

// errNoTasks is returned to a client that has to accept tasks and does not.
func errNoTasks() error {
	required := map[string]any{"extensions": map[string]any{tasksExtension: struct{}{}}}
	data, _ := json.Marshal(map[string]any{"requiredCapabilities": required}) // constants
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "the client has not declared the extension " + tasksExtension, Data: data,
	}
}

// clientRequest is what requests of the protocol say about their client.
type clientRequest interface {
	ProtocolVersion() string
	ClientCapabilities() *mcp.ClientCapabilities
}

// acceptsTasks reports whether the request declares the extension.
func acceptsTasks(req mcp.Request) bool {
	r, ok := req.(clientRequest)
	if !ok || r.ProtocolVersion() < modern {
		return false
	}
	caps := r.ClientCapabilities()
	return caps != nil && caps.Extensions[tasksExtension] != nil
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
			if h := ts.submittedTool(c); h != nil {
				return ts.callForTask(ctx, c, h)
			}
		}
		return next(ctx, method, req)
	}
}

// submittedTool returns the handler of the called tool if it may return a task: it submits one, and the
// call does not continue an earlier one.
func (ts *toolSet) submittedTool(c *mcp.CallToolRequest) handler {
	if c.Params.RequestState != "" {
		return nil
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.submitted[c.Params.Name]
}

// callForTask calls a tool for a client that accepts a task in place of the answer.
func (ts *toolSet) callForTask(ctx context.Context, req *mcp.CallToolRequest, h handler) (mcp.Result, error) {
	c := &call{principal: ts.principal, req: req, begun: time.Now(), returnTask: true}
	a := ts.handle(ctx, c, h)
	if a.task != nil {
		return &taskResult{ResultType: "task", taskState: *a.task}, nil
	}
	r, err := a.result()
	if err != nil {
		return nil, err
	}
	return &callResult{
		ResultType: "complete", Content: r.Content, StructuredContent: r.StructuredContent, IsError: r.IsError,
	}, nil
}

// canElicitKey carries whether the client of a request of the extension can be asked: the SDK passes only
// the parameters of a custom method to its handler.
type canElicitKey struct{}

func canElicitValue(ctx context.Context) bool {
	can, _ := ctx.Value(canElicitKey{}).(bool)
	return can
}

// checkTaskRequest refuses a request of the extension if the client has not declared it, or if its routing
// header names another task than its body.
func checkTaskRequest(req mcp.Request) error {
	if !acceptsTasks(req) {
		return errNoTasks()
	}
	t, ok := req.GetParams().(*taskParams)
	if !ok || req.GetExtra() == nil {
		return nil
	}
	if name := strings.TrimSpace(req.GetExtra().Header.Get("Mcp-Name")); name != "" && name != t.TaskID {
		return &jsonrpc.Error{
			Code: mcp.CodeHeaderMismatch, Message: "the header Mcp-Name differs from the taskId of the body",
		}
	}
	return nil
}
