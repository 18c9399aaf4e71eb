package s3_test

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// flakyProxy forwards requests to a gateway, and gives a faulty response to a third of them.
type flakyProxy struct {
	target *url.URL
	fault  fault
	faults atomic.Int64

	mu     sync.Mutex
	random *rand.Rand
}

// fault sends a faulty response. forward sends the request to the gateway.
type fault func(w http.ResponseWriter, r *http.Request, forward func() *http.Response)

func (p *flakyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	forward := func() *http.Response {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.RequestURI = p.target.Scheme, p.target.Host, ""
		resp, err := http.DefaultTransport.RoundTrip(out) // keeps the Host header, which is signed
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		return resp
	}
	p.mu.Lock()
	faulty := p.random.IntN(3) == 0 // a fixed period would always hit the same requests
	p.mu.Unlock()
	if faulty {
		p.faults.Add(1)
		p.fault(w, r, forward)
		return
	}
	resp := forward()
	defer resp.Body.Close()
	writeHeader(w, resp)
	_, _ = io.Copy(w, resp.Body) // the client notices an error
}

// writeHeader sends the status and header of resp.
func writeHeader(w http.ResponseWriter, resp *http.Response) {
	maps.Copy(w.Header(), resp.Header)
	if resp.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	w.WriteHeader(resp.StatusCode)
}

// status is a fault that responds with an error instead of forwarding the request.
func status(code int, name string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ func() *http.Response) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(code)
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>later</Message></Error>`, name)
	}
}

// TestFaultyResponses checks that a commit is complete and happens once, whatever faults the store has.
func TestFaultyResponses(t *testing.T) {
	for name, f := range map[string]fault{
		"503": status(http.StatusServiceUnavailable, "SlowDown"),
		"429": status(http.StatusTooManyRequests, "TooManyRequests"),
		"500": status(http.StatusInternalServerError, "InternalError"),
		"lost response": func(_ http.ResponseWriter, _ *http.Request, forward func() *http.Response) {
			forward().Body.Close()
			panic(http.ErrAbortHandler)
		},
		"lost request": func(http.ResponseWriter, *http.Request, func() *http.Response) {
			panic(http.ErrAbortHandler)
		},
		"truncated": func(w http.ResponseWriter, _ *http.Request, forward func() *http.Response) {
			resp := forward()
			defer resp.Body.Close()
			writeHeader(w, resp)
			_, _ = io.CopyN(w, resp.Body, max(0, resp.ContentLength/2))
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := gateway(t)
			open(t, opts) // makes the bucket
			target, err := url.Parse(opts.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			proxy := &flakyProxy{target: target, fault: f, random: rand.New(rand.NewPCG(1, 2))}
			server := httptest.NewServer(proxy)
			t.Cleanup(func() {
				server.CloseClientConnections() // Close would wait seconds for unused connections
				server.Close()
			})
			opts.Endpoint = server.URL
			runTasks(t, func() objects.Objects { return reopen(t, opts) })
			if n := proxy.faults.Load(); n < 5 {
				t.Errorf("%d faulty responses, want at least 5", n)
			}
		})
	}
}

// reopen opens the store without EnsureBucket, which does not retry.
func reopen(t *testing.T, opts s3.Options) objects.Objects {
	t.Helper()
	o, err := s3.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// runTasks runs tasks on two workers. The second one always has to merge.
func runTasks(t *testing.T, open func() objects.Objects) {
	t.Helper()
	ref := state.Ref{Tenant: "acme", Workspace: "bad"}
	a, b := statetest.NewWorker(t, open(), ref, state.Options{}), statetest.NewWorker(t, open(), ref, state.Options{})
	want := map[string]string{}
	const rounds = 3
	for i := range rounds {
		a.Checkout()
		b.Checkout()
		for prefix, w := range map[string]*statetest.Worker{"a": a, "b": b} {
			path := fmt.Sprint(prefix, i)
			want[path] = strings.Repeat(path, 1000)
			w.Write(path, want[path])
		}
		a.Commit(fmt.Sprint("a-", i))
		if c := b.Commit(fmt.Sprint("b-", i)); c.Generation != int64(2*i+2) || len(c.Changed) != 1 {
			t.Errorf("Commit() = %+v, want generation %d with one change", c, 2*i+2)
		}
	}
	fresh := statetest.NewWorker(t, open(), ref, state.Options{})
	if v := fresh.Checkout(); v.Generation != 2*rounds {
		t.Errorf("Checkout() = %+v, want generation %d", v, 2*rounds)
	}
	fresh.Want(want)
}
