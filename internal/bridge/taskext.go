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
)

// This file is the protocol's own long-running form, the extension of SEP-2663: to a client that
// declares it, a tools/call answers with a task, which tasks/get reads, tasks/update answers the
// questions of, and tasks/cancel stops. The tasks are the fleet's; nothing is kept here.

// tasksExtension is its name among the capabilities.
const tasksExtension = "io.modelcontextprotocol/tasks"

// TaskState is a task as the extension shows it.
type TaskState struct {
	TaskID         string    `json:"taskId"`
	Status         string    `json:"status"` // working | input_required | completed | failed | cancelled
	StatusMessage  string    `json:"statusMessage,omitempty"`
	CreatedAt      time.Time `json:"createdAt"`
	LastUpdatedAt  time.Time `json:"lastUpdatedAt"`
	TTLMs          *int64    `json:"ttlMs"` // after LastUpdatedAt, when the task has ended; null: for ever
	PollIntervalMs int       `json:"pollIntervalMs,omitempty"`

	// In answers to tasks/get only: of a completed, a failed, and an input_required task.
	Result        *mcp.CallToolResult `json:"result,omitempty"`
	Error         *jsonrpc.Error      `json:"error,omitempty"`
	InputRequests mcp.InputRequestMap `json:"inputRequests,omitempty"`
}

// TaskSource are tasks that are not the fleet's. Each method reports whether it knows the id.
type TaskSource interface {
	Task(id string) (TaskState, bool)
	Answer(id string, responses map[string]json.RawMessage) bool
	Cancel(id string) bool
}

type taskResult struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
	TaskState
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

// addTasks adds the methods of the extension.
func (p *principal) addTasks(s *mcp.Server) {
	add := func(method string, err error) {
		if err != nil {
			panic(fmt.Sprintf("%s: %v", method, err)) // a name that the SDK has taken
		}
	}
	ack := &taskAck{ResultType: "complete"}
	add("tasks/get", mcp.AddReceivingCustomMethod(s, "tasks/get", func(ctx context.Context, _ *mcp.ServerSession, t *taskParams) (*taskResult, error) {
		state, err := p.taskState(ctx, t.TaskID)
		return &taskResult{ResultType: "complete", TaskState: state}, err
	}))
	add("tasks/cancel", mcp.AddReceivingCustomMethod(s, "tasks/cancel", func(ctx context.Context, _ *mcp.ServerSession, t *taskParams) (*taskAck, error) {
		if p.extra != nil && p.extra.Cancel(t.TaskID) {
			return ack, nil
		}
		if !p.may(scopeSubmit) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "this token may not cancel tasks"}
		}
		_, err := p.fleet.Cancel(ctx, t.TaskID)
		return ack, taskError(t.TaskID, err)
	}))
	add("tasks/update", mcp.AddReceivingCustomMethod(s, "tasks/update", func(ctx context.Context, _ *mcp.ServerSession, t *taskParams) (*taskAck, error) {
		if p.extra != nil && p.extra.Answer(t.TaskID, t.InputResponses) {
			return ack, nil
		}
		return ack, p.update(ctx, t.TaskID, t.InputResponses)
	}))
}

// taskState reads a task, with its result when it has ended.
func (p *principal) taskState(ctx context.Context, id string) (TaskState, error) {
	if p.extra != nil {
		if s, ok := p.extra.Task(id); ok {
			return s, nil
		}
	}
	if !p.may(scopeRead) {
		return TaskState{}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "this token may not read tasks"}
	}
	rec, err := p.fleet.Get(ctx, id)
	if err != nil {
		return TaskState{}, taskError(id, err)
	}
	if !rec.Status.Terminal() {
		return p.ofFleet(ctx, rec, nil), nil
	}
	result, err := p.view(rec, &seen{}, viewOptions{}).result()
	return taskState(rec, result), err
}

// taskError is an error of the protocol. An id that is unknown and one of another tenant look alike.
func taskError(id string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*client.APIError](err); ok && e.Code == errcode.UnknownTask {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown task %q", cut(id, 64))}
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: message(err)}
}

