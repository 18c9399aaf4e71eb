package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/egress"
)

// internet is a fake internet on this machine: names with public addresses, and the test servers at those addresses.
type internet struct {
	mu      sync.Mutex
	names   map[string][]string         // addresses that successive lookups of a name return
	servers map[string]*httptest.Server // by address and port
	lookups map[string]int              // number of lookups of a name
	dialled []string                    // addresses and ports
}

func (n *internet) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	responses := n.names[host]
	if len(responses) == 0 {
		return nil, errors.New("no such host")
	}
	response := responses[min(n.lookups[host], len(responses)-1)]
	n.lookups[host]++
	var addrs []netip.Addr
	for text := range strings.FieldsSeq(response) {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	return addrs, nil
}

func (n *internet) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	n.dialled = append(n.dialled, to.String())
	s := n.servers[to.String()]
	n.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("dial %s: no such server", to)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", s.Listener.Addr().String())
}

// testProxy is a proxy with a client, and a listener that stands for the one in the box.
type testProxy struct {
	*egress.Proxy
	internet *internet
	addr     string
	client   *http.Client
	stop     func() // ends the run and waits for its connections
}

// start starts a proxy in front of a fake internet. Each of its pages names the request and the server.
func start(t *testing.T, o egress.Options, allow ...string) *testProxy {
	t.Helper()
	page := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasPrefix(r.URL.Path, "/to/"):
				http.Redirect(w, r, strings.TrimPrefix(r.URL.RequestURI(), "/to/"), http.StatusFound)
			case r.URL.Path == "/large":
				_, _ = io.CopyN(w, zeros{}, 10<<20)
			case r.URL.Path == "/never":
				<-r.Context().Done()
			default:
				body, _ := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %s of %s: %s", r.Method, r.Host, name, body)
			}
		})
	}
	plain, encrypted := httptest.NewServer(page("plain")), httptest.NewTLSServer(page("encrypted"))
	other := httptest.NewServer(page("other"))
	t.Cleanup(func() { plain.Close(); encrypted.Close(); other.Close() })
	fake := &internet{
		names: map[string][]string{
			"example.com": {"93.184.216.34"}, "www.example.com": {"93.184.216.34"}, "other.net": {"8.8.4.4"},
			"inside.example.com": {"10.1.2.3"}, "mixed.example.com": {"93.184.216.34 127.0.0.1"},
			"rebound.example.com": {"93.184.216.34", "169.254.169.254"}, "two.example.com": {"8.8.8.8 93.184.216.34"},
			"dead.example.com": {"8.8.8.8"},
		},
		servers: map[string]*httptest.Server{
			"93.184.216.34:80":  plain,
			"93.184.216.34:443": encrypted, "8.8.4.4:80": other,
		},
		lookups: map[string]int{},
	}
	for _, text := range allow {
		p, err := allowlist.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		o.Allow = append(o.Allow, p)
	}
	if o.Dial = fake.dial; o.Lookup == nil {
		o.Lookup = fake.lookup
	}
	r := &testProxy{Proxy: egress.New(o), internet: fake}
	r.serve(t)
	pool := x509.NewCertPool()
	pool.AddCert(encrypted.Certificate())
	transport := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: r.addr}),
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}
	r.client = &http.Client{Transport: transport, Timeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	return r
}

// serve passes the connections of a listener to the proxy.
func (r *testProxy) serve(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.Serve(ctx, conn) })
		}
	})
	r.stop = sync.OnceFunc(func() {
		_ = l.Close()
		cancel()
		running.Wait()
		r.Close()
	})
	t.Cleanup(r.stop)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func (r *testProxy) get(t *testing.T, address string) (string, error) {
	t.Helper()
	resp, err := r.client.Get(address)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%s: %s", resp.Status, body), err
}

