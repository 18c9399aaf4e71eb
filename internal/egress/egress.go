// Package egress is the way out for a program that may reach some hosts: an HTTP proxy that runs on
// the worker's host and is handed the connections that the program made inside its box. It is no
// listener of its own.
//
// One function decides: dial. It wants the host and the port on the list, resolves the name itself,
// refuses the name when any of its addresses is not one of the internet's, and connects to an address
// that it has looked at, so that a second answer of the name server changes nothing. Plain requests
// are parsed and made anew, CONNECT is a tunnel; both go through dial, and so does what a redirect
// leads to, which is a request like any other.
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

// Options of New. A zero field means its default.
type Options struct {
	Allow       []allowlist.Pattern // what may be reached; none: nothing
	Bytes       int64               // sent and received by all connections together; 256 MiB
	Connections int                 // made in all, by the program and for it; 1,000
	Header      time.Duration       // for a request's header to arrive; 10 s
	Connect     time.Duration       // for a name to be resolved and a connection to be made; 10 s
	Idle        time.Duration       // without a byte in either direction; 2 min

	// Lookup and Dial stand in for the host's resolver and network in tests. What Lookup answers is
	// judged all the same.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// Proxy is the way out of one run of one program. Its methods may be called by several goroutines.
type Proxy struct {
	opts    Options
	bytes   atomic.Int64 // moved so far
	served  atomic.Int64 // connections of the program
	dialled atomic.Int64 // connections for it
	ledger  ledger
	forward *http.Transport // of plain requests
}

// New returns a proxy that nobody uses yet.
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

		DisableCompression:     true, // bodies pass as they are
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        o.Idle / 4, // before they count as idle ones that are cut
		Protocols:              http1(),
	}
	return p
}

const maxHeader = 64 << 10 // bytes of a request's or a response's

func http1() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	return &p
}

// Close ends connections that are kept for further requests. Call it after the last Serve.
func (p *Proxy) Close() { p.forward.CloseIdleConnections() }

// Serve answers the requests of one connection of the program until either side ends it or ctx ends.
// It closes the connection.
func (p *Proxy) Serve(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if p.served.Add(1) > int64(p.opts.Connections) {
		p.ledger.add(Attempt{Verdict: RefusedLimit})
		_ = conn.Close()
		return
	}
	s := &session{proxy: p, conn: &watched{Conn: conn}, ended: make(chan struct{})}
	server := http.Server{
		Handler: s, ConnState: s.state, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: p.opts.Header, IdleTimeout: p.opts.Idle, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Protocols: http1(), DisableGeneralOptionsHandler: true,
	}
	_ = server.Serve(&once{conn: s.conn, ended: s.ended}) // ends with the connection
	if s.requests == 0 && s.conn.began.Load() {
		p.ledger.add(Attempt{Verdict: s.conn.why()})
	}
}

// session is one connection of the program. Its requests come one after the other.
type session struct {
	proxy    *Proxy
	conn     *watched
	ended    chan struct{} // closed when nothing of the connection runs any more
	requests int           // seen; read after ended
}

func (s *session) state(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		close(s.ended)
	}
}

func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests++
	h := &hijacker{ResponseWriter: w}
	defer func() {
		if h.taken { // the server has let go of the connection
			_ = s.conn.Close()
			close(s.ended)
		}
	}()
	switch {
	case r.Method == http.MethodConnect:
		s.tunnel(h, r)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		s.proxy.forwarder().ServeHTTP(h, r)
	default:
		s.proxy.ledger.add(Attempt{Verdict: BadRequest})
		h.refuse(http.StatusBadRequest, "this is a proxy: ask it for http://HOST/, or CONNECT HOST:443")
	}
}

// forwarder makes a plain request anew.
func (p *Proxy) forwarder() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: p.forward, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Host = r.Out.URL.Host // and no other, however the program named it in the header
			r.Out.Header.Del("Proxy-Authorization")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
	}
}
