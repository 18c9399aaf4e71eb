// Package ingest is the HTTP interface of a fleet: it authenticates, validates, submits to the queue
// and hands out records, results, live events, artifacts and the files of workspaces. It keeps no state, so any number of
// processes can serve side by side, and a task submitted to one can be waited for at another.
//
//	POST   /v1/events                        CloudEvents: binary, structured, batch       submit
//	POST   /v1/tasks?wait=                   plain JSON                                   submit
//	GET    /v1/tasks?status=&limit=          records, the latest first                    read
//	GET    /v1/tasks/{id}?wait=              the record                                   read
//	GET    /v1/tasks/{id}/events             progress and output as server-sent events    read
//	DELETE /v1/tasks/{id}                    cancels                                      submit
//	GET    /v1/tasks/{id}/artifacts/{path}   a file that the task handed back             read
//	POST   /v1/tasks/{id}/approvals          says yes or no to its calls that wait        approve
//	GET    /v1/approvals                     tool calls that wait for somebody's word     read
//	GET    /v1/audit?task=&limit=            tool calls of tasks, the latest first        read
//	GET    /v1/tools?detail=&server=         the catalogue of tools                       read
//	GET    /v1/tools/search?q=&detail=&limit=&explain=   the tools for one or several queries
//	GET    /v1/tools/{server}/{tool}         one tool in full                             read
//	       /v1/workspaces, /v1/state/{file}  files of workspaces: see workspaces.go        read, submit
//	GET    /v1/dead?limit=                   dead letters, the latest first               read
//	GET    /v1/fleet                         workers and backlog                          operator
//	GET    /v1/whoami                        tenant and scopes of the token               any
//	       /mcp, /sse                        if Options.MCP is set: the MCP bridge        as its tools
//	GET    /v1/schemas/{name}                the JSON Schemas                             –
//	GET    /healthz, /readyz                 this process; the queue behind it            –
//	GET    /metrics                          if Options.Metrics is set                    operator
//
// Every error is {code, message, cause, hint, path}; see package refusal. The key type is Server.
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
	"net/url"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mirror"
)

// Options configure a Server. Jobs is required.
type Options struct {
	Jobs       *jobs.Client
	Workspaces *state.Store   // nil: workspaces and state documents are not served
	Mirror     *mirror.Mirror // of Workspaces; nil: there is none
	Artifacts  Artifacts      // nil: artifacts are not served
	Tools      Tools          // nil: the catalogue is not served
	Metrics    http.Handler   // serves /metrics; nil: it does not exist
	MCP        http.Handler   // serves the paths of the MCP bridge and authenticates itself; nil: they do not exist

	Access    Access
	Limits    Limits
	StateFile string // the state document of requests that do not name one; default state.json

	Log    *slog.Logger // default slog.Default()
	Tracer trace.Tracer // nil: no spans
}

// Access says who may send requests, and how.
type Access struct {
	// Tokens are the accepted bearer tokens. Without any, authentication is off: every caller is the
	// tenant "default", and Serve accepts loopback addresses only.
	Tokens []Token
	// Hosts are accepted in the Host header, besides loopback names and IP addresses. Any other name may
	// belong to a hostile page that resolves its own name to this address (DNS rebinding).
	Hosts []string
	// Origins are the web origins ("https://console.example.org") whose pages may send requests.
	Origins []string
	TLS     *tls.Config // nil: HTTP without encryption
}

// Limits bound requests. Zero fields have the defaults.
type Limits struct {
	Body   int64 // bytes of a request body; default 32 MiB and 64 KiB for the envelope
	Upload int64 // bytes of a request with files for a workspace; default 6 GiB
	Batch  int   // events in a batch; default 1,000

	Wait      time.Duration // a longer ?wait= is shortened to this; default 60 s
	QueueTime time.Duration // for the queue to respond; default 15 s
	BodyTime  time.Duration // to receive a request body, and to send a response; default 60 s
	Heartbeat time.Duration // between comments on an idle event stream; default 15 s
	Grace     time.Duration // for requests to finish once the server drains; default 10 s
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Body: cmp.Or(l.Body, jobs.MaxData+64<<10), Upload: cmp.Or(l.Upload, 6<<30), Batch: cmp.Or(l.Batch, 1000),
		Wait: cmp.Or(l.Wait, 60*time.Second), QueueTime: cmp.Or(l.QueueTime, 15*time.Second),
		BodyTime: cmp.Or(l.BodyTime, 60*time.Second), Heartbeat: cmp.Or(l.Heartbeat, 15*time.Second),
		Grace: cmp.Or(l.Grace, 10*time.Second),
	}
}

// Server answers requests. It is safe for concurrent use.
type Server struct {
	o         Options
	handler   http.Handler
	uploads   chan struct{}   // holds one for each upload under way
	uploadsOf sync.Map        // of chan struct{} by tenant: the same of that tenant
	stopping  context.Context //nolint:containedctx // of the server itself, not of a call. Done once the server drains: waiters return with what they have
	stop      context.CancelFunc
}

