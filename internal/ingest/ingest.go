// Package ingest is the HTTP interface of a fleet. It authenticates and validates requests, submits tasks to
// the queue, and serves records, results, live events, artifacts and the files of workspaces. It keeps no
// tasks, so any number of processes can serve side by side: a task submitted to one can be awaited at
// another.
//
// All routes are in one table, which Server.routes assembles. The mux, the OpenAPI document at /openapi.json and
// docs/http.md are built from it. A new route is one row of the table and its handler.
//
// The body of every error response is an apierror.Error. The key type is Server.
package ingest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/automation"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/httpserve"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/internal/workflow/engine"
)

// Options configure a Server. A nil Workspaces, Mirror, Artifacts, Tools, Skills, Mounted.MCP, Mounted.Page or
// Telemetry.Metrics disables that feature.
type Options struct {
	Workspaces *state.Store   // serves workspaces and state documents
	Mirror     *mirror.Mirror // mirrors Workspaces
	State      StateDocuments
	Artifacts  Artifacts
	Tools      Tools           // serves the catalogue
	Skills     *skills.Library // serves skills
	Mounted    Mounted

	Access          Access
	Limits          Limits
	WebhookNetworks []netip.Prefix   // private networks in which targets of webhooks may be
	SessionText     jobs.SessionText // replaces personal data and secrets in what sessions store
	Telemetry       Telemetry
}

// StateDocuments configure how state documents are served.
type StateDocuments struct {
	Disabled bool   // refuse requests for them
	File     string // the document for requests that name none; default state.json
}

// Mounted are handlers that authenticate their requests themselves.
type Mounted struct {
	MCP  http.Handler // serves the paths of the MCP bridge
	Page Page         // serves the web page
}

// Telemetry is where a server reports what it does.
type Telemetry struct {
	Log     *slog.Logger // default slog.Default()
	Tracer  trace.Tracer // nil records no spans
	Metrics http.Handler // serves /metrics
}

// Page is the web page below /ui/.
type Page interface {
	http.Handler
	// Code returns a code for one login with the token, at /ui/login?code=CODE.
	Code(token string) string
	// Drain ends the page's streams.
	Drain()
}

// Access restricts who may send requests.
type Access struct {
	// Tokens are the accepted bearer tokens. If there are none, authentication is off: every caller is the
	// tenant "default", and Serve accepts loopback addresses only. SetTokens replaces them.
	Tokens []Token
	// Tenants are the tenants in the settings. GET /v1/tenants lists them with those that operators have created.
	Tenants []string
	// Hosts are accepted in the Host header, besides localhost and any IP address.
	Hosts []string
	// Origins are the web origins ("https://console.example.org") whose pages may send requests.
	Origins []string
	TLS     *tls.Config // nil serves HTTP without encryption
	// Privacy returns the privacy mode for a tenant's MCP clients. If it is nil or returns "", they see everything.
	Privacy func(tenant string) string
}

// Limits bound requests. A zero field means the default.
type Limits struct {
	Body   int64 // bytes of a request body; default 32 MiB plus 64 KiB for the envelope
	Upload int64 // bytes of a request that uploads files to a workspace; default 6 GiB
	Batch  int   // events in a batch; default 1,000

	Wait      time.Duration // longest ?wait=; a longer one is shortened; default 60 s
	QueueTime time.Duration // time for the queue to respond; default 15 s
	BodyTime  time.Duration // for a request's body, each read of an upload, each write of a response; default 60 s
	Heartbeat time.Duration // interval of comments on an idle event stream; default 15 s
	Grace     time.Duration // time for requests to finish once the server drains; default 10 s
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Body: cmp.Or(l.Body, jobs.MaxData+64<<10), Upload: cmp.Or(l.Upload, 6<<30), Batch: cmp.Or(l.Batch, 1000),
		Wait: cmp.Or(l.Wait, 60*time.Second), QueueTime: cmp.Or(l.QueueTime, 15*time.Second),
		BodyTime: cmp.Or(l.BodyTime, 60*time.Second), Heartbeat: cmp.Or(l.Heartbeat, 15*time.Second),
		Grace: cmp.Or(l.Grace, 10*time.Second),
	}
}

// maxUploads is how many uploads one process reads at once. Each takes about 30 MiB of memory.
const maxUploads = 8