// keptFor is how long the fleet keeps a task that has ended.
const keptFor = 7 * 24 * time.Hour

// taskState is a record as the extension shows it; result is that of a task that has ended.
func taskState(rec client.Record, result *mcp.CallToolResult) TaskState {
	s := TaskState{
		TaskID: rec.TaskID, Status: "working", StatusMessage: string(rec.Status), PollIntervalMs: pollAfter(rec),
		CreatedAt: rec.SubmittedAt, LastUpdatedAt: rec.SubmittedAt, TTLMs: new(keptFor.Milliseconds()),
	}
	for _, t := range []time.Time{rec.StartedAt, rec.EndedAt} {
		if t.After(s.LastUpdatedAt) {
			s.LastUpdatedAt = t
		}
	}
	switch {
	case rec.Status == client.Cancelled:
		s.Status = "cancelled"
	case rec.Status.Terminal(): // a program that failed has completed, with an error as its result
		s.Status, s.Result = "completed", result
	}
	return s
}

// detaching is the place in the context of a tools/call where its tool may leave a task.
type detaching struct{ state *TaskState }

type detachingKey struct{}

func detachable(ctx context.Context) bool { return ctx.Value(detachingKey{}) != nil }

// Detachable reports whether the client of this call takes a task for an answer.
func Detachable(ctx context.Context) bool { return detachable(ctx) }

// Detach makes state the answer of this call, and what its tool returns is ignored. It reports
// false, and does nothing, when the client does not take a task for an answer.
func Detach(ctx context.Context, state TaskState) bool { return detach(ctx, state) }

func detach(ctx context.Context, state TaskState) bool {
	d, ok := ctx.Value(detachingKey{}).(*detaching)
	if ok {
		d.state = &state
	}
	return ok
}

// MissingTasks is the error for a client that would have to take a task for an answer and does not.
func MissingTasks() error {
	data, _ := json.Marshal(map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{tasksExtension: struct{}{}}}})
	return &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client has not declared the extension " + tasksExtension, Data: data,
	}
}

// modernRequest is what requests of the protocol say of themselves.
type modernRequest interface {
	ProtocolVersion() string
	ClientCapabilities() *mcp.ClientCapabilities
}

// declared reports whether this very request declares the extension.
func declared(req mcp.Request) bool {
	r, ok := req.(modernRequest)
	if !ok || r.ProtocolVersion() < modern {
		return false
	}
	caps := r.ClientCapabilities()
	return caps != nil && caps.Extensions[tasksExtension] != nil
}

// middleware sees every request before the SDK's own handlers do.
func (p *principal) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch {
		case method == "tools/call":
			return callTool(ctx, next, method, req)
		case strings.HasPrefix(method, "tasks/"):
			if err := checkTask(req); err != nil {
				return nil, err
			}
			ctx = context.WithValue(ctx, askingKey{}, elicits(req))
		}
		return next(ctx, method, req)
	}
}

// callTool lets a tool answer with a task.
func callTool(ctx context.Context, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	d := &detaching{}
	if declared(req) {
		ctx = context.WithValue(context.WithValue(ctx, detachingKey{}, d), askingKey{}, elicits(req))
	}
	res, err := next(ctx, method, req)
	if err != nil {
		return res, err
	}
	if d.state != nil {
		return &taskResult{ResultType: "task", TaskState: *d.state}, nil
	}
	return res, nil
}

// checkTask refuses a request of the extension by a client that has not declared it, and one whose
// routing header names another task than its body.
func checkTask(req mcp.Request) error {
	if !declared(req) {
		return MissingTasks()
	}
	t, ok := req.GetParams().(*taskParams)
	if !ok || req.GetExtra() == nil {
		return nil
	}
	if name := strings.TrimSpace(req.GetExtra().Header.Get("Mcp-Name")); name != "" && name != t.TaskID {
		return &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: "the header Mcp-Name is not the taskId of the body"}
	}
	return nil
}
