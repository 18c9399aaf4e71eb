package bridge

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Handler returns the bridge as an HTTP handler. It requires one of the fleet's bearer tokens, unless the fleet
// accepts requests without a token. Its HTTP server must limit the time to read headers, and check Host and
// Origin, as Serve does.
func (b *Bridge) Handler() http.Handler {
	b.rechecking.Do(b.recheck)
	mux := http.NewServeMux()
	mux.HandleFunc(PathMCP, b.serve(func(t *transports) http.Handler { return http.HandlerFunc(t.serveMCP) }))
	mux.HandleFunc(PathSSE, b.serve(func(t *transports) http.Handler { return t.sse }))
	mux.HandleFunc("POST "+pathRegister, refuseRegistration)
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /health", healthz)
	return mux
}

// healthz responds with 200 as long as the process responds at all.
func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"status":"ok"}`) // the client may have gone away
}

// transports are the HTTP transports of a principal's MCP server for one profile.
type transports struct {
	b         *Bridge
	tenant    string
	sessions  http.Handler // serves revisions up to 2025-11-25, which have sessions
	stateless http.Handler // serves revisions from 2026-07-28, and older clients that have lost their session
	sse       http.Handler
}

// sessionIdle is the time after which the session of an inactive client ends.
const sessionIdle = 30 * time.Minute

// transport returns the transports of a profile. The first call creates them.
func (p *principal) transport(profile string) *transports {
	s := p.server(profile)
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.transports[profile]; t != nil {
		return t
	}
	server := func(*http.Request) *mcp.Server { return s }
	o := mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes:        p.b.o.Limits.Body,
		DisableLocalhostProtection: true, // guard checks the Host header
		SessionTimeout:             sessionIdle, EventStore: mcp.NewMemoryEventStore(nil),
	}
	t := &transports{b: p.b, tenant: p.tenant, sessions: mcp.NewStreamableHTTPHandler(server, &o)}
	o.Stateless, o.EventStore, o.PropagateRequestCancellation = true, nil, true
	t.stateless = mcp.NewStreamableHTTPHandler(server, &o)
	t.sse = mcp.NewSSEHandler(server, &mcp.SSEOptions{
		DisableLocalhostProtection: true, MaxRequestBodyBytes: p.b.o.Limits.Body,
	})
	p.transports[profile] = t
	return t
}

// serveMCP selects the transport by the request's headers. It serves a session of another bridge, or of this bridge
// before a restart, without state: the client loses only its open stream.
func (t *transports) serveMCP(w http.ResponseWriter, r *http.Request) {
	session := r.Header.Get("Mcp-Session-Id")
	foreign := session != "" && !strings.HasPrefix(session, t.b.instance)
	switch {
	case r.Header.Get("Mcp-Protocol-Version") >= modern:
		t.stateless.ServeHTTP(w, r)
	case foreign && r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case foreign:
		r.Header.Del("Mcp-Session-Id")
		t.stateless.ServeHTTP(w, r)
	case session == "" && r.Method == http.MethodPost && t.b.sessions(t.tenant) >= t.b.o.Limits.Sessions:
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many sessions of this tenant: end some with DELETE, or wait until idle ones end",
			http.StatusTooManyRequests)
	default:
		t.sessions.ServeHTTP(w, r)
	}
}

func (b *Bridge) newSessionID() string { return b.instance + rand.Text() }

// serve returns a handler that authenticates a request, applies the tenant's limits and passes the request to the
// transport that handler selects.
func (b *Bridge) serve(handler func(*transports) http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			defer b.inFlight.begin()()
		}
		if b.stopping.Err() != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "this bridge is stopping: send the request again", http.StatusServiceUnavailable)
			return
		}
		p, err := b.authenticate(r)
		if err != nil {
			b.refuse(w, r, err)
			return
		}
		profile := b.o.Profile
		if v := r.URL.Query().Get("profile"); v != "" {
			if profile = v; !slices.Contains(Profiles(), v) {
				http.Error(w, "unknown profile: want one of "+strings.Join(Profiles(), ", "), http.StatusBadRequest)
				return
			}
		}
		release, retryAfter := b.limit(p.tenant).acquire(r.Method == http.MethodGet)
		if release == nil {
			w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter/time.Second)+1))
			http.Error(w, "too many requests from this tenant", http.StatusTooManyRequests)
			return
		}
		defer release()
		if !b.readBody(w, r) {
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if r.Method == http.MethodGet { // a stream, which otherwise ends only with its client
			defer context.AfterFunc(b.streams, cancel)()
		}
		out := &deadlineWriter{w, http.NewResponseController(w)}
		handler(p.transport(profile)).ServeHTTP(out, r.WithContext(ctx))
	}
}

// ioTimeout bounds the time to read a body, and the time of each write of a response.
const ioTimeout = 60 * time.Second

// readBody buffers the whole body, so that a slow sender blocks only its own request. It reports false if
// it has responded with an error.
func (b *Bridge) readBody(w http.ResponseWriter, r *http.Request) bool {
	if r.Body == nil || r.Method == http.MethodGet {
		return true
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(ioTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, b.o.Limits.Body))
	_ = rc.SetReadDeadline(time.Time{}) // the deadline must not end a call that waits
	if err != nil {
		w.Header().Set("Connection", "close")
		status, text := http.StatusBadRequest, "the connection ended before the whole body arrived"
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
			text = fmt.Sprintf("the body is larger than %d bytes", b.o.Limits.Body)
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			status, text = http.StatusRequestTimeout, fmt.Sprintf("the body did not arrive within %s", ioTimeout)
		}
		http.Error(w, text, status)
		return false
	}
	if refusal := checkBody(body); refusal != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(refusal)
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return true
}

// deadlineWriter sets a deadline for each write instead of one for the whole stream.
type deadlineWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (w *deadlineWriter) Write(p []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(ioTimeout))
	defer func() { _ = w.rc.SetWriteDeadline(time.Time{}) }()
	return w.ResponseWriter.Write(p)
}

// Unwrap gives http.ResponseController access to the server's own writer.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
