// Package bridge serves a fleet as an MCP server: its tools submit tasks, wait for them and return their
// results, over standard input and output, streamable HTTP and the older SSE transport.
//
// The bridge is a client of the fleet. It sends each request with the caller's token and keeps no task state.
// The handle that execute_task returns for a long task is the task id, which is valid at any other bridge,
// over HTTP and on the command line. The only state is the sessions of clients that use an older revision of
// the protocol. If a bridge ends, another one goes on to serve its clients, without a session.
//
// The key types are Bridge, one for each process, and principal, one for each token. Tenants never share a
// principal.
package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// A profile selects the tools that a client gets.
const (
	Full    = "full"
	Compact = "compact" // search_tools, execute_task and get_task, defined in at most 1,500 tokens
)

// Paths of the HTTP interface.
const (
	PathMCP = "/mcp" // streamable HTTP, for all revisions of the protocol
	PathSSE = "/sse" // the transport of revision 2024-11-05

	pathRegister = "/register" // where clients attempt to register with OAuth
)

// Profiles returns the names of all profiles.
func Profiles() []string { return []string{Full, Compact} }

// Options configure a Bridge. Fleet must have a URL or a Located.Path.
type Options struct {
	// Fleet is the address of the fleet. Its Token is used for the client on standard input and output. Over
	// HTTP, each request carries its caller's token instead.
	Fleet   client.Options
	Version string // of the program
	Profile string // for clients that do not ask for one; default Full

	Wait      time.Duration // time until execute_task returns a handle; default 25 s
	MaxWait   time.Duration // longest wait_ms; default 45 s, because many clients time out after 60 s
	MaxOutput int           // bytes of one result; longer parts become resource links; default 20,000

	// Recheck is how long the bridge trusts what the fleet has said about a token; default 10 s.
	Recheck time.Duration

	Limits Limits
	// Hosts are accepted in the Host header, besides localhost and any IP address.
	Hosts []string
	// Origins are the web origins whose pages may send requests, besides this server's own.
	Origins []string

	// Privacy returns the function that replaces private values in texts for a tenant's clients, or nil if the clients
	// may see them. mode is what the fleet demands; it is empty if that is unknown. The text may be a JSON value. A nil
	// Privacy replaces nothing.
	Privacy func(tenant, mode string) func(ctx context.Context, text string) string

	Log *slog.Logger // nil logs nothing
}

// Limits bound the requests of each tenant over HTTP. A zero field means the default.
type Limits struct {
	Rate       int   // requests per second; default 500
	Concurrent int   // requests in progress, not counting idle streams; default 512
	Sessions   int   // MCP sessions; default 2,000
	Body       int64 // bytes of a request body; default 4 MiB
}

// Bridge serves one fleet. It is safe for concurrent use.
type Bridge struct {
	o        Options
	instance string // prefix of the ids of sessions that this bridge created
	// stopping ends when the bridge closes. Calls that wait then return with what they have.
	stopping context.Context //nolint:containedctx // the lifetime of the value itself
	stop     context.CancelFunc
	// streams ends once the calls have returned. Streams end with it.
	streams    context.Context //nolint:containedctx // the lifetime of the value itself
	endStreams context.CancelFunc
	inFlight   inFlight
	verify     chan struct{} // bounds how many tokens are verified at once
	rechecking sync.Once     // starts recheck

	needToken atomic.Bool // refuse requests without a token, even if the fleet would accept them

	extend extension // used only in tests

	mu         sync.Mutex
	principals map[[32]byte]*principal // by the hash of the token
	limits     map[string]*tenantLimit
}

// extension changes the MCP servers of a bridge. The conformance tests use it, because the protocol's test suite
// expects tools that a fleet does not have.
type extension struct {
	options func(*mcp.ServerOptions)
	server  func(*mcp.Server)
}

const (
	// retryTime is how long a call retries a request while the fleet does not respond: long enough for a restart of the
	// fleet, and short enough that the client gets the error soon.
	retryTime = 3 * time.Second
	// dialTime bounds connecting to the fleet, whose host may not respond at all.
	dialTime = 3 * time.Second
)

// New returns a bridge. It does not connect to the fleet.
func New(o Options) *Bridge {
	o.Profile = cmp.Or(o.Profile, Full)
	o.Wait = cmp.Or(o.Wait, 25*time.Second)
	o.MaxWait = cmp.Or(o.MaxWait, 45*time.Second)
	o.Wait = min(o.Wait, o.MaxWait)
	o.MaxOutput = cmp.Or(o.MaxOutput, 20_000)
	o.Recheck = cmp.Or(o.Recheck, 10*time.Second)
	o.Limits.Rate = cmp.Or(o.Limits.Rate, 500)
	o.Limits.Concurrent = cmp.Or(o.Limits.Concurrent, 512)
	o.Limits.Sessions = cmp.Or(o.Limits.Sessions, 2000)
	o.Limits.Body = cmp.Or(o.Limits.Body, mcp.DefaultMaxRequestBodyBytes)
	o.Fleet.RetryFor = cmp.Or(o.Fleet.RetryFor, retryTime)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Fleet.HTTPClient == nil { // one connection pool for all callers
		o.Fleet.HTTPClient = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.Fleet.TLS, ForceAttemptHTTP2: true,
			DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 256,
		}}
	}
	b := &Bridge{
		o: o, instance: rand.Text()[:8] + "-", verify: make(chan struct{}, 16),
		principals: map[[32]byte]*principal{}, limits: map[string]*tenantLimit{},
	}
	b.stopping, b.stop = context.WithCancel(context.Background())
	b.streams, b.endStreams = context.WithCancel(context.Background())
	return b
}

// closeTimeout bounds how long Close waits for calls in progress.
const closeTimeout = 5 * time.Second

// Close refuses further calls, makes waiting calls return with what they have, and then ends all streams.
func (b *Bridge) Close() {
	b.stop()
	select {
	case <-b.inFlight.idle():
	case <-time.After(closeTimeout):
	}
	b.endStreams()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.principals {
		p.close()
	}
}
