package bridge_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/clock"
)

// fixtureTasks are the fixtures' tasks. They are kept in memory.
type fixtureTasks struct {
	tools map[string]startTask // by name

	mu   sync.Mutex
	byID map[string]*fixtureTask
}

type fixtureTask struct {
	state   bridge.TaskState
	changed chan struct{} // closed and replaced at each tasks/update
	cancel  context.CancelFunc
}

// runTask does the work of a task.
type runTask func(context.Context, *fixtureTask) (*mcp.CallToolResult, error)

// startTask returns the function that does the work of the task that a call starts. It returns nil if the call does not
// start a task.
type startTask func(*mcp.CallToolRequest) (runTask, error)

// middleware handles the tools that return tasks, and the methods of the extension for their tasks.
func (ts *fixtureTasks) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if c, ok := req.(*mcp.CallToolRequest); ok && ts.tools[c.Params.Name] != nil && bridge.AcceptsTasks(req) {
			run, err := ts.tools[c.Params.Name](c)
			if err != nil {
				return nil, err
			}
			if run != nil {
				return bridge.NewTaskResult("task", ts.start(ctx, run)), nil
			}
		}
		if strings.HasPrefix(method, "tasks/") && bridge.CheckTaskRequest(req) == nil {
			if params, ok := req.GetParams().(*bridge.TaskParams); ok && ts.has(params.TaskID) {
				return ts.handle(method, params), nil
			}
		}
		return next(ctx, method, req)
	}
}

func (ts *fixtureTasks) has(id string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byID[id] != nil
}

func (ts *fixtureTasks) handle(method string, params *bridge.TaskParams) mcp.Result {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.byID[params.TaskID]
	switch method {
	case "tasks/get":
		state := t.state
		state.InputRequests = maps.Clone(state.InputRequests)
		return bridge.NewTaskResult("complete", state)
	case "tasks/cancel":
		t.cancel()
	case "tasks/update":
		for key := range params.InputResponses {
			delete(t.state.InputRequests, key)
		}
		close(t.changed)
		t.changed = make(chan struct{})
	}
	return &bridge.TaskAck{ResultType: "complete"}
}

// start starts a task, and returns its first state.
func (ts *fixtureTasks) start(ctx context.Context, run runTask) bridge.TaskState {
	now := time.Now().UTC()
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
	t := &fixtureTask{cancel: cancel, changed: make(chan struct{}), state: bridge.TaskState{
		TaskID: rand.Text(), Status: "working", CreatedAt: now, LastUpdatedAt: now, PollIntervalMs: 200,
		TTLMs: new(int64(300_000)),
	}}
	started := t.state
	ts.mu.Lock()
	ts.byID[t.state.TaskID] = t
	ts.mu.Unlock()
	go func() { // ends with life
		defer cancel()
		r, err := run(life, t)
		ts.mu.Lock()
		defer ts.mu.Unlock()
		t.state.LastUpdatedAt, t.state.InputRequests = time.Now().UTC(), nil
		switch {
		case life.Err() != nil:
			t.state.Status = "cancelled"
		case err != nil:
			t.state.Status = "failed"
			t.state.Error = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		default:
			t.state.Status, t.state.Result = "completed", r
		}
	}()
	return started
}

// ask waits until all requests are answered.
func (ts *fixtureTasks) ask(ctx context.Context, t *fixtureTask, requests mcp.InputRequestMap) {
	ts.mu.Lock()
	t.state.Status, t.state.InputRequests = "input_required", requests
	for len(t.state.InputRequests) > 0 && ctx.Err() == nil {
		changed := t.changed
		ts.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		ts.mu.Lock()
	}
	t.state.Status = "working"
	ts.mu.Unlock()
}

func addFixtureTasks(s *mcp.Server) {
	ts := &fixtureTasks{tools: map[string]startTask{}, byID: map[string]*fixtureTask{}}
	// add adds a tool. inline handles calls that do not start a task.
	add := func(name, schema string, start startTask, inline mcp.ToolHandler) {
		ts.tools[name] = start
		addFixture(s, name, schema, inline)
	}
	noTasks := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, bridge.ErrNoTasks()
	}
	always := func(name string, run runTask) {
		add(name, noArguments, func(*mcp.CallToolRequest) (runTask, error) { return run, nil }, noTasks)
	}
	addFixture(s, "greet", `{"type":"object","properties":{"name":{"type":"string"}}}`,
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in struct{ Name string }
			return say("Hello, %s!", unmarshal(req, &in).Name), nil
		})
	compute := func(req *mcp.CallToolRequest) (runTask, error) {
		var in struct{ Seconds float64 }
		d := time.Duration(unmarshal(req, &in).Seconds * float64(time.Second))
		return func(ctx context.Context, _ *fixtureTask) (*mcp.CallToolResult, error) {
			_ = clock.Sleep(ctx, d)
			return say("computed"), nil
		}, nil
	}
	add(
		"slow_compute",
		`{"type":"object","properties":{"seconds":{"type":"number"},"label":{"type":"string"}}}`,
		compute,
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			run, err := compute(req)
			if err != nil {
				return nil, err
			}
			return run(ctx, nil)
		},
	)
	always("failing_job", func(ctx context.Context, _ *fixtureTask) (*mcp.CallToolResult, error) {
		_ = clock.Sleep(ctx, time.Second)
		r := say("the job failed")
		r.IsError = true
		return r, nil
	})
	always("protocol_error_job", func(context.Context, *fixtureTask) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the job broke"}
	})
	always("confirm_delete", func(ctx context.Context, t *fixtureTask) (*mcp.CallToolResult, error) {
		ts.ask(ctx, t, mcp.InputRequestMap{rand.Text(): question("Delete it?", "confirm", "boolean")})
		return say("deleted"), nil
	})
	always("multi_input", func(ctx context.Context, t *fixtureTask) (*mcp.CallToolResult, error) {
		ts.ask(ctx, t, mcp.InputRequestMap{
			rand.Text(): question("What is your name?", "name", "string"),
			rand.Text(): question("Are you sure?", "confirm", "boolean"),
		})
		return say("both answered"), nil
	})
	add("test_tool_with_task", noArguments, func(req *mcp.CallToolRequest) (runTask, error) {
		name, ok := responseValue(req.Params.InputResponses, "user_name", "name")
		if !ok {
			return nil, nil
		}
		if _, err := verified(req.Params.RequestState); err != nil {
			return nil, err
		}
		return func(context.Context, *fixtureTask) (*mcp.CallToolResult, error) {
			return say("Hello, %s!", name), nil
		}, nil
	}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if _, ok := responseValue(req.Params.InputResponses, "user_name", "name"); ok {
			return nil, bridge.ErrNoTasks()
		}
		return ask("task", mcp.InputRequestMap{"user_name": question("What is your name?", "name", "string")}), nil
	})
	s.AddReceivingMiddleware(ts.middleware)
}

// unmarshal decodes the arguments of a call into in. Invalid arguments leave their fields empty.
func unmarshal[T any](req *mcp.CallToolRequest, in *T) *T {
	_ = json.Unmarshal(req.Params.Arguments, in)
	return in
}