// ledger ends the run and compares the attempts.
func (r *testProxy) ledger(t *testing.T, want ...egress.Attempt) {
	t.Helper()
	r.client.CloseIdleConnections()
	r.stop()
	got := r.Attempts()
	for i := range got {
		if got[i].Verdict == egress.Allowed && got[i].Bytes == 0 {
			t.Errorf("attempt %+v has no bytes, want the bytes of an allowed connection", got[i])
		}
		got[i].Bytes = 0
	}
	order := cmpopts.SortSlices(func(a, b egress.Attempt) bool {
		return fmt.Sprint(a) < fmt.Sprint(b)
	})
	if d := cmp.Diff(want, got, order, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("Attempts() (-want +got):\n%s", d)
	}
}

func TestAllowed(t *testing.T) {
	r := start(t, egress.Options{}, "example.com", "*.example.com:443")
	for address, want := range map[string]string{
		"http://example.com/":      "200 OK: GET example.com of plain: ",
		"https://example.com/":     "200 OK: GET example.com of encrypted: ",
		"https://www.example.com/": "200 OK: GET www.example.com of encrypted: ",
		"http://EXAMPLE.com:80/":   "200 OK: GET EXAMPLE.com:80 of plain: ",
	} {
		if got, err := r.get(t, address); got != want || err != nil {
			t.Errorf("GET %s = %q, %v, want %q", address, got, err, want)
		}
	}
	r.ledger(t,
		egress.Attempt{Host: "example.com", Port: 80, Verdict: egress.Allowed},
		egress.Attempt{Host: "example.com", Port: 443, Verdict: egress.Allowed},
		egress.Attempt{Host: "www.example.com", Port: 443, Verdict: egress.Allowed},
	)
}

