// Package mcp keeps the connections to upstream MCP servers: processes that speak on standard input
// and output, streamable HTTP, and servers within this process. It connects when a call needs it,
// reconnects with back-off, bounds concurrency, time and size, and takes a server's word for
// nothing. What may be called, and what becomes of an answer, is the broker's business. The key
// type is Manager.
//
// Numbers in structured results pass through the SDK as 64-bit floats: integers beyond 2^53 lose
// their last digits, as in JavaScript.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools"
)

// Scope says who shares a connection to a server.
type Scope string

// The scopes. A server that remembers anything of its callers is not Shared.
const (
	Shared     Scope = "shared" // the default: one connection for the fleet's tenants
	PerTenant  Scope = "tenant"
	PerSession Scope = "session"
)

// Server is one upstream, as configured: exactly one of Command, URL and InProcess.
type Server struct {
	Name string

	Command string
	Args    []string
	Env     map[string]string // besides PATH, HOME, LANG; nothing else of ours is passed on
	Dir     string
	User    string // whom the process runs as; only root may say so

	URL     string
	Headers map[string]string

	InProcess *sdk.Server

	Scope          Scope
	Concurrency    int           // calls at once over all connections; 0: 8
	ConnectTimeout time.Duration // 0: 30 s
	CallTimeout    time.Duration // without an answer or progress; 0: 60 s
	MaxResultBytes int           // of one answer on the wire; 0: 8 MiB
	IdleTimeout    time.Duration // after which an unshared connection is closed; 0: 10 min
}

// Options are those of a Manager.
type Options struct {
	Log      *slog.Logger // nil: slog.Default
	Path     string       // PATH of the processes; empty: /usr/local/bin:/usr/bin:/bin
	Backoff  Backoff
	OnOutput func(server, line string) // gets what a server writes that is no message; nil: the log does
}

// Backoff is the pause after a failed connection: Min, doubled each time, Max at most.
type Backoff struct{ Min, Max time.Duration } // 0: 200 ms, 30 s

// Manager holds the connections. It is safe for concurrent use.
type Manager struct {
	log      *slog.Logger
	backoff  Backoff
	path     string
	onOutput func(server, line string)
	servers  map[string]*upstream

	mu         sync.Mutex
	closed     bool
	goroutines sync.WaitGroup // goroutines of connections
}

