// Package mcp manages the connections to upstream MCP servers: processes (on standard input and output),
// streamable HTTP, and servers in this process. It connects when a call needs it, reconnects with
// back-off, and limits concurrency, time and size. Everything that a server sends is untrusted. Package
// broker decides which calls are allowed and how results reach the program. The key type is Manager.
//
// The SDK decodes numbers in structured results as 64-bit floats. The package passes them around the SDK, so that large
// integers keep all digits (exact.go).
package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools"
)

// Scope says which callers share a connection to a server.
type Scope string

// The scopes. Many servers keep state for their callers in the connection: a browser page, a database
// transaction, a memory. In a Shared connection, each tenant sees what the others did.
const (
	Shared     Scope = "shared"  // one connection for all tenants of the fleet
	PerTenant  Scope = "tenant"  // one for each tenant; the default
	PerSession Scope = "session" // one for each session of a tenant
)

// Server configures one upstream, with exactly one of Command, URL and InProcess.
type Server struct {
	Name string

	Command string
	Args    []string
	Env     map[string]string // besides PATH, HOME and LANG; nothing else is inherited
	Dir     string            // working directory; the default is this process's
	User    string            // the process runs as this user, which requires root; the default is the current user

	URL     string
	SSE     bool // use the transport HTTP with SSE, which came before streamable HTTP
	Headers map[string]string

	InProcess *sdk.Server

	Scope  Scope // the default is PerTenant
	Limits Limits
}

// Limits bounds the use of one server. A zero field means the default.
type Limits struct {
	Concurrency    int           // calls at a time over all connections, default 8
	ConnectTimeout time.Duration // default 30 s, for a command 2 min: npx and uvx may download it first
	CallTimeout    time.Duration // time without a response or progress, default 60 s
	MaxResultBytes int           // size of one message, default 8 MiB
	IdleTimeout    time.Duration // when to close an idle connection that is not Shared, default 10 min
}

func (s Server) withDefaults() Server {
	l, connect := s.Limits, 30*time.Second
	if s.Command != "" {
		connect = 2 * time.Minute
	}
	s.Scope = cmp.Or(s.Scope, PerTenant)
	s.Limits = Limits{
		Concurrency:    cmp.Or(l.Concurrency, 8),
		ConnectTimeout: cmp.Or(l.ConnectTimeout, connect),
		CallTimeout:    cmp.Or(l.CallTimeout, time.Minute),
		MaxResultBytes: cmp.Or(l.MaxResultBytes, 8<<20),
		IdleTimeout:    cmp.Or(l.IdleTimeout, 10*time.Minute),
	}
	return s
}

// Options configures a Manager.
type Options struct {
	Log     *slog.Logger // the default is slog.Default
	Backoff Backoff
	// OnOutput receives the lines that a server writes to standard error, and those on standard output
	// that are not messages. If it is nil, they are logged.
	OnOutput func(server, line string)
	// OnAnnounced receives a server's tools after the server has announced that they changed.
	OnAnnounced func(server string, defs []tools.Definition)
	// Reload returns the configuration if it has changed since the last call, and otherwise nil. The manager calls
	// it before each use of a server. If it is nil, the configuration never changes.
	Reload func() ([]Server, error)
}

// Backoff is the delay after a failed attempt to connect: Min at first, then doubled each time, up to Max.
type Backoff struct{ Min, Max time.Duration } // the defaults are 200 ms and 30 s

// Manager holds the connections. It is safe for concurrent use.
type Manager struct {
	log      *slog.Logger
	backoff  Backoff
	onOutput func(server, line string)
	reload   func() ([]Server, error)
	announce func(server string, defs []tools.Definition)

	refreshing sync.Mutex // held by refresh, which alone changes servers and retired

	// While mu is held, no upstream may be locked: an upstream that is locked may call start, which locks mu.
	mu         sync.Mutex
	servers    map[string]*upstream
	retired    []*upstream // no longer configured, but perhaps still in use
	closed     bool
	goroutines sync.WaitGroup // goroutines of connections
}

// NewManager checks the configuration, without connecting, and returns all problems at once.
func NewManager(servers []Server, opts Options) (*Manager, error) {
	m := &Manager{log: cmp.Or(opts.Log, slog.Default()), onOutput: opts.OnOutput, reload: opts.Reload}
	m.announce = opts.OnAnnounced
	m.backoff.Min = cmp.Or(opts.Backoff.Min, 200*time.Millisecond)
	m.backoff.Max = cmp.Or(opts.Backoff.Max, 30*time.Second)
	var err error
	m.servers, err = m.configure(servers)
	return m, err
}

// configure returns the upstreams for a configuration. A server whose configuration is unchanged keeps its upstream.
func (m *Manager) configure(servers []Server) (map[string]*upstream, error) {
	upstreams := map[string]*upstream{}
	var problems []error
	var asRoot []string
	for _, s := range servers {
		s = s.withDefaults()
		if err := s.check(); err != nil {
			problems = append(problems, fmt.Errorf("server %q: %w", s.Name, err))
		}
		if upstreams[s.Name] != nil {
			problems = append(problems, fmt.Errorf("server %q: configured twice", s.Name))
		}
		if u := m.servers[s.Name]; u != nil && reflect.DeepEqual(u.Server, s) {
			upstreams[s.Name] = u
			continue
		}
		if s.Command != "" && s.User == "" && os.Geteuid() == 0 {
			asRoot = append(asRoot, s.Name)
		}
		all, secrets := newRedactors(s)
		upstreams[s.Name] = &upstream{
			Server: s, redactor: all, descriptions: secrets, manager: m,
			slots: make(chan struct{}, max(s.Limits.Concurrency, 1)), conns: map[string]*conn{},
		}
	}
	if asRoot != nil {
		m.log.Warn("tool servers will run as root: configure a user for each",
			"servers", asRoot, "setting", "mcp_servers[].user")
	}
	return upstreams, errors.Join(problems...)
}

