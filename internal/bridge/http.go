package bridge

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// Paths of the HTTP interface.
const (
	PathMCP  = "/mcp" // streamable HTTP, both generations of the protocol
	PathSSE  = "/sse" // the transport of 2024-11-05
	metadata = "/.well-known/oauth-protected-resource"
)

// Handler is the bridge over HTTP. It asks for the fleet's bearer tokens, and takes callers without
// one for whom the fleet takes them. The server in front of it bounds the time for headers and
// checks Host and Origin; Serve does both.
func (b *Bridge) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(PathMCP, b.serve(func(d *door) http.Handler { return http.HandlerFunc(d.serveMCP) }))
	mux.HandleFunc(PathSSE, b.serve(func(d *door) http.Handler { return d.sse }))
	mux.HandleFunc(metadata, b.serveMetadata)
	mux.HandleFunc(metadata+PathMCP, b.serveMetadata)
	return mux
}

// door is the MCP servers of a principal over HTTP, in one profile.
type door struct {
	b        *Bridge
	stateful http.Handler // up to 2025-11-25: sessions, streams, questions to the client
	modern   http.Handler // from 2026-07-28, and older clients without a session
	sse      http.Handler
}

// sessionIdle is when the session of a client that says nothing more is forgotten.
const sessionIdle = 30 * time.Minute

func (p *principal) door(profile string) *door {
	s := p.server(profile)
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.doors[profile]; d != nil {
		return d
	}
	get := func(*http.Request) *mcp.Server { return s }
	o := mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes:        p.b.o.Limits.Body,
		DisableLocalhostProtection: true, // Host was checked, against more names
		SessionTimeout:             sessionIdle, EventStore: mcp.NewMemoryEventStore(nil),
	}
	d := &door{b: p.b, stateful: mcp.NewStreamableHTTPHandler(get, &o)}
	o.Stateless, o.EventStore, o.PropagateRequestCancellation = true, nil, true
	d.modern = mcp.NewStreamableHTTPHandler(get, &o)
	d.sse = mcp.NewSSEHandler(get, &mcp.SSEOptions{DisableLocalhostProtection: true, MaxRequestBodyBytes: p.b.o.Limits.Body})
	p.doors[profile] = d
	return d
}

// serveMCP chooses by what the request says of itself. A session that another bridge made, or this
// one before it was restarted, is served without: all that a client loses is its open stream.
func (d *door) serveMCP(w http.ResponseWriter, r *http.Request) {
	session := r.Header.Get("Mcp-Session-Id")
	strange := session != "" && !strings.HasPrefix(session, d.b.instance)
	switch {
	case r.Header.Get("Mcp-Protocol-Version") >= modern:
		d.modern.ServeHTTP(w, r)
	case strange && r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case strange:
		r.Header.Del("Mcp-Session-Id")
		d.modern.ServeHTTP(w, r)
	default:
		d.stateful.ServeHTTP(w, r)
	}
}

func newInstance() string { return rand.Text()[:8] + "-" }

func (b *Bridge) newSessionID() string { return b.instance + rand.Text() }

// serve finds out who asks, keeps them within their limits and hands the request on.
func (b *Bridge) serve(handler func(*door) http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			defer b.calls.enter()()
		}
		if b.stopping.Err() != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the bridge is stopping: ask again, of the next one", http.StatusServiceUnavailable)
			return
		}
		p, err := b.identify(r)
		if err != nil {
			b.refuse(w, r, err)
			return
		}
		profile := b.o.Profile
		if v := r.URL.Query().Get("profile"); v != "" {
			if profile = v; !slices.Contains(Profiles(), v) {
				http.Error(w, "profile is one of "+strings.Join(Profiles(), ", "), http.StatusBadRequest)
				return
			}
		}
		done, wait := b.limit(p.tenant).enter(r.Method == http.MethodGet)
		if done == nil {
			w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
			http.Error(w, "too many requests of this tenant", http.StatusTooManyRequests)
			return
		}
		defer done()
		if !b.readBody(w, r) {
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if r.Method == http.MethodGet { // a stream: nothing but its client ends it, or the bridge
			defer context.AfterFunc(b.streams, cancel)()
		}
		handler(p.door(profile)).ServeHTTP(&patientWriter{w, http.NewResponseController(w)}, r.WithContext(ctx))
	}
}

// pieceTime is how long one piece of a request or an answer may take.
const pieceTime = 60 * time.Second

// readBody reads the whole body first, so that a slow one holds nothing but itself.
func (b *Bridge) readBody(w http.ResponseWriter, r *http.Request) bool {
	if r.Body == nil || r.Method == http.MethodGet {
		return true
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(pieceTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, b.o.Limits.Body))
	_ = rc.SetReadDeadline(time.Time{}) // it would end a call that waits, too
	if err != nil {
		w.Header().Set("Connection", "close")
		status, text := http.StatusBadRequest, "the body did not arrive whole"
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status, text = http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", b.o.Limits.Body)
		}
		http.Error(w, text, status)
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return true
}

