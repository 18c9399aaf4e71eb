package bridge

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// principal serves one token: it holds the client that sends the token, and MCP servers with the tools
// that the token permits.
type principal struct {
	b      *Bridge
	fleet  *client.Client
	tenant string
	scopes []string

	mu         sync.Mutex
	servers    map[string]*mcp.Server // by profile
	transports map[string]*transports // over HTTP, by profile
	checked    time.Time              // when the fleet last confirmed the token
	used       time.Time
}

func (b *Bridge) newPrincipal(ctx context.Context, token string) (*principal, error) {
	o := b.o.Fleet
	o.Token, o.Source = token, "codefleet/mcp"
	c, err := client.New(context.WithoutCancel(ctx), o)
	if err != nil {
		return nil, err
	}
	return &principal{b: b, fleet: c, servers: map[string]*mcp.Server{}, transports: map[string]*transports{}}, nil
}

// identify reads tenant and scopes of the token from the fleet.
func (p *principal) identify(ctx context.Context) error {
	id, err := p.fleet.WhoAmI(ctx)
	if err != nil {
		return err
	}
	p.tenant, p.scopes, p.checked = id.Tenant, id.Scopes, time.Now()
	p.used = p.checked
	return nil
}

func (p *principal) may(scope string) bool { return scope == "" || slices.Contains(p.scopes, scope) }

// connected reports whether clients are connected.
func (p *principal) connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		for range s.Sessions() {
			return true
		}
	}
	return false
}

// close ends the sessions of the principal.
func (p *principal) close() {
	p.mu.Lock()
	servers := p.servers
	p.servers, p.transports = map[string]*mcp.Server{}, map[string]*transports{}
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range servers {
		for session := range s.Sessions() {
			wg.Go(func() { _ = session.Close() }) // fails if the client has disconnected
		}
	}
	wg.Wait()
}

//go:embed instructions.md
var instructions string

//go:embed instructions_compact.md
var instructionsCompact string

// listTTL is how long, in milliseconds, a client may cache lists: the tools that processes register change.
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
	if p.b.extend.server != nil {
		p.b.extend.server(s)
	}
	return s
}
