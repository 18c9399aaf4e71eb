// Package bridge is a fleet as an MCP server: tools that submit tasks, wait for them and read what
// became of them, over standard input and output, streamable HTTP and the older SSE transport.
//
// It speaks to the fleet through the public client with the caller's own token and keeps nothing of
// its own: the handle that execute_task gives for a task that takes long is the task's id, which
// any other bridge (and HTTP, and the command line) knows as well. What it does keep for clients of
// the older protocol generation is their connection, and a client whose bridge has gone is served
// without one by the next.
//
// A Bridge is the process; a principal is what it does for one token. Tenants never share one.
package bridge

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// Profiles say how much of the fleet a client is shown.
const (
	Full    = "full"
	Compact = "compact" // search, execute, get: at most 1,500 tokens, whatever the catalogue holds
)

// Profiles are the names of all of them.
func Profiles() []string { return []string{Full, Compact} }

// Options configure a Bridge. Fleet.URL is required.
type Options struct {
	// Fleet says where the fleet is. Its Token is the caller's over standard input and output; over
	// HTTP it is not used: there each caller brings its own.
	Fleet   client.Options
	Version string // of the program
	Profile string // of clients that do not ask for one; default Full

	Wait      time.Duration // how long execute_task waits before it answers with a handle; default 25 s
	MaxWait   time.Duration // the longest wait that a caller may ask for; default 45 s: clients give up after 60
	MaxOutput int           // bytes of one answer; what is longer is linked to; default 20,000

	Limits Limits
	// Hosts and Origins are accepted in these headers beside the address itself and loopback names.
	Hosts, Origins []string
	// AuthServers are OAuth servers that issue tokens of this fleet, for clients that ask.
	AuthServers []string

	// Extend is added to each MCP server that the bridge makes; nil: nothing.
	Extend *Extension

	Log *slog.Logger // default: nothing is logged
}

// Limits bound the requests of each tenant over HTTP. Zero fields have the defaults.
type Limits struct {
	Rate       int   // requests per second; default 500
	Concurrent int   // requests in progress, without idle streams; default 512
	Body       int64 // bytes of a request body; default 4 MiB
}

// Extension is what a server has besides: the fixtures of conformance tests.
type Extension struct {
	Options func(*mcp.ServerOptions)
	Add     func(*mcp.Server) TaskSource // returns tasks of its own, or nil
}

// Bridge serves one fleet. It is safe for concurrent use.
type Bridge struct {
	o        Options
	instance string          // begins the ids of sessions made here
	stopping context.Context //nolint:containedctx // of the bridge itself: waits return with what they have
	stop     context.CancelFunc
	streams  context.Context //nolint:containedctx // of the bridge itself: streams end
	hangUp   context.CancelFunc
	calls    calls
	verify   chan struct{} // one for each token that may be looked up at once

	needToken atomic.Bool // callers without one are not taken, whatever the fleet says

	mu         sync.Mutex
	principals map[[32]byte]*principal
	limits     map[string]*tenantLimit
}

// New returns a bridge. It does not ask whether the fleet is there.
func New(o Options) *Bridge {
	o.Profile = cmp.Or(o.Profile, Full)
	o.Wait = cmp.Or(o.Wait, 25*time.Second)
	o.MaxWait = cmp.Or(o.MaxWait, 45*time.Second)
	o.Wait = min(o.Wait, o.MaxWait)
	o.MaxOutput = cmp.Or(o.MaxOutput, 20_000)
	o.Limits.Rate = cmp.Or(o.Limits.Rate, 500)
	o.Limits.Concurrent = cmp.Or(o.Limits.Concurrent, 512)
	o.Limits.Body = cmp.Or(o.Limits.Body, mcp.DefaultMaxRequestBodyBytes)
	o.Fleet.RetryFor = cmp.Or(o.Fleet.RetryFor, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Bridge{o: o, instance: newInstance(), verify: make(chan struct{}, 16), principals: map[[32]byte]*principal{}, limits: map[string]*tenantLimit{}}
	b.stopping, b.stop = context.WithCancel(context.Background())
	b.streams, b.hangUp = context.WithCancel(context.Background())
	if o.Fleet.HTTPClient == nil { // one pool of connections for all callers
		b.o.Fleet.HTTPClient = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.Fleet.TLS, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 256,
		}}
	}
	return b
}

// Close takes no more calls, lets those that wait return with what they have, and then ends every
// stream.
func (b *Bridge) Close() {
	b.stop()
	select {
	case <-b.calls.none():
	case <-time.After(closeTime):
	}
	b.hangUp()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.principals {
		p.close()
	}
}

// closeTime is how long calls under way may take to answer with what they have.
const closeTime = 5 * time.Second

// ServeStdio serves one client on a pair of streams until it closes them, or ctx ends. Tasks go on.
func (b *Bridge) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	p, err := b.newPrincipal(ctx, b.o.Fleet.Token)
	if err != nil {
		return err
	}
	if err := p.identify(ctx); err != nil {
		if _, refused := errors.AsType[*client.APIError](err); refused {
			return err
		}
		b.o.Log.WarnContext(ctx, "the fleet does not answer yet", "error", err)
		p.scopes = []string{scopeSubmit, scopeRead} // it will say no itself
	}
	defer p.close()
	return p.server(b.o.Profile).Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
}

// principal is what the bridge does for one token: the client that carries it, and MCP servers that
// show what it may do.
type principal struct {
	b      *Bridge
	fleet  *client.Client
	tenant string
	scopes []string
	extra  TaskSource // what Extend added, or nil

	mu      sync.Mutex
	servers map[string]*mcp.Server // by profile
	doors   map[string]*door       // over HTTP, by profile
	checked time.Time              // when the fleet last said that the token is good
	used    time.Time
}

func (b *Bridge) newPrincipal(ctx context.Context, token string) (*principal, error) {
	o := b.o.Fleet
	o.Token, o.Source = token, "codefleet/mcp"
	c, err := client.New(context.WithoutCancel(ctx), o)
	if err != nil {
		return nil, err
	}
	return &principal{b: b, fleet: c, servers: map[string]*mcp.Server{}, doors: map[string]*door{}}, nil
}

// identify asks the fleet who the token belongs to.
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

// close ends the sessions of the principal.
func (p *principal) close() {
	p.mu.Lock()
	servers := p.servers
	p.servers, p.doors = map[string]*mcp.Server{}, map[string]*door{}
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range servers {
		for ss := range s.Sessions() {
			wg.Go(func() { _ = ss.Close() }) // its client is gone or will be
		}
	}
	wg.Wait()
}

//go:embed instructions.md
var instructions string

//go:embed instructions_compact.md
var instructionsCompact string

// server is the MCP server of a profile, made when it is first asked for.
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
	text := instructions
	if profile == Compact {
		text = instructionsCompact
	}
	o := mcp.ServerOptions{
		Instructions: text, Capabilities: caps, GetSessionID: p.b.newSessionID,
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs, c.CacheScope = listTTL, "private"
		},
	}
	if p.b.o.Extend != nil {
		p.b.o.Extend.Options(&o)
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "codefleet", Title: "codefleet", Version: cmp.Or(p.b.o.Version, "dev")}, &o)
	p.addTools(s, profile)
	p.addResources(s)
	p.addTasks(s)
	if p.b.o.Extend != nil {
		p.extra = p.b.o.Extend.Add(s)
	}
	return s
}

// listTTL is how many milliseconds a client may keep lists: tools of a tenant's processes come and go.
const listTTL = 10_000