// patientWriter gives a reader time per piece, not per stream.
type patientWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (w *patientWriter) Write(p []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(pieceTime))
	defer func() { _ = w.rc.SetWriteDeadline(time.Time{}) }()
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach what the server's own writer can do.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Times of what is known of a token: how long the fleet is not asked again, and how long a
// principal without sessions is kept.
const (
	trustTime = 10 * time.Second
	keepTime  = 10 * time.Minute
)

// errBusy is returned while too many tokens are being looked up.
var errBusy = errors.New("too many tokens at once")

// identify finds the principal of a request. Every so often it asks the fleet whether the token is
// still good; what a call does, the fleet decides itself, each time.
func (b *Bridge) identify(r *http.Request) (*principal, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if (token == "" && b.needToken.Load()) || (token != "" && !strings.EqualFold(scheme, "Bearer")) {
		return nil, &client.APIError{Status: http.StatusUnauthorized, Message: "the request carries no bearer token"}
	}
	key, now := sha256.Sum256([]byte(token)), time.Now()
	b.mu.Lock()
	p := b.principals[key]
	if p != nil {
		p.used = now
	}
	fresh := p != nil && now.Sub(p.checked) < trustTime
	b.mu.Unlock()
	if fresh {
		return p, nil
	}
	select {
	case b.verify <- struct{}{}:
		defer func() { <-b.verify }()
	case <-time.After(time.Second):
		return nil, errBusy
	}
	found, err := b.newPrincipal(r.Context(), token)
	if err == nil {
		err = found.identify(r.Context())
	}
	if err == nil && found.tenant == "" {
		err = &client.APIError{Status: http.StatusForbidden, Message: "this token belongs to no tenant"}
	}
	if err != nil {
		if e, ok := errors.AsType[*client.APIError](err); ok && (e.Status == 401 || e.Status == 403) {
			b.forget(key)
		}
		return nil, err
	}
	return b.remember(key, found), nil
}

// remember keeps a principal, or refreshes the one that is known by the same token, if it still may
// the same.
func (b *Bridge) remember(key [32]byte, found *principal) *principal {
	b.mu.Lock()
	var gone []*principal
	for k, p := range b.principals {
		if idle := found.checked.Sub(p.used); idle > keepTime && k != key && !p.busy() || idle > 24*time.Hour {
			gone = append(gone, p)
			delete(b.principals, k)
		}
	}
	p := b.principals[key]
	if p != nil && p.tenant == found.tenant && slices.Equal(p.scopes, found.scopes) {
		p.checked = found.checked
	} else {
		if p != nil {
			gone = append(gone, p)
		}
		p = found
		b.principals[key] = p
	}
	b.mu.Unlock()
	for _, p := range gone {
		p.close()
	}
	return p
}

// forget ends the sessions of a token that the fleet no longer knows.
func (b *Bridge) forget(key [32]byte) {
	b.mu.Lock()
	p := b.principals[key]
	delete(b.principals, key)
	b.mu.Unlock()
	if p != nil {
		p.close()
	}
}

// busy reports whether clients are connected.
func (p *principal) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		for range s.Sessions() {
			return true
		}
	}
	return false
}

// refuse answers a request whose caller is not let in.
func (b *Bridge) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*client.APIError](err)
	switch {
	case ok && e.Status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q, resource_metadata=%q", "codefleet", origin(r)+metadata+PathMCP))
		http.Error(w, e.Message, http.StatusUnauthorized)
	case ok && e.Status == http.StatusForbidden:
		http.Error(w, e.Message, http.StatusForbidden)
	case r.Context().Err() != nil: // nobody is there to hear it
	default:
		b.o.Log.WarnContext(r.Context(), "caller not identified", "error", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the fleet does not answer", http.StatusServiceUnavailable)
	}
}

// origin is the address under which the caller knows this server.
func origin(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// serveMetadata tells a client what this resource is and who gives tokens for it (RFC 9728).
func (b *Bridge) serveMetadata(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*") // it is the same for everybody
	h.Set("Content-Type", "application/json")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"resource": origin(r) + PathMCP, "resource_name": "codefleet",
		"authorization_servers": orEmpty(b.o.AuthServers), "scopes_supported": []string{scopeRead, scopeSubmit},
		"bearer_methods_supported": []string{"header"},
	})
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// guard refuses what a hostile web page could send through a browser.
func (b *Bridge) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !b.allowedHost(r.Host) {
			http.Error(w, "the Host header names another server", http.StatusForbidden)
			return
		}
		if o := r.Header.Get("Origin"); o != "" && !slices.Contains(b.o.Origins, o) && o != "http://"+r.Host && o != "https://"+r.Host {
			http.Error(w, "pages of this origin may not call", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (b *Bridge) allowedHost(host string) bool {
	u, err := url.Parse("//" + host)
	if err != nil {
		return false
	}
	name := u.Hostname()
	return name == "localhost" || net.ParseIP(name) != nil || slices.Contains(b.o.Hosts, name) || slices.Contains(b.o.Hosts, host)
}
