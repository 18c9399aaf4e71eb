package bridge

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// Scopes of tokens.
const (
	scopeSubmit   = "submit"
	scopeRead     = "read"
	scopeOperator = "operator"
	scopeApprove  = "approve" // the bridge may ask the client's user about tool calls
)

// principal serves one token. It has a client that sends the token, and MCP servers with the tools that the
// token permits.
type principal struct {
	b       *Bridge
	fleet   *client.Client
	noRetry *client.Client // sends each request once
	tenant  string
	scopes  atomic.Pointer[[]string]
	away    atomic.Bool // whether the fleet did not respond to the last call
	// identity is what the fleet said about the token; nil until it responds.
	identity atomic.Pointer[client.Identity]
	asked    atomic.Int64 // last time that the fleet was asked about the token, in Unix nanoseconds

	mu         sync.Mutex
	servers    map[string]*mcp.Server // by profile
	transports map[string]*transports // for HTTP, by profile

	// Bridge.mu guards these, once the principal is shared.
	checked time.Time // last time that the fleet confirmed the token
	used    time.Time // last request
}

// newPrincipal returns a principal for the options of a client, whose token it uses.
func (b *Bridge) newPrincipal(ctx context.Context, o client.Options) (*principal, error) {
	o.Source = "codefleet/mcp"
	c, err := client.New(context.WithoutCancel(ctx), o)
	if err != nil {
		return nil, err
	}
	o.RetryFor = -1
	noRetry, err := client.New(context.WithoutCancel(ctx), o)
	if err != nil {
		return nil, err
	}
	return &principal{
		b: b, fleet: c, noRetry: noRetry, servers: map[string]*mcp.Server{}, transports: map[string]*transports{},
	}, nil
}

// identify reads the token's tenant and scopes from the fleet. Call it before the principal is shared.
func (p *principal) identify(ctx context.Context) error {
	id, err := p.fleet.WhoAmI(ctx)
	if err != nil {
		return err
	}
	p.tenant, p.checked = id.Tenant, time.Now()
	p.asked.Store(p.checked.UnixNano())
	p.scopes.Store(&id.Scopes)
	p.identity.Store(&id)
	p.used = p.checked
	return nil
}

func (p *principal) may(scope string) bool {
	return scope == "" || slices.Contains(*p.scopes.Load(), scope)
}

// connected reports whether clients are connected.
func (p *principal) connected() bool { return p.sessions() > 0 }

// sessions returns how many clients are connected.
func (p *principal) sessions() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		for range s.Sessions() {
			n++
		}
	}
	return n
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
