package bridge

import (
	"cmp"
	"context"
	_ "embed"

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
	s.AddReceivingMiddleware(p.hideResults)
	s.AddSendingMiddleware(p.hideMessages)
	if p.b.extend.server != nil {
		p.b.extend.server(s)
	}
	return s
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
