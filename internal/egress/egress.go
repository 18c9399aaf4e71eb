// Package egress lets a program reach the hosts on its allow-list. Its Proxy is an HTTP proxy on the worker's host that
// serves the connections that the program opens inside its box. It does not listen on any port. The type Public dials
// hosts for requests that the fleet itself makes.
//
// The method dial of Proxy makes all decisions about programs. It requires the host and port to be on the allow-list,
// resolves the name itself, refuses a name if any of its addresses is not public, and connects to an address that it
// has checked, so that a later response of the name server changes nothing. Plain requests are parsed and forwarded,
// and CONNECT opens a tunnel. Both use dial for each connection, so redirects are checked as well.
package egress

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/codefleet/codefleet/internal/allowlist"
)

// Options configure New. A zero field means the default.
type Options struct {
	Allow       []allowlist.Pattern // the allow-list; empty allows nothing
	Bytes       int64               // limit for all connections together, in both directions; default 256 MiB
	Connections int                 // limit for connections of the program, and to hosts; default 1,000 each
	Header      time.Duration       // time limit for a request's header; default 10 s
	Connect     time.Duration       // time limit to resolve a name and connect; default 10 s
	Idle        time.Duration       // time limit without a byte in either direction; default 2 min

	// Lookup and Dial replace the host's resolver and network in tests. The addresses from Lookup are checked in any
	// case.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// Proxy serves one execution of a program. It is safe for concurrent use.
type Proxy struct {
	opts    Options
	bytes   atomic.Int64 // sent and received so far
	served  atomic.Int64 // connections of the program
	dialled atomic.Int64 // connections to hosts
	ledger  ledger
	forward *http.Transport // sends plain requests
}

// New returns a proxy for one execution.
func New(o Options) *Proxy {
	o.Bytes = cmp.Or(o.Bytes, 256<<20)
	o.Connections = cmp.Or(o.Connections, 1000)
	o.Header = cmp.Or(o.Header, 10*time.Second)
	o.Connect = cmp.Or(o.Connect, 10*time.Second)
	o.Idle = cmp.Or(o.Idle, 2*time.Minute)
	if o.Lookup == nil {
		o.Lookup = lookup
	}
	if o.Dial == nil {
		o.Dial = connect
	}
	p := &Proxy{opts: o}
	p.forward = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return p.dial(ctx, addr) },

		DisableCompression:     true, // pass bodies on unchanged
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        o.Idle / 4, // before the idle limit cuts them
		Protocols:              http1(),
	}
	return p
}

const maxHeader = 64 << 10 // limit of a request's or response's header, in bytes

func http1() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	return &p
}

// Close closes idle connections to hosts. Call it after the last Serve.
func (p *Proxy) Close() { p.forward.CloseIdleConnections() }

// Serve handles the requests of one connection of the program until either side closes it or ctx ends. It closes
// the connection.
func (p *Proxy) Serve(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if p.served.Add(1) > int64(p.opts.Connections) {
		p.ledger.add(Attempt{Verdict: RefusedLimit})
		_ = conn.Close()
		return
	}
	c := &connHandler{proxy: p, conn: &clientConn{Conn: conn}, ended: make(chan struct{})}
	server := http.Server{
		Handler: c, ConnState: c.connState, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: p.opts.Header, IdleTimeout: p.opts.Idle, MaxHeaderBytes: maxHeader,
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Protocols: http1(), DisableGeneralOptionsHandler: true,
	}
	_ = server.Serve(&singleListener{conn: c.conn, ended: c.ended}) // returns when the connection ends
	if c.requests == 0 && c.conn.began.Load() {
		p.ledger.add(Attempt{Verdict: c.conn.verdict()})
	}
}

// connHandler serves one connection of the program, which sends one request after another.
type connHandler struct {
	proxy    *Proxy
	conn     *clientConn
	ended    chan struct{} // closed when no goroutine uses the connection
	requests int           // number of requests received; read only after ended is closed
}

// connState closes ended when the server has closed the connection.
func (c *connHandler) connState(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		close(c.ended)
	}
}

// ServeHTTP handles one request of the program: CONNECT, or a plain request for a URL with a host.
func (c *connHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.requests++
	h := &hijacker{ResponseWriter: w}
	defer func() {
		if h.hijacked { // the server does not close the connection
			_ = c.conn.Close()
			close(c.ended)
		}
	}()
	switch {
	case r.Method == http.MethodConnect:
		c.tunnel(h, r)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		c.proxy.forwarder().ServeHTTP(h, r)
	default:
		c.proxy.ledger.add(Attempt{Verdict: BadRequest})
		h.respond(http.StatusBadRequest, "this is a proxy: request http://HOST/, or CONNECT HOST:443")
	}
}

// forwarder returns a handler that sends a plain request to its host.
func (p *Proxy) forwarder() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: p.forward, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Host = r.Out.URL.Host // instead of the program's Host header
			r.Out.Header.Del("Proxy-Authorization")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
	}
}
