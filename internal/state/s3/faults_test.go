package s3_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// fault sends a faulty response. forward sends the request to the gateway.
type fault func(w http.ResponseWriter, r *http.Request, forward func() *http.Response)

// faultyProxy forwards requests to a gateway, and gives faulty responses to some.
type faultyProxy struct {
	target  *url.URL
	gateway http.Transport

	mu     sync.Mutex
	fault  fault
	faulty func(kind string) bool // by kind of the request, like "put m"; nil: no faults
}

// newProxy returns a proxy for a store, and options that lead to it.
func newProxy(t *testing.T, direct s3.Options) (*faultyProxy, s3.Options) {
	t.Helper()
	target, err := url.Parse(direct.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p := &faultyProxy{target: target}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.CloseClientConnections() // Close would wait seconds for unused connections
		server.Close()
		p.gateway.CloseIdleConnections() // the gateway's Close would wait for them
	})
	direct.Endpoint = server.URL
	return p, direct
}

// begin starts the faults. It calls faulty for one request at a time.
func (p *faultyProxy) begin(f fault, faulty func(kind string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.faulty = f, faulty
}

func (p *faultyProxy) end() { p.begin(nil, nil) }

// kindOf returns the kind of a request: its operation, and the kind of its object as package format lists them.
func kindOf(r *http.Request) string {
	op := strings.ToLower(r.Method)
	if r.Header.Get("If-Match")+r.Header.Get("If-None-Match") != "" && r.Method == http.MethodPut {
		op = "swap"
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/HEAD"):
		return op + " HEAD"
	case strings.Contains(path, "/m/"):
		return op + " m"
	case strings.Contains(path, "/p/"):
		return op + " p"
	default:
		return op
	}
}

func (p *faultyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	forward := func() *http.Response {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.RequestURI = p.target.Scheme, p.target.Host, ""
		resp, err := p.gateway.RoundTrip(out) // keeps the Host header, which is signed
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		return resp
	}
	p.mu.Lock()
	f := p.fault
	faulty := p.faulty != nil && p.faulty(kindOf(r))
	p.mu.Unlock()
	if faulty {
		f(w, r, forward)
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

// faults of a store, by name. A request that is forwarded has its effect.
var faults = map[string]fault{
	"503": status(http.StatusServiceUnavailable, "SlowDown"),
	"429": status(http.StatusTooManyRequests, "TooManyRequests"),
	"404 of a proxy": func(w http.ResponseWriter, r *http.Request, forward func() *http.Response) {
		forward().Body.Close()
		http.NotFound(w, r)
	},
	"lost": func(_ http.ResponseWriter, _ *http.Request, forward func() *http.Response) {
		forward().Body.Close()
		panic(http.ErrAbortHandler)
	},
	"truncated": func(w http.ResponseWriter, _ *http.Request, forward func() *http.Response) {
		half(w, forward)
		panic(http.ErrAbortHandler)
	},
	"slow": func(w http.ResponseWriter, r *http.Request, forward func() *http.Response) {
		half(w, forward)
		<-r.Context().Done() // the client times out
	},
}

// half sends the first half of the store's response. It sends nothing of a response without a body.
func half(w http.ResponseWriter, forward func() *http.Response) {
	resp := forward()
	defer resp.Body.Close()
	if resp.ContentLength <= 0 {
		return
	}
	writeHeader(w, resp)
	_, _ = io.CopyN(w, resp.Body, resp.ContentLength/2)
	_ = http.NewResponseController(w).Flush()
}

// Limits of retry policies. A local store responds quickly, so only a stalled response reaches the limit of a request.
const (
	longTotal    = time.Minute
	swapTotal    = 2 * time.Second // of a swap, whose attempts are not limited
	slowRequest  = 500 * time.Millisecond
	mostAttempts = 3
)

// faultyStore is a gateway behind a faultyProxy, and a workspace.
type faultyStore struct {
	*testing.T
	proxy  *faultyProxy
	opts   s3.Options // options for the proxy
	direct s3.Options // options for the gateway
	ref    state.Ref

	came []time.Time // when requests of the faulty kind came
}

// beginFaults makes the first requests of a kind fail.
func (x *faultyStore) beginFaults(at string, times int, f fault) {
	x.came = nil
	x.proxy.begin(f, func(kind string) bool {
		if kind == at {
			x.came = append(x.came, time.Now())
		}
		return kind == at && len(x.came) <= times
	})
}

// endFaults ends the faults, and returns when the requests came.
func (x *faultyStore) endFaults() []time.Time {
	x.proxy.end()
	return x.came
}

func newFaultyStore(t *testing.T) *faultyStore {
	t.Helper()
	direct := gateway(t)
	open(t, direct) // makes the bucket
	proxy, opts := newProxy(t, direct)
	x := &faultyStore{T: t, proxy: proxy, opts: opts, direct: direct}
	once := s3.NewTransport()
	// With keep-alive, net/http itself repeats requests, without a delay, if a connection was closed.
	once.DisableKeepAlives = true
	x.opts.Transport = once
	return x
}

// begin makes another workspace with one commit.
func (x *faultyStore) begin(name string) {
	x.Helper()
	x.ref = state.Ref{Tenant: "acme", Workspace: name}
	w := x.faultless()
	w.Checkout()
	w.Write("before", name)
	w.Commit("task-1")
}

// worker returns a worker that meets the named fault.
func (x *faultyStore) worker(name string, policy objects.RetryPolicy) *statetest.Worker {
	x.Helper()
	if name == "slow" {
		policy.Request = slowRequest
	}
	return statetest.NewWorker(x.T, reopen(x.T, x.opts), x.ref, state.Options{Retry: policy})
}

// faultless returns a worker that bypasses the proxy.
func (x *faultyStore) faultless() *statetest.Worker {
	x.Helper()
	return statetest.NewWorker(x.T, reopen(x.T, x.direct), x.ref, state.Options{})
}

// newest returns the newest version, as a worker without faults reads it.
func (x *faultyStore) newest() (generation int64, files map[string]string) {
	x.Helper()
	w := x.faultless()
	v := w.Checkout()
	return v.Generation, w.Files()
}

// steps are the requests of a task by a worker with an empty cache, in order.
var steps = []string{"get HEAD", "get m", "get p", "put p", "put m", "swap HEAD"}

// TestFaults checks that a request with two faulty responses is sent three times, with growing delays, and that the
// task succeeds. A swap whose response is lost is sent once, because HEAD shows that it was applied.
func TestFaults(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newFaultyStore(t)
			for i, step := range steps {
				if name == "429" && !strings.HasSuffix(step, "HEAD") {
					continue // like 503
				}
				ws := fmt.Sprint("step-", i)
				x.begin(ws)
				w := x.worker(name, objects.RetryPolicy{Total: longTotal})
				x.beginFaults(step, 2, f)
				w.Checkout()
				w.Write("new", "1")
				c := w.Commit("task-2")
				came := x.endFaults()
				times := 3
				if step == "swap HEAD" && name != "503" && name != "429" {
					times = 1 // reading HEAD back shows that it was applied
				}
				if len(came) != times {
					t.Errorf("%s: %d requests, want %d", step, len(came), times)
				}
				if len(came) == 3 && came[2].Sub(came[1]) < 25*time.Millisecond {
					t.Errorf("%s: retried after %v, want a longer delay", step, came[2].Sub(came[1]))
				}
				generation, files := x.newest()
				if want := map[string]string{"before": ws, "new": "1"}; c.Generation != 2 || generation != 2 ||
					!maps.Equal(files, want) {
					t.Errorf("%s: Commit() = %+v, then generation %d with %v, want generation 2 with %v", step, c,
						generation, files, want)
				}
			}
		})
	}
}

