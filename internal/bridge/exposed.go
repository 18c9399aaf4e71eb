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

// This file makes exposed tools, which a tenant's processes register with ToolInfo.Expose, tools of the bridge for
// that tenant: SERVER__TOOL, in the full profile. Each call is a task whose program makes that one call. So all
// rules for tool calls apply (allow-lists, budgets, policy, approval, audit), the call may take long, and the task
// is listed.

const (
	maxExposed       = 100      // tools
	maxExposedName   = 64       // bytes; clients refuse longer names
	maxExposedTitle  = 200      // bytes
	maxExposedText   = 2000     // bytes
	maxExposedSchema = 32 << 10 // bytes

	exposedTTL     = time.Second     // how long the list is used before it is read again
	exposedTimeout = 2 * time.Second // time limit for reading the list
)

// exposedTools are the exposed tools of one MCP server.
type exposedTools struct {
	*toolSet
	mu     sync.Mutex
	read   time.Time         // last time that sync read the list
	hashes map[string]string // hashes of the definitions, by the tool's name in the bridge
}

// addExposed keeps the server's exposed tools equal to those that the tenant's processes expose.
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

// sync makes the server's exposed tools equal to those of the fleet. If it cannot read them, or has read them within
// exposedTTL, the server's tools do not change.
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

// expose adds a tool to the server unless the server has it already. current contains the names exposed so far.
func (e *exposedTools) expose(name string, t client.Tool, current map[string]bool) error {
	switch {
	case current[name]:
		return fmt.Errorf("another tool has the name %s", name)
	case len(current) == maxExposed:
		return fmt.Errorf("the limit of %d exposed tools is reached", maxExposed)
	case len(name) > maxExposedName:
		return fmt.Errorf("the name is %d bytes; the limit is %d", len(name), maxExposedName)
	case len(t.InputSchema) > maxExposedSchema:
		return fmt.Errorf("the schema is %d bytes; the limit is %d", len(t.InputSchema), maxExposedSchema)
	case e.hashes[name] == t.Hash:
		return nil
	}
	h := func(ctx context.Context, c *call) (*result, error) { return c.callExposed(ctx, t) }
	if err := addChecked(e.server, definition(name, t), e.toolHandler(h)); err != nil {
		return err
	}
	e.setSubmitted(name, h)
	e.hashes[name] = t.Hash
	return nil
}

// addChecked adds a tool. It returns an error for an invalid definition, for which the SDK panics.
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
			ReadOnlyHint: a.ReadOnly, IdempotentHint: a.Idempotent,
			DestructiveHint: a.Destructive, OpenWorldHint: a.OpenWorld,
		}
	}
	return d
}

// callExposed runs the task that calls t. It returns the tool's result, or the task if that failed or has not
// ended.
func (c *call) callExposed(ctx context.Context, t client.Tool) (*result, error) {
	args := c.req.Params.Arguments
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(args, &object); err != nil || object == nil {
		return nil, badArgument("the arguments must be an object")
	}
	r, err := c.execute(ctx, taskIn{
		Code: fmt.Sprintf("from client.mcp_client import call_mcp_tool\nresult = call_mcp_tool(%q, %q, inputs)\n",
			t.Server, t.Name),
		Inputs: args,
		Tools:  []string{t.ID},
	}, nil)
	if err != nil || r.value == nil {
		return r, err
	}
	r.out, r.text = r.value, r.value
	if json.Unmarshal(r.value, &object) != nil || object == nil {
		r.out = map[string]any{"result": r.value}
	}
	return r, nil
}
