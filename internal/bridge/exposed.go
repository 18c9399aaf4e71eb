package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// Functions that processes of a tenant register with ToolInfo.Expose are tools of the bridge, for that
// tenant, in the full profile: SERVER__TOOL. A call of one is a task whose program is that one call, so
// that it passes all that any call does: lists, budgets, policy, approval, audit; it may take long, and
// is listed among the tasks.

// Bounds of what is shown of others' tools.
const (
	maxExposed       = 100
	maxExposedName   = 64 // clients refuse longer ones
	maxExposedText   = 2000
	maxExposedSchema = 32 << 10
	exposedFor       = time.Second     // what is known is as fresh as this
	exposedWait      = 2 * time.Second // for the fleet to say what there is
)

// exposed are the tools of others that one server shows now.
type exposed struct {
	mu   sync.Mutex
	read time.Time
	have map[string]string // what defines a tool, by its name here
}

// expose keeps the server's tools in step with what the tenant's processes serve.
func (p *principal) expose(s *mcp.Server) {
	if !p.may(scopeRead) || !p.may(scopeSubmit) {
		return
	}
	e := &exposed{have: map[string]string{}}
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if call, ok := req.(*mcp.CallToolRequest); method == "tools/list" || ok && strings.Contains(call.Params.Name, "__") {
				p.sync(ctx, s, e)
			}
			return next(ctx, method, req)
		}
	})
}

// sync asks the fleet what is exposed. Without an answer all stays as it is: calls tell.
func (p *principal) sync(ctx context.Context, s *mcp.Server, e *exposed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.read) < exposedFor {
		return
	}
	asking, stop := context.WithTimeout(ctx, exposedWait)
	defer stop()
	list, err := p.fleet.Tools(asking, client.ToolsOptions{Exposed: true, Detail: client.DetailFull})
	e.read = time.Now()
	if err != nil {
		p.b.o.Log.DebugContext(ctx, "exposed tools not read", "error", err)
		return
	}
	now := map[string]bool{}
	for _, t := range list.Tools {
		name := t.Server + "__" + t.Name
		if now[name] || len(now) == maxExposed || len(name) > maxExposedName || len(t.InputSchema) > maxExposedSchema {
			p.b.o.Log.DebugContext(ctx, "tool not exposed: its name is too long or taken, its schema too large, or there are too many", "tool", t.ID)
			continue
		}
		if e.have[name] != t.Hash {
			if err := add(s, definition(name, t), p.callExposed(t)); err != nil {
				p.b.o.Log.DebugContext(ctx, "tool not exposed", "tool", t.ID, "error", err)
				continue
			}
			e.have[name] = t.Hash
		}
		now[name] = true
	}
	for name := range e.have {
		if !now[name] {
			s.RemoveTools(name)
			delete(e.have, name)
		}
	}
}

// add makes an error of the SDK's panic about a definition that it does not like.
func add(s *mcp.Server, t *mcp.Tool, h mcp.ToolHandler) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	s.AddTool(t, h)
	return nil
}

func definition(name string, t client.Tool) *mcp.Tool {
	d := &mcp.Tool{Name: name, Title: plain(t.Title, 200), Description: plain(t.Description, maxExposedText), InputSchema: t.InputSchema, Annotations: &mcp.ToolAnnotations{}}
	if a := t.Annotations; a != nil {
		d.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: a.ReadOnly, IdempotentHint: a.Idempotent, DestructiveHint: a.Destructive, OpenWorldHint: a.OpenWorld}
	}
	return d
}

// plain is the beginning of a text, without what nobody sees.
func plain(s string, n int) string {
	return cut(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) || unicode.IsControl(r) && r != '\n' {
			return -1
		}
		return r
	}, s), n)
}

func (p *principal) callExposed(t client.Tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		a, err := (&call{p, req, time.Now()}).exposed(ctx, t)
		if err != nil {
			a = refusal(p.b.hide(ctx, req, err))
		}
		return a.result()
	}
}

// exposed runs the task that calls t. What the tool answers is the answer; a task that has not ended, or
// failed, is shown as one.
func (c *call) exposed(ctx context.Context, t client.Tool) (*answer, error) {
	args := c.req.Params.Arguments
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(args, &object); err != nil || object == nil {
		return nil, badArgument("arguments: not an object")
	}
	a, err := c.execute(ctx, taskIn{
		Code:   fmt.Sprintf("from client.mcp_client import call_mcp_tool\nresult = call_mcp_tool(%q, %q, inputs)\n", t.Server, t.Name),
		Inputs: args, Tools: []string{t.ID},
	}, nil)
	if err != nil {
		return nil, err
	}
	out, ok := a.out.(taskOut)
	if !ok || out.Status != string(client.Succeeded) || out.Truncated {
		return a, nil
	}
	value, _ := out.Result.(json.RawMessage)
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	a.out, a.text = value, value
	if json.Unmarshal(value, &object) != nil || object == nil {
		a.out = map[string]any{"result": value}
	}
	return a, nil
}