func TestBodiesPass(t *testing.T) {
	r := start(t, egress.Options{}, "example.com")
	for _, scheme := range []string{"http", "https"} {
		sent := strings.Repeat("x", 3<<20)
		resp, err := r.client.Post(scheme+"://example.com/", "text/plain", io.MultiReader(strings.NewReader(sent)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.HasSuffix(string(got), ": "+sent) {
			t.Errorf("%s: response of %d bytes, %v, want one that ends with the %d bytes sent",
				scheme, len(got), err, len(sent))
		}
	}
}

func TestRefused(t *testing.T) {
	r := start(t, egress.Options{}, "*.example.com", "example.com:443", "127.0.0.1", "[::1]", "8.8.4.4:443")
	for _, c := range []struct{ address, want, host, verdict string }{
		{"http://other.net/", "403 other.net is not in network.allow", "other.net", egress.RefusedHost},
		{"https://other.net/", "other.net is not in network.allow", "other.net", egress.RefusedHost},
		{
			"http://example.com/", "403 port 80 of example.com is not in network.allow",
			"example.com", egress.RefusedPort,
		},
		{
			"https://www.example.com:8443/", "port 8443 of www.example.com is not in network.allow",
			"www.example.com", egress.RefusedPort,
		},
		{
			"http://www.example.com:22/", "403 port 22 of www.example.com is not in network.allow",
			"www.example.com", egress.RefusedPort,
		},
		{
			"http://inside.example.com/", "403 inside.example.com has an address", "inside.example.com",
			egress.RefusedAddress,
		},
		{"https://mixed.example.com/", "mixed.example.com has an address", "mixed.example.com", egress.RefusedAddress},
		{"http://127.0.0.1/", "403 127.0.0.1 has an address", "127.0.0.1", egress.RefusedAddress},
		{"http://[::1]/", "403 ::1 has an address", "::1", egress.RefusedAddress},
		{
			"http://169.254.169.254/latest/meta-data", "403 169.254.169.254 is not in network.allow",
			"169.254.169.254", egress.RefusedHost,
		},
		{
			"http://nowhere.example.com/", "502 nowhere.example.com has no address",
			"nowhere.example.com", egress.FailedDNS,
		},
		{
			"http://dead.example.com/", "502 connect to dead.example.com: no connection",
			"dead.example.com", egress.FailedConnect,
		},
	} {
		got, err := r.get(t, c.address)
		if err != nil { // after CONNECT, the error contains the status line
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("GET %s = %q, want %q", c.address, got, c.want)
		}
		u, err := url.Parse(c.address)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, a := range r.Attempts() {
			found = found || a.Host == c.host && a.Verdict == c.verdict &&
				(u.Port() == "" || strconv.Itoa(a.Port) == u.Port())
		}
		if !found {
			t.Errorf("GET %s: Attempts() = %+v, want one with %s and %s", c.address, r.Attempts(), c.host, c.verdict)
		}
	}
	if len(r.internet.dialled) != 1 || r.internet.dialled[0] != "8.8.8.8:80" {
		t.Errorf("dialled %v, want only 8.8.8.8:80", r.internet.dialled)
	}
}

// TestRebinding checks that the proxy resolves the name and checks its addresses again for each connection.
func TestRebinding(t *testing.T) {
	r := start(t, egress.Options{}, "*.example.com")
	first, err := r.get(t, "https://rebound.example.com/")
	if err != nil || first != "200 OK: GET rebound.example.com of encrypted: " {
		t.Errorf("first GET = %q, %v; want 200 from the first address", first, err)
	}
	r.client.CloseIdleConnections()
	if got, err := r.get(t, "https://rebound.example.com/"); err == nil ||
		!strings.Contains(err.Error(), "has an address") {
		t.Errorf("second GET = %q, %v, want a refusal", got, err)
	}
	if d := cmp.Diff([]string{"93.184.216.34:443"}, r.internet.dialled); d != "" {
		t.Errorf("connections (-want +got):\n%s", d)
	}
	r.ledger(t,
		egress.Attempt{Host: "rebound.example.com", Port: 443, Verdict: egress.Allowed},
		egress.Attempt{Host: "rebound.example.com", Port: 443, Verdict: egress.RefusedAddress},
	)
}

func TestRedirectIsANewRequest(t *testing.T) {
	r := start(t, egress.Options{}, "example.com", "inside.example.com")
	for address, want := range map[string]string{
		"http://example.com/to/http://169.254.169.254/":    "403 169.254.169.254 is not in network.allow",
		"http://example.com/to/http://inside.example.com/": "403 inside.example.com has an address",
		"http://example.com/to/https://example.com/x":      "200 OK: GET example.com of encrypted: ",
	} {
		if got, err := r.get(t, address); !strings.HasPrefix(got, want) || err != nil {
			t.Errorf("GET %s = %q, %v, want %q", address, got, err, want)
		}
	}
}

// TestNextAddress checks that if an address does not accept the connection, the proxy tries the name's next address.
func TestNextAddress(t *testing.T) {
	r := start(t, egress.Options{}, "two.example.com")
	if got, err := r.get(t, "http://two.example.com/"); got != "200 OK: GET two.example.com of plain: " {
		t.Errorf("GET = %q, %v; want 200 for two.example.com", got, err)
	}
}

// TestHostHeader checks that a plain request is sent to the host that was checked, with that host in its Host header.
func TestHostHeader(t *testing.T) {
	r := start(t, egress.Options{}, "example.com")
	got := r.raw(t, "GET http://example.com/ HTTP/1.1\r\nHost: other.net\r\n"+
		"Proxy-Authorization: secret\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(got, "GET example.com of plain: ") {
		t.Errorf("response = %q; want 200 for example.com", got)
	}
}

// raw sends bytes and returns the response.
func (r *testProxy) raw(t *testing.T, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("read response = %q, %v, want nil", got, err)
	}
	return string(got)
}

func TestBadRequests(t *testing.T) {
	r := start(t, egress.Options{}, "example.com")
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n":                    "HTTP/1.1 400 this is a proxy",
		"GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n": "HTTP/1.1 400 this is a proxy",
		"CONNECT example.com HTTP/1.1\r\nHost: example.com\r\n\r\n":      `HTTP/1.1 400 "example.com" is not HOST:PORT`,
		"CONNECT a\xffb:443 HTTP/1.1\r\nHost: x\r\n\r\n":                 "HTTP/1.1 400 ",
		"CONNECT 0x7f.1:443 HTTP/1.1\r\nHost: x\r\n\r\n":                 `HTTP/1.1 400 "0x7f.1": write an address`,
		"CONNECT example.com:99999 HTTP/1.1\r\nHost: x\r\n\r\n":          "HTTP/1.1 400 ",
		"SSH-2.0-OpenSSH\r\n\r\n":                                        "HTTP/1.1 400 ",
	} {
		if got := r.raw(t, request); !strings.HasPrefix(got, want) {
			t.Errorf("response to %q = %q, want %q", request, got, want)
		}
	}
	if len(r.internet.dialled) > 0 {
		t.Errorf("dialled %v, want no connection", r.internet.dialled)
	}
	r.ledger(t,
		egress.Attempt{Verdict: egress.BadRequest},
		egress.Attempt{Host: `"example.com"`, Verdict: egress.BadRequest},
		egress.Attempt{Host: `"a\xffb"`, Port: 443, Verdict: egress.BadRequest},
		egress.Attempt{Host: `"0x7f.1"`, Port: 443, Verdict: egress.BadRequest},
	)
	slow := start(t, egress.Options{Header: 300 * time.Millisecond}, "example.com")
	if got := slow.raw(t, "GET http://example.com/ HTTP/1.1\r\nHost: exam"); strings.Contains(got, "200") {
		t.Errorf("response to a part of a request = %q, want none", got)
	}
	slow.ledger(t, egress.Attempt{Verdict: egress.CutSlow})
}