// NewManager checks the configuration and connects nothing. It returns every problem at once.
func NewManager(servers []Server, opts Options) (*Manager, error) {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	m := &Manager{log: opts.Log, backoff: opts.Backoff, path: opts.Path, onOutput: opts.OnOutput, servers: map[string]*upstream{}}
	m.backoff.Min = orDefault(m.backoff.Min, 200*time.Millisecond)
	m.backoff.Max = orDefault(m.backoff.Max, 30*time.Second)
	var problems []error
	var asRoot []string
	for _, s := range servers {
		s.Scope = orDefault(s.Scope, Shared)
		s.Concurrency = orDefault(s.Concurrency, 8)
		s.ConnectTimeout = orDefault(s.ConnectTimeout, 30*time.Second)
		s.CallTimeout = orDefault(s.CallTimeout, time.Minute)
		s.MaxResultBytes = orDefault(s.MaxResultBytes, 8<<20)
		s.IdleTimeout = orDefault(s.IdleTimeout, 10*time.Minute)
		if err := s.check(); err != nil {
			problems = append(problems, fmt.Errorf("server %q: %w", s.Name, err))
		}
		if m.servers[s.Name] != nil {
			problems = append(problems, fmt.Errorf("server %q: configured twice", s.Name))
		}
		if s.Command != "" && s.User == "" && os.Geteuid() == 0 {
			asRoot = append(asRoot, s.Name)
		}
		m.servers[s.Name] = &upstream{Server: s, redactor: newRedactor(s), manager: m, slots: make(chan struct{}, max(s.Concurrency, 1)), conns: map[string]*conn{}}
	}
	if asRoot != nil {
		m.log.Warn("tool servers will run as root: give each a user of its own", "servers", asRoot, "setting", "mcp_servers[].user")
	}
	return m, errors.Join(problems...)
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (s Server) check() error {
	ways := 0
	for _, has := range []bool{s.Command != "", s.URL != "", s.InProcess != nil} {
		if has {
			ways++
		}
	}
	switch {
	case s.Name == "":
		return errors.New("it has no name")
	case ways != 1:
		return errors.New("it needs either a command or a url")
	case s.Scope != Shared && s.Scope != PerTenant && s.Scope != PerSession:
		return fmt.Errorf("scope %q: there are shared, tenant and session", s.Scope)
	case s.Concurrency < 0 || s.MaxResultBytes < 0 || s.CallTimeout < 0 || s.ConnectTimeout < 0:
		return errors.New("a limit is negative")
	}
	if s.URL != "" {
		if u, err := url.Parse(s.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return errors.New("the url is not one of http or https")
		}
	}
	return nil
}

// Servers returns the names of the configured servers, sorted.
func (m *Manager) Servers() []string { return slices.Sorted(maps.Keys(m.servers)) }

// Call makes one call and returns the tool's answer, also when that is an error of the tool.
// Otherwise it returns ctx's error, or an *tools.UpstreamError. Cancelling ctx tells the server. It
// makes a call twice only when r.Repeatable and the connection was lost under the first.
func (m *Manager) Call(ctx context.Context, r tools.Request) (tools.Result, error) {
	u, err := m.upstream(r.Server)
	if err != nil {
		return tools.Result{}, err
	}
	select {
	case u.slots <- struct{}{}:
		defer func() { <-u.slots }()
	case <-ctx.Done():
		return tools.Result{}, context.Cause(ctx)
	}
	res, err := u.call(ctx, r)
	if ue, ok := errors.AsType[*tools.UpstreamError](err); ok && ue.Reason == tools.Lost && r.Repeatable && ctx.Err() == nil {
		m.log.InfoContext(ctx, "tool call repeated", "server", r.Server, "tool", r.Tool)
		res, err = u.call(ctx, r)
	}
	return res, u.redactor.redactUpstream(err)
}

// Definitions returns what the server says of its tools now, and of itself.
func (m *Manager) Definitions(ctx context.Context, server, tenant, session string) (defs []tools.Definition, about tools.About, err error) {
	u, err := m.upstream(server)
	if err != nil {
		return nil, about, err
	}
	c, live, err := u.connection(ctx, tenant, session)
	if err != nil {
		return nil, about, u.redactor.redactUpstream(err)
	}
	defer c.release()
	live.invalidateTools()
	defs, err = live.definitions(ctx)
	return defs, live.about, u.redactor.redactUpstream(err)
}

func (m *Manager) upstream(name string) (*upstream, error) {
	u, ok := m.servers[name]
	if !ok {
		return nil, &tools.UnknownError{What: "server", Name: name, Nearest: tools.Nearest(name, m.Servers(), 3)}
	}
	return u, nil
}

// Health is the state of one upstream.
type Health struct {
	Server      string    `json:"server"`
	State       string    `json:"state"` // idle (never needed, or closed again) | up | down
	Connections int       `json:"connections"`
	InFlight    int       `json:"in_flight"`
	Version     string    `json:"version,omitempty"`
	Failures    int       `json:"failures"` // connections that failed in a row, the worst of all
	LastError   string    `json:"last_error,omitempty"`
	RetryAt     time.Time `json:"retry_at,omitzero"`
}

// Health returns the state of every upstream, by name.
func (m *Manager) Health() []Health {
	var out []Health
	for _, name := range m.Servers() {
		out = append(out, m.servers[name].health())
	}
	return out
}

// Forget closes the connections that belong to a tenant's session, or, with an empty session, to
// the tenant.
func (m *Manager) Forget(tenant, session string) {
	for _, u := range m.servers {
		u.forget(tenant, session)
	}
}

// Close ends every connection and process, and waits for them. Calls under way fail.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	for _, u := range m.servers {
		u.closeAll()
	}
	m.goroutines.Wait()
}

// begin runs f as one of the goroutines that Close waits for; false after Close.
func (m *Manager) start(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.goroutines.Go(f)
	return true
}