// TestPermanentFaults checks that an operation whose responses are all faulty ends, after several attempts, with an
// error that names the request. The workspace and the directory are unchanged, and the task commits once after the
// faults end.
func TestPermanentFaults(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newFaultyStore(t)
			for i, step := range steps {
				if strings.HasSuffix(step, " m") || name == "429" || name == "truncated" {
					continue // like the others
				}
				x.begin(fmt.Sprint("step-", i))
				policy := objects.RetryPolicy{Total: longTotal, Attempts: mostAttempts}
				if step == "swap HEAD" && name == "503" {
					policy.Total = swapTotal
				}
				w := x.worker(name, policy)
				_, files := x.newest()
				task := state.CommitOptions{TaskID: "task-2", Attempt: 1}
				x.beginFaults(step, 1000, f)
				_, err := w.Store.Checkout(t.Context(), w.Tree, nil)
				if err == nil {
					w.Write("new", "1")
					_, err = w.Store.Commit(t.Context(), w.Tree, task)
				}
				came := x.endFaults()
				applied := step == "swap HEAD" && name != "503" && name != "429" // only the response is lost
				if applied {
					if err != nil {
						t.Errorf("%s: Commit() = %v, although it was applied", step, err)
					}
				} else {
					op, _, _ := strings.Cut(step, " ")
					if !errors.Is(err, objects.ErrTemporary) || !strings.Contains(err.Error(), op+" acme/") {
						t.Errorf("%s: %v, want a temporary error that names the request", step, err)
					}
					if n := len(came); n != mostAttempts && step != "swap HEAD" || n < 2 || n > 9 {
						t.Errorf("%s: %d requests, want %d, or 2 to 9 swaps", step, n, mostAttempts)
					}
					if generation, now := x.newest(); generation != 1 || !maps.Equal(now, files) {
						t.Errorf("%s: generation %d with %v, want 1 as before", step, generation, cmp.Diff(files, now))
					}
					if strings.HasPrefix(step, "get") {
						w.Checkout()
						w.Write("new", "1")
					}
					w.Commit(task.TaskID)
				}
				files["new"] = "1"
				if generation, now := x.newest(); generation != 2 || !maps.Equal(now, files) {
					t.Errorf("%s: generation %d with %v after the faults, want 2", step, generation,
						cmp.Diff(files, now))
				}
			}
		})
	}
}
