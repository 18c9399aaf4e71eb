package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

// Functions that processes of a tenant register with ToolInfo.Expose become tools of the bridge for that
// tenant, in the full profile: SERVER__TOOL. Each call is a task whose program is that one call. So it is
// subject to all that applies to tool calls (allow-lists, budgets, policy, approval, audit), may take long,
// and is listed among the tasks.

// Limits of exposed tools, and how fresh the list of them is.
const (
	maxExposed       = 100
	maxExposedName   = 64 // clients refuse longer names
	maxExposedTitle  = 200
	maxExposedText   = 2000
	maxExposedSchema = 32 << 10
	exposedTTL       = time.Second
	exposedTimeout   = 2 * time.Second
)

// exposedTools are the exposed tools that one MCP server has.
type exposedTools struct {
	*toolSet
	mu     sync.Mutex
	read   time.Time
	hashes map[string]string // of the definitions, by the tool's name here
}

// addExposed keeps the tools of the server equal to those that the tenant's processes expose.
func (ts *toolSet) addExposed() {
	if !ts.may(scopeRead) || !ts.may(scopeSubmit) {
		return
	}
	e := &exposedTools{toolSet: ts, hashes: map[string]string{}}
	ts.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if method == "tools/list" || ok && strings.Contains(call.Params.Name, "__") {
				e.sync(ctx)
			}
			return next(ctx, method, req)
		}
	})
}

// sync reads the exposed tools from the fleet. If that fails, the tools do not change.
func (e *exposedTools) sync(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.read) < exposedTTL {
		return
	}
	reading, stop := context.WithTimeout(ctx, exposedTimeout)
	defer stop()
	list, err := e.fleet.Tools(reading, client.ToolsOptions{Exposed: true, Detail: client.DetailFull})
	e.read = time.Now()
	if err != nil {
		e.b.o.Log.DebugContext(ctx, "exposed tools not read", "error", err)
		return
	}
	current := map[string]bool{}
	for _, t := range list.Tools {
		name := t.Server + "__" + t.Name
		if err := e.expose(name, t, current); err != nil {
			e.b.o.Log.DebugContext(ctx, "tool not exposed", "tool", t.ID, "error", err)
			continue
		}
		current[name] = true
	}
	for name := range e.hashes {
		if !current[name] {
			e.server.RemoveTools(name)
			e.setSubmitted(name, nil)
			delete(e.hashes, name)
		}
	}
}

// expose adds a tool to the server unless the server has it already. current are the tools exposed so far.
func (e *exposedTools) expose(name string, t client.Tool, current map[string]bool) error {
	switch {
	case current[name]:
		return fmt.Errorf("the name %s is taken by another tool", name)
	case len(current) == maxExposed:
		return fmt.Errorf("more than %d tools", maxExposed)
	case len(name) > maxExposedName:
		return fmt.Errorf("its name has %d bytes, more than %d", len(name), maxExposedName)
	case len(t.InputSchema) > maxExposedSchema:
		return fmt.Errorf("its schema has %d bytes, more than %d", len(t.InputSchema), maxExposedSchema)
	case e.hashes[name] == t.Hash:
		return nil
	}
	h := func(ctx context.Context, c *call) (*answer, error) { return c.callExposed(ctx, t) }
	if err := addChecked(e.server, definition(name, t), e.toolHandler(h)); err != nil {
		return err
	}
	e.setSubmitted(name, h)
	e.hashes[name] = t.Hash
	return nil
}

// addChecked returns an error where the SDK panics: for a definition that it does not accept.
func addChecked(s *mcp.Server, t *mcp.Tool, h mcp.ToolHandler) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	s.AddTool(t, h)
	return nil
}

func definition(name string, t client.Tool) *mcp.Tool {
	d := &mcp.Tool{
		Name: name, Title: text.Truncate(text.Printable(t.Title), maxExposedTitle),
		Description: text.Truncate(text.Printable(t.Description), maxExposedText),
		InputSchema: t.InputSchema, Annotations: &mcp.ToolAnnotations{},
	}
	if a := t.Annotations; a != nil {
		d.Annotations = &mcp.ToolAnnotations{
			ReadOnlyHint:    a.ReadOnly,
			IdempotentHint:  a.Idempotent,
			DestructiveHint: a.Destructive,
			OpenWorldHint:   a.OpenWorld,
		}
	}
	return d
}

// callExposed runs the task that calls t. The answer is the tool's result; if the task failed or has not
// ended, the answer is the task.
func (c *call) callExposed(ctx context.Context, t client.Tool) (*answer, error) {
	args := c.req.Params.Arguments
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(args, &object); err != nil || object == nil {
		return nil, badArgument("arguments: not an object")
	}
	a, err := c.execute(ctx, taskIn{
		Code: fmt.Sprintf("from client.mcp_client import call_mcp_tool\nresult = call_mcp_tool(%q, %q, inputs)\n",
			t.Server, t.Name),
		Inputs: args,
		Tools:  []string{t.ID},
	}, nil)
	if err != nil || a.value == nil {
		return a, err
	}
	a.out, a.text = a.value, a.value
	if json.Unmarshal(a.value, &object) != nil || object == nil {
		a.out = map[string]any{"result": a.value}
	}
	return a, nil
}
