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
)

// Options configure a Server. Jobs is required.
type Options struct {
	Jobs *jobs.Client
	// Tokens that are accepted. None at all switches authentication off: everybody is the tenant
	// "default", and Serve listens on loopback addresses only.
	Tokens []Token
	// Hosts are further names under which the server is reached. Loopback names and IP addresses
	// always are accepted; any other name in the Host header may be the work of a hostile page that
	// had its own name resolved to this address.
	Hosts []string
	// Origins are the web origins ("https://console.example.org") whose pages may call.
	Origins []string
	// Artifacts serves the files of tasks; nil: there are none.
	Artifacts Artifacts
	// Tools is the catalogue; nil: there is none.
	Tools Tools
	// Workspaces are the files of the tenants; nil: there are none to be had here.
	Workspaces *state.Store
	// StateFile is the state file of a caller who names none; default state.json.
	StateFile string
	// Metrics serves /metrics; nil: there is none.
	Metrics http.Handler
	// MCP serves the MCP bridge at its own paths and asks for tokens itself; nil: there is none.
	MCP http.Handler
	TLS *tls.Config

	MaxBody   int64         // bytes of a request's body; default 32 MiB and some for the envelope
	MaxUpload int64         // bytes of a request with files for a workspace; default 6 GiB
	MaxBatch  int           // events in a batch; default 1,000
	MaxWait   time.Duration // the longest ?wait=; longer ones are cut to it; default 60 s
	QueueTime time.Duration // for the queue to answer; default 15 s
	Heartbeat time.Duration // between comments on a silent event stream; default 15 s
	BodyTime  time.Duration // for a request's body to arrive, and for an answer to be taken; default 60 s
	Grace     time.Duration // for requests to finish after the end was asked for; default 10 s

	Log    *slog.Logger // default slog.Default()
	Tracer trace.Tracer // nil: no spans
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
	o.MaxBody = cmp.Or(o.MaxBody, jobs.MaxData+64<<10)
	o.MaxUpload = cmp.Or(o.MaxUpload, 6<<30)
	o.StateFile = cmp.Or(o.StateFile, "state.json")
	o.MaxBatch = cmp.Or(o.MaxBatch, 1000)
	o.MaxWait = cmp.Or(o.MaxWait, 60*time.Second)
	o.QueueTime = cmp.Or(o.QueueTime, 15*time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.BodyTime = cmp.Or(o.BodyTime, 60*time.Second)
	o.Grace = cmp.Or(o.Grace, 10*time.Second)
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
	if len(s.o.Tokens) == 0 && !loopback(ln.Addr()) {
		return errors.Join(fmt.Errorf("listen on %s: %w", ln.Addr(), errOpen), ln.Close())
	}
	srv := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		TLSConfig:         s.o.TLS,
		ErrorLog:          slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() {
		if s.o.TLS != nil {
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
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Grace)
	defer cancel()
	err := srv.Shutdown(grace)
	if err != nil {
		err = errors.Join(fmt.Errorf("drain http: %w", err), srv.Close())
	}
	if stopped := <-ended; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	if s.o.Workspaces != nil {
		s.o.Workspaces.Close(grace)
	}
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
	return name == "localhost" || net.ParseIP(name) != nil || slices.Contains(s.o.Hosts, name) || slices.Contains(s.o.Hosts, host)
}