// New returns a server that does not listen yet.
func New(o Options) *Server {
	o.Limits = o.Limits.withDefaults()
	o.StateFile = cmp.Or(o.StateFile, "state.json")
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Tracer == nil {
		o.Tracer = noop.NewTracerProvider().Tracer("")
	}
	s := &Server{o: o, uploads: make(chan struct{}, mostUploads)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.handler = s.routes()
	return s
}

// Handler returns the interface as a handler, for a server of the caller's own.
func (s *Server) Handler() http.Handler { return s.handler }

// Drain lets everything that waits return with what it has, and makes /readyz say no. Serve calls it
// when its context ends; a caller with a server of its own calls it before it shuts that down.
func (s *Server) Drain() { s.stop() }

// errOpen is returned by Serve for a listener that strangers can reach without a token.
var errOpen = errors.New("beyond loopback a token is required: configure tenants, or listen on 127.0.0.1")

// Serve answers requests on ln until ctx ends. Then it takes no new ones, lets those under way
// finish, waiters with what they have, and returns nil; it returns an error when they did not finish
// within Grace, or when ln fails. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if len(s.o.Access.Tokens) == 0 && !loopback(ln.Addr()) {
		return errors.Join(fmt.Errorf("listen on %s: %w", ln.Addr(), errOpen), ln.Close())
	}
	srv := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		TLSConfig:         s.o.Access.TLS,
		ErrorLog:          slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() {
		if s.o.Access.TLS != nil {
			ended <- srv.ServeTLS(ln, "", "")
		} else {
			ended <- srv.Serve(ln)
		}
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve http on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.Drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Limits.Grace)
	defer cancel()
	err := srv.Shutdown(grace)
	if err != nil {
		err = errors.Join(fmt.Errorf("drain http: %w", err), srv.Close())
	}
	if stopped := <-ended; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	s.o.Mirror.Close(grace)
	return err
}

func loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return !ok || t.IP.IsLoopback() // a Unix socket is this host's
}

// routes puts the handlers behind what holds for all of them.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/events", s.needs(ScopeSubmit, s.postEvents))
	mux.Handle("OPTIONS /v1/events", s.needs(ScopeSubmit, s.optionsEvents))
	mux.Handle("POST /v1/tasks", s.needs(ScopeSubmit, s.postTask))
	mux.Handle("GET /v1/tasks", s.needs(ScopeRead, s.getTasks))
	mux.Handle("GET /v1/tasks/{id}", s.needs(ScopeRead, s.getTask))
	mux.Handle("DELETE /v1/tasks/{id}", s.needs(ScopeSubmit, s.deleteTask))
	mux.Handle("GET /v1/tasks/{id}/events", s.needs(ScopeRead, s.getTaskEvents))
	mux.Handle("GET /v1/tasks/{id}/artifacts/{path...}", s.needs(ScopeRead, s.getArtifact))
	mux.Handle("POST /v1/tasks/{id}/approvals", s.needs(ScopeApprove, s.postApproval))
	mux.Handle("GET /v1/approvals", s.needs(ScopeRead, s.getApprovals))
	mux.Handle("GET /v1/audit", s.needs(ScopeRead, s.getAudit))
	mux.Handle("GET /v1/tools", s.needs(ScopeRead, s.getTools))
	mux.Handle("GET /v1/tools/search", s.needs(ScopeRead, s.searchTools))
	mux.Handle("GET /v1/tools/{server}/{tool}", s.needs(ScopeRead, s.getTool))
	mux.Handle("GET /v1/dead", s.needs(ScopeRead, s.getDead))
	mux.Handle("GET /v1/fleet", s.needs(ScopeOperator, s.getFleet))
	s.workspaceRoutes(mux)
	mux.Handle("GET /v1/schemas/{name}", s.open(s.getSchema))
	mux.Handle("GET /v1/whoami", s.open(s.getWhoAmI))
	s.routeMCP(mux)
	mux.Handle("GET /healthz", s.open(s.healthz))
	mux.Handle("GET /readyz", s.open(s.readyz))
	if s.o.Metrics != nil {
		mux.Handle("GET /metrics", s.needs(ScopeOperator, func(w http.ResponseWriter, r *http.Request) error {
			s.o.Metrics.ServeHTTP(w, r)
			return nil
		}))
	}
	return s.observe(s.guard(s.route(mux)))
}

// allowedHost reports whether the Host header names this server.
func (s *Server) allowedHost(host string) bool {
	u, err := url.Parse("//" + host)
	if err != nil {
		return false
	}
	name := u.Hostname()
	return name == "localhost" || net.ParseIP(name) != nil || slices.Contains(s.o.Access.Hosts, name) || slices.Contains(s.o.Access.Hosts, host)
}