func TestBytesAreBounded(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		r := start(t, egress.Options{Bytes: 1 << 20}, "example.com")
		if got, err := r.get(t, scheme+"://example.com/large"); err == nil {
			t.Errorf("%s: received %d bytes, want an error", scheme, len(got))
		}
		r.client.CloseIdleConnections()
		if got, err := r.get(t, scheme+"://example.com/"); err == nil &&
			!strings.HasPrefix(got, "403 the execution has used up") {
			t.Errorf("%s: GET after the limit = %q, want an error or 403", scheme, got)
		}
		r.stop()
		var total int64
		verdicts := map[string]bool{}
		for _, a := range r.Attempts() {
			total += a.Bytes
			verdicts[a.Verdict] = true
		}
		if total < 1<<20 || total > 1<<20+256<<10 || !verdicts[egress.CutBytes] || !verdicts[egress.RefusedLimit] {
			t.Errorf("%s: %d bytes, Attempts() = %+v; want 1 MiB to 1.25 MiB, %s and %s",
				scheme, total, r.Attempts(), egress.CutBytes, egress.RefusedLimit)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	r := start(t, egress.Options{Connections: 2}, "example.com")
	r.client.Transport.(*http.Transport).DisableKeepAlives = true
	for range 2 {
		if _, err := r.get(t, "http://example.com/"); err != nil {
			t.Errorf("GET below the limit = %v, want nil", err)
		}
	}
	if got, err := r.get(t, "http://example.com/"); err == nil {
		t.Errorf("response to the third request = %q, want an error", got)
	}
	r.stop()
	if a := r.Attempts(); len(a) != 2 || a[0].Verdict != egress.RefusedLimit && a[1].Verdict != egress.RefusedLimit {
		t.Errorf("Attempts() = %+v; want two, one refused for the limit", a)
	}
}

func TestIdleIsCut(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		r := start(t, egress.Options{Idle: 300 * time.Millisecond}, "example.com")
		if got, err := r.get(t, scheme+"://example.com/never"); err == nil && !strings.HasPrefix(got, "502 ") {
			t.Errorf("%s: response = %q, want an error or 502", scheme, got)
		}
		r.stop()
		if a := r.Attempts(); len(a) != 1 || a[0].Verdict != egress.CutIdle {
			t.Errorf("%s: Attempts() = %+v, want %s", scheme, r.Attempts(), egress.CutIdle)
		}
	}
}