// refresh applies a changed configuration. Calls in flight continue with the configuration with which they began. If
// the new configuration is invalid, refresh logs that and keeps the old one.
func (m *Manager) refresh(ctx context.Context) {
	if m.reload == nil {
		return
	}
	m.refreshing.Lock()
	defer m.refreshing.Unlock()
	servers, err := m.reload()
	if err == nil && servers == nil {
		return
	}
	var upstreams map[string]*upstream
	if err == nil {
		upstreams, err = m.configure(servers)
	}
	if err != nil {
		m.log.WarnContext(ctx, "changed settings of tool servers not applied", "error", err)
		return
	}
	var old []*upstream
	var changed []string
	for name, u := range m.servers {
		if upstreams[name] != u {
			old, changed = append(old, u), append(changed, name)
		}
	}
	for name := range upstreams {
		if m.servers[name] == nil {
			changed = append(changed, name)
		}
	}
	retired := append(slices.DeleteFunc(slices.Clone(m.retired), (*upstream).unused), old...)
	m.mu.Lock()
	m.servers, m.retired = upstreams, retired
	m.mu.Unlock()
	for _, u := range old {
		u.retire()
	}
	if changed != nil {
		slices.Sort(changed)
		m.log.InfoContext(ctx, "changed settings of tool servers applied", "servers", changed)
	}
}

func (s Server) check() error {
	transports := 0
	for _, has := range []bool{s.Command != "", s.URL != "", s.InProcess != nil} {
		if has {
			transports++
		}
	}
	switch {
	case s.Name == "":
		return errors.New("the name is missing")
	case transports != 1:
		return errors.New("exactly one of command and url is required")
	case s.Scope != Shared && s.Scope != PerTenant && s.Scope != PerSession:
		return fmt.Errorf("unknown scope %q; want shared, tenant or session", s.Scope)
	case s.Limits.Concurrency < 0 || s.Limits.MaxResultBytes < 0 ||
		s.Limits.CallTimeout < 0 || s.Limits.ConnectTimeout < 0:
		return errors.New("limits must not be negative")
	}
	if s.SSE && s.URL == "" {
		return errors.New("only a server with an address can use SSE")
	}
	if s.URL != "" {
		if u, err := url.Parse(s.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return errors.New("the url must be an http or https address")
		}
	}
	return nil
}

// Servers returns the sorted names of the configured servers.
func (m *Manager) Servers() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.servers))
}

// Has reports whether a server is configured.
func (m *Manager) Has(ctx context.Context, server string) bool {
	_, err := m.upstream(ctx, server)
	return err == nil
}

// Call makes one call and returns the tool's result, which may be an error of the tool. The returned error is
// a *tools.UnknownError for an unknown server, a *tools.UpstreamError, or the cause of ctx. Cancelling ctx
// cancels the call on the server. Call repeats the call once if it is Repeatable and the connection was lost, or if the
// server refused it because it had forgotten the session.
func (m *Manager) Call(ctx context.Context, r tools.Request) (tools.Result, error) {
	u, err := m.upstream(ctx, r.Server)
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
	if ue, ok := errors.AsType[*tools.UpstreamError](err); ok && ue.Reason == tools.Lost &&
		(r.Repeatable || !ue.Sent) && ctx.Err() == nil {
		m.log.InfoContext(ctx, "tool call repeated", "server", r.Server, "tool", r.Tool)
		res, err = u.call(ctx, r)
	}
	return res, u.redactor.redactUpstream(err)
}

// Definitions fetches the definitions of the server's tools and the server's description of itself.
func (m *Manager) Definitions(ctx context.Context, server, tenant, session string) (defs []tools.Definition,
	about tools.About, err error,
) {
	u, err := m.upstream(ctx, server)
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

func (m *Manager) upstream(ctx context.Context, name string) (*upstream, error) {
	m.refresh(ctx)
	m.mu.Lock()
	u, ok := m.servers[name]
	m.mu.Unlock()
	if !ok {
		return nil, &tools.UnknownError{What: "server", Name: name, Nearest: tools.Nearest(name, m.Servers(), 3)}
	}
	return u, nil
}

// Health is the state of one upstream.
type Health struct {
	Server      string    `json:"server"`
	State       string    `json:"state"` // idle (without a connection) | up | down
	Connections int       `json:"connections"`
	InFlight    int       `json:"in_flight"`
	Version     string    `json:"version,omitempty"`
	Failures    int       `json:"failures"` // consecutive failed attempts; the maximum over all connections
	LastError   string    `json:"last_error,omitempty"`
	RetryAt     time.Time `json:"retry_at,omitzero"`
}

// Health returns the state of every upstream, by name.
func (m *Manager) Health() []Health {
	m.mu.Lock()
	servers := maps.Clone(m.servers)
	m.mu.Unlock()
	var out []Health
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		out = append(out, servers[name].health())
	}
	return out
}

// Close ends all connections and processes, and waits for them. Calls in flight fail.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	all := slices.AppendSeq(slices.Clone(m.retired), maps.Values(m.servers))
	m.mu.Unlock()
	for _, u := range all {
		u.closeAll()
	}
	m.goroutines.Wait()
}

// start runs f in a goroutine that Close waits for. After Close it returns false and does not run f.
func (m *Manager) start(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.goroutines.Go(f)
	return true
}
