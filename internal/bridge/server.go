package bridge

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

//go:embed instructions.md
var instructions string

//go:embed instructions_compact.md
var instructionsCompact string

// listTTL is how long, in milliseconds, a client may cache lists. It is short because registered tools come and go.
const listTTL = 10_000

// server returns the MCP server of a profile. The first call creates it.
func (p *principal) server(profile string) *mcp.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.servers[profile]; s != nil {
		return s
	}
	s := p.newServer(profile)
	p.servers[profile] = s
	return s
}

func (p *principal) newServer(profile string) *mcp.Server {
	caps := &mcp.ServerCapabilities{}
	if p.may(scopeRead) && profile == Full {
		caps.Prompts = &mcp.PromptCapabilities{}
	}
	caps.AddExtension(tasksExtension, map[string]any{})
	o := mcp.ServerOptions{
		Instructions: instructions, Capabilities: caps, GetSessionID: p.b.newSessionID,
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs, c.CacheScope = listTTL, "private"
		},
	}
	if profile == Compact {
		o.Instructions = instructionsCompact
	}
	if p.b.extend.options != nil {
		p.b.extend.options(&o)
	}
	implementation := &mcp.Implementation{Name: "codefleet", Title: "codefleet", Version: cmp.Or(p.b.o.Version, "dev")}
	s := mcp.NewServer(implementation, &o)
	addTools(p, s, profile)
	p.addResources(s)
	p.addTaskMethods(s)
	if p.may(scopeRead) && profile == Full {
		s.AddReceivingMiddleware(p.skillPrompts)
	}
	s.AddReceivingMiddleware(p.survive, p.hideResults)
	s.AddSendingMiddleware(p.hideMessages)
	if p.b.extend.server != nil {
		p.b.extend.server(s)
	}
	return s
}

// survive responds to a request whose handler panics: the SDK handles requests in goroutines of its own, so that the
// panic would end the process, with the requests of all clients.
func (p *principal) survive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (r mcp.Result, err error) {
		defer func() {
			if v := recover(); v != nil {
				p.b.o.Log.ErrorContext(ctx, "request handler panicked", "method", method, "panic", fmt.Sprint(v),
					"stack", string(debug.Stack()))
				r, err = nil, &jsonrpc.Error{
					Code: jsonrpc.CodeInternalError, Message: "the bridge has a bug; its log has the details",
				}
			}
		}()
		return next(ctx, method, req)
	}
}

// addTools adds the tools of a profile that the token may call.
func addTools(p *principal, s *mcp.Server, profile string) {
	ts := &toolSet{principal: p, server: s, profile: profile, submitted: map[string]handler{}}
	ts.addExecute()
	ts.addTaskTools()
	ts.addCatalogue()
	ts.addState()
	ts.addSessions()
	ts.addSkills()
	ts.addForms()
	ts.addWorkflows()
	ts.addWorkspaces()
	ts.addOperate()
	ts.addAutomations()
	s.AddReceivingMiddleware(ts.middleware)
	if profile == Full {
		ts.addExposed()
	}
}