// tunnel opens a tunnel to example.com.
func (r *testProxy) tunnel(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprint(conn, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || status != "HTTP/1.1 200 Connection established\r\n" {
		t.Fatalf("status = %q, %v; want 200 Connection established", status, err)
	}
	return conn.(*net.TCPConn)
}

// TestEndOfRun checks that the end of the run ends connections that both sides keep open.
func TestEndOfRun(t *testing.T) {
	r := start(t, egress.Options{}, "example.com")
	conn := r.tunnel(t)
	r.stop() // waits for the connection
	if n, err := io.Copy(io.Discard, conn); n != 0 {
		t.Errorf("read %d bytes, %v after the end of the run, want the end of the connection", n, err)
	}
}

// TestEndOfRunAfterTheRequest checks that the end of the run also ends a tunnel in which the program has sent
// everything and the host does not respond.
func TestEndOfRunAfterTheRequest(t *testing.T) {
	r := start(t, egress.Options{}, "example.com")
	host := httptest.NewUnstartedServer(nil)
	defer host.Listener.Close()
	r.internet.mu.Lock()
	r.internet.servers["93.184.216.34:443"] = host
	r.internet.mu.Unlock()
	conn := r.tunnel(t)
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	atHost, err := host.Listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer atHost.Close()
	if n, err := io.Copy(io.Discard, atHost); n != 0 || err != nil {
		t.Fatalf("host read %d bytes, %v; want 0 bytes and the end", n, err)
	}
	stopped := make(chan struct{})
	go func() { r.stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second): // below the idle limit
		t.Error("the tunnel did not end with the run")
	}
}

func TestLedgerIsBounded(t *testing.T) {
	r := start(t, egress.Options{Connections: 500})
	for i := range 300 {
		if _, err := r.get(t, fmt.Sprintf("http://h%d.example.com/", i)); err != nil {
			t.Fatal(err)
		}
	}
	a := r.Attempts()
	if len(a) != 101 || a[100] != (egress.Attempt{Host: egress.Others, Verdict: egress.RefusedHost}) {
		t.Errorf("%d attempts, the last %+v; want 101, the last for %s", len(a), a[len(a)-1], egress.Others)
	}
}

// FuzzServe checks that a program reaches only hosts on the allow-list, whatever it sends.
func FuzzServe(f *testing.F) {
	for _, seed := range []string{
		"GET http://example.com/ HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT example.com:443 HTTP/1.1\r\n\r\n",
		"GET http://example.com@other.net/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"CONNECT other.net:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		"POST http://example.com/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"0\r\n\r\nGET http://other.net/ HTTP/1.1\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	pattern, err := allowlist.Parse("example.com")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		p := egress.New(egress.Options{
			Allow: []allowlist.Pattern{pattern}, Header: 50 * time.Millisecond, Idle: 50 * time.Millisecond,
			Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
				if host != "example.com" {
					t.Errorf("looked up %q, want only example.com", host)
				}
				return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
			},
			Dial: func(_ context.Context, to netip.AddrPort) (net.Conn, error) {
				if to.Addr().String() != "93.184.216.34" || to.Port() != 80 && to.Port() != 443 {
					t.Errorf("dialled %s, want only 93.184.216.34 with port 80 or 443", to)
				}
				return nil, errors.New("no such server")
			},
		})
		ours, theirs := net.Pipe()
		var both sync.WaitGroup
		both.Go(func() { p.Serve(t.Context(), ours) })
		both.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
		_, _ = io.Copy(theirs, bytes.NewReader(request))
		_ = theirs.Close()
		both.Wait()
		p.Close()
	})
}