// Server serves requests. It is safe for concurrent use.
type Server struct {
	o             Options
	handler       http.Handler
	tokens        atomic.Pointer[[]Token]
	uploads       chan struct{}          // one element for each upload in progress
	tenantUploads sync.Map               // tenant → chan struct{}, one element for each of its uploads
	registrations sync.Map               // tenant → chan struct{}, one element for each of its registrations
	document      func() ([]byte, error) // the OpenAPI document, built on first use
	// stopping ends when the server drains. Requests that wait then respond with what they have.
	stopping context.Context //nolint:containedctx // the lifetime of the value itself
	stop     context.CancelFunc

	joined     chan struct{} // closed by Join, which sets the fields below
	queue      *jobs.Client
	automation *automation.Service // fires schedules; changes and lists schedules, triggers and webhooks
	workflows  *engine.Engine      // starts and changes workflow runs
}

// New returns a server that has no queue yet. Until Join it serves only the public routes except /readyz. Call Serve,
// or serve its Handler with another HTTP server.
func New(o Options) *Server {
	o.Limits = o.Limits.withDefaults()
	o.State.File = cmp.Or(o.State.File, "state.json")
	o.Telemetry.Log = cmp.Or(o.Telemetry.Log, slog.Default())
	if o.Telemetry.Tracer == nil {
		o.Telemetry.Tracer = noop.NewTracerProvider().Tracer("")
	}
	s := &Server{o: o, uploads: make(chan struct{}, maxUploads), joined: make(chan struct{})}
	s.tokens.Store(&s.o.Access.Tokens)
	s.document = sync.OnceValues(s.openAPI)
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.handler = s.observe(s.guard(s.dispatch(s.newMux())))
	return s
}

// Join gives the server its queue, so that it serves all routes. Call it once. Until then, routes that need the
// queue respond with 503.
func (s *Server) Join(queue *jobs.Client) {
	s.queue = queue
	s.workflows = engine.New(queue, s.o.Telemetry.Log)
	s.automation = automation.New(queue, s.workflows, s.o.WebhookNetworks, s.o.Telemetry.Log)
	close(s.joined)
}

// SetTokens replaces the accepted tokens. It does not turn authentication on or off: it ignores an empty list, and any
// list if authentication is off.
func (s *Server) SetTokens(tokens []Token) {
	if len(tokens) > 0 && len(*s.tokens.Load()) > 0 {
		s.tokens.Store(&tokens)
	}
}

// checkJoined returns the error of a request that arrives before Join, or nil.
func (s *Server) checkJoined() error {
	select {
	case <-s.joined:
		return nil
	default:
	}
	e := apierror.New(errcode.Unavailable, "this process is starting: the queue does not respond yet")
	e.Hint = "try again"
	return e
}

// Handler returns the interface as an http.Handler.
func (s *Server) Handler() http.Handler { return s.handler }

// Drain makes waiting requests respond with what they have, and /readyz fail. Serve calls it when its context
// ends. A caller that serves the Handler calls it before it shuts its HTTP server down.
func (s *Server) Drain() {
	s.stop()
	if s.o.Mounted.Page != nil {
		s.o.Mounted.Page.Drain()
	}
}

// errNeedsTokens is returned by Serve for an address that other hosts can reach while authentication is off.
var errNeedsTokens = errors.New(
	"addresses other than loopback require tokens: configure tenants, or listen on 127.0.0.1")

// Serve serves requests on ln until ctx ends. Once the server has joined, it also creates the records of tasks that
// were published without Submit (see jobs.Client.RecordTasks), fires schedules, and follows the limits and tokens that
// operators set. When ctx ends, Serve calls Drain, accepts no further requests, waits for the requests in progress and
// returns nil. It returns an error if they have not finished within Grace, or if ln fails. While authentication is off,
// it serves no address that other hosts can reach, and returns an error at once. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if len(s.o.Access.Tokens) == 0 && !loopback(ln.Addr()) {
		return errors.Join(fmt.Errorf("listen on %s: %w", ln.Addr(), errNeedsTokens), ln.Close())
	}
	working, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() {
		select {
		case <-s.joined:
			background.Go(func() { s.automation.Run(working) })
			background.Go(func() { s.queue.FollowControls(working, nil) })
			background.Go(func() { s.queue.FollowTokens(working) })
			if err := s.queue.PrepareLists(working); err != nil {
				s.o.Telemetry.Log.WarnContext(ctx, "index of tasks not prepared", "error", err)
			}
			if unregister, err := s.queue.Observe(); err == nil {
				defer unregister()
			} else {
				s.o.Telemetry.Log.WarnContext(ctx, "metrics of the fleet not served", "error", err)
			}
			s.queue.RecordTasks(working)
		case <-working.Done():
		}
	})
	return httpserve.Serve(ctx, ln, httpserve.Options{
		Handler: s.handler, TLS: s.o.Access.TLS, Grace: s.o.Limits.Grace, Log: s.o.Telemetry.Log,
		Drain: s.Drain, Close: s.o.Mirror.Close,
	})
}

func loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return !ok || t.IP.IsLoopback() // only this host can reach a Unix socket
}
