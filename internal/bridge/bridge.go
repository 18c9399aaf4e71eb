// Package bridge serves a fleet as an MCP server: its tools submit tasks, wait for them and return their
// results, over standard input and output, streamable HTTP and the older SSE transport.
//
// The bridge is a client of the fleet: it sends each request with the caller's own token and keeps no task
// state. The handle that execute_task returns for a long task is the task id, which is valid at any other
// bridge, over HTTP and on the command line. The bridge keeps only the connections of clients that speak
// the older protocol generation; a client whose bridge has ended is served by the next one without them.
//
// The key types are Bridge, which is the process, and principal, which serves one token. Tenants never
// share a principal.
package bridge

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// Profiles: which tools a client gets.
const (
	Full    = "full"
	Compact = "compact" // search, execute, get: at most 1,500 tokens, whatever the size of the catalogue
)

// Profiles returns the names of all profiles.
func Profiles() []string { return []string{Full, Compact} }

// Options configure a Bridge. Fleet.URL is required.
type Options struct {
	// Fleet is the address of the fleet. Its Token is the caller's on standard input and output. Over HTTP
	// it is not used: each request carries its caller's token.
	Fleet   client.Options
	Version string // of the program
	Profile string // of clients that do not ask for one; default Full

	Wait      time.Duration // execute_task returns a handle after this; default 25 s
	MaxWait   time.Duration // a longer wait_ms is shortened to this; default 45 s: many clients time out after 60
	MaxOutput int           // bytes of one answer; the rest is linked to; default 20,000

	Limits Limits
	// Hosts and Origins are accepted in these headers, besides IP addresses, loopback names and the
	// address itself.
	Hosts, Origins []string
	// AuthServers are the OAuth servers that issue tokens of this fleet, for clients that look for them.
	AuthServers []string

	Log *slog.Logger // default: nothing is logged
}

// Limits bound the requests of each tenant over HTTP. Zero fields have the defaults.
type Limits struct {
	Rate       int   // requests per second; default 500
	Concurrent int   // requests in progress, without idle streams; default 512
	Body       int64 // bytes of a request body; default 4 MiB
}

// Bridge serves one fleet. It is safe for concurrent use.
type Bridge struct {
	o        Options
	instance string // prefix of the ids of sessions that this bridge created
	// of the bridge itself. Once it ends, waiting calls return with what they have
	stopping context.Context //nolint:containedctx // the lifetime of the value itself
	stop     context.CancelFunc
	// of the bridge itself. Once it ends, streams end
	streams  context.Context //nolint:containedctx // the lifetime of the value itself
	hangUp   context.CancelFunc
	inFlight inFlight
	verify   chan struct{} // bounds the tokens that are verified at once

	needToken atomic.Bool // refuse requests without a token, even if the fleet would accept them

	extend extension // zero but in tests

	mu         sync.Mutex
	principals map[[32]byte]*principal // by the hash of the token
	limits     map[string]*tenantLimit
}

// extension adds to the MCP servers of a bridge. The conformance tests use it: the protocol's suite expects
// tools that a fleet does not have.
type extension struct {
	options func(*mcp.ServerOptions)
	server  func(*mcp.Server)
}

// New returns a bridge. It does not connect to the fleet.
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
	if o.Fleet.HTTPClient == nil { // one connection pool for all callers
		o.Fleet.HTTPClient = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.Fleet.TLS, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 256,
		}}
	}
	b := &Bridge{
		o: o, instance: newInstance(), verify: make(chan struct{}, 16),
		principals: map[[32]byte]*principal{}, limits: map[string]*tenantLimit{},
	}
	b.stopping, b.stop = context.WithCancel(context.Background())
	b.streams, b.hangUp = context.WithCancel(context.Background())
	return b
}

// closeTimeout bounds how long Close waits for calls in progress.
const closeTimeout = 5 * time.Second

// Close refuses further calls, lets waiting calls return with what they have, and then ends all streams.
func (b *Bridge) Close() {
	b.stop()
	select {
	case <-b.inFlight.idle():
	case <-time.After(closeTimeout):
	}
	b.hangUp()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.principals {
		p.close()
	}
}

// ServeStdio serves one client on a pair of streams until the client closes them or ctx ends. Tasks
// continue. It returns a *client.APIError if the fleet refuses the token.
func (b *Bridge) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	p, err := b.newPrincipal(ctx, b.o.Fleet.Token)
	if err != nil {
		return err
	}
	if err := p.identify(ctx); err != nil {
		if _, refused := errors.AsType[*client.APIError](err); refused {
			return err
		}
		b.o.Log.WarnContext(ctx, "fleet not reached yet", "error", err)
		p.scopes = []string{scopeSubmit, scopeRead} // offer these tools; the fleet checks each call
	}
	defer p.close()
	return p.server(b.o.Profile).Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
}
