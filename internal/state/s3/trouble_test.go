package s3_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
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

// trouble stands in front of a gateway and answers one kind of request badly, the first times.
type trouble struct {
	target  *url.URL
	gateway http.Transport

	mu    sync.Mutex
	at    string // the kind, like "put m"
	times int
	how   func(w http.ResponseWriter, r *http.Request, answer func() *http.Response)
	seen  []time.Time // requests of that kind
}

// begin forgets what was, and makes trouble from now on.
func (p *trouble) begin(at string, times int, how func(http.ResponseWriter, *http.Request, func() *http.Response)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.times, p.how, p.seen = at, times, how, nil
}

// end makes no more trouble and returns when the requests came.
func (p *trouble) end() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = ""
	return p.seen
}

// kindOf names a request as the documentation of the package state names objects.
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

func (p *trouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func() *http.Response {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.RequestURI = p.target.Scheme, p.target.Host, ""
		resp, err := p.gateway.RoundTrip(out) // with the Host that is signed
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		return resp
	}
	p.mu.Lock()
	how := p.how
	bad := kindOf(r) == p.at
	if bad {
		p.seen = append(p.seen, time.Now())
		bad = len(p.seen) <= p.times
	}
	p.mu.Unlock()
	if bad {
		how(w, r, answer)
		return
	}
	resp := answer()
	defer resp.Body.Close()
	pass(w, resp)
	_, _ = io.Copy(w, resp.Body)
}

// Ways in which a store answers badly. Those of them that pass the request on do not lose its effect.
var badAnswers = map[string]func(http.ResponseWriter, *http.Request, func() *http.Response){
	"503": refuse(http.StatusServiceUnavailable, "SlowDown"),
	"429": refuse(http.StatusTooManyRequests, "TooManyRequests"),
	"lost": func(_ http.ResponseWriter, _ *http.Request, answer func() *http.Response) {
		answer().Body.Close()
		panic(http.ErrAbortHandler)
	},
	"truncated": func(w http.ResponseWriter, _ *http.Request, answer func() *http.Response) {
		half(w, answer)
		panic(http.ErrAbortHandler)
	},
	"slow": func(w http.ResponseWriter, r *http.Request, answer func() *http.Response) {
		half(w, answer)
		<-r.Context().Done() // the client's policy
	},
}

func refuse(code int, name string) func(http.ResponseWriter, *http.Request, func() *http.Response) {
	return func(w http.ResponseWriter, _ *http.Request, answer func() *http.Response) {
		status(code, name)(w, answer) //nolint:bodyclose // the store is not asked
	}
}

// half sends the first half of what the store answers, and nothing of an answer without a body.
func half(w http.ResponseWriter, answer func() *http.Response) {
	resp := answer()
	defer resp.Body.Close()
	if resp.ContentLength <= 0 {
		return
	}
	pass(w, resp)
	_, _ = io.CopyN(w, resp.Body, resp.ContentLength/2)
	_ = http.NewResponseController(w).Flush()
}

// Of a store on this machine little policy is needed; a stalled answer alone takes all of it.
const (
	stalled = 400 * time.Millisecond
	enough  = 20 * time.Second
	little  = 500 * time.Millisecond
)

// troubled is a gateway behind trouble, and a workspace.
type troubled struct {
	*testing.T
	front *trouble
	opts  s3.Options // of the front
	plain s3.Options // of the gateway
	ref   state.Ref
}

func newTroubled(t *testing.T) *troubled {
	t.Helper()
	plain := gateway(t)
	open(t, plain) // makes the bucket
	target, err := url.Parse(plain.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	x := &troubled{T: t, front: &trouble{target: target}, opts: plain, plain: plain}
	server := httptest.NewServer(x.front)
	t.Cleanup(func() { // which would wait seconds for connections that nobody has used yet
		server.CloseClientConnections()
		server.Close()
		x.front.gateway.CloseIdleConnections() // the gateway would wait for those as well
	})
	x.opts.Endpoint = server.URL
	once := s3.NewTransport()
	// else net/http repeats, without a pause, what it sent on a connection that was closed
	once.DisableKeepAlives = true
	x.opts.Transport = once
	return x
}

// begin makes another workspace with one commit.
func (x *troubled) begin(name string) {
	x.Helper()
	x.ref = state.Ref{Tenant: "acme", Workspace: name}
	w := x.calm()
	w.Checkout()
	w.Write("before", name)
	w.Commit("task-1")
}

// worker is one that meets trouble, with so much policy.
func (x *troubled) worker(bad string, total time.Duration) *statetest.Worker {
	x.Helper()
	policy := objects.RetryPolicy{Request: enough, Total: total}
	if bad == "slow" {
		policy.Request = stalled
	}
	return statetest.NewWorker(x.T, reopen(x.T, x.opts), x.ref, state.Options{Retry: policy})
}

// calm is a worker that meets none.
func (x *troubled) calm() *statetest.Worker {
	x.Helper()
	return statetest.NewWorker(x.T, reopen(x.T, x.plain), x.ref, state.Options{})
}

// history is what a worker that meets no trouble finds.
func (x *troubled) history() (generation int64, files map[string]string) {
	x.Helper()
	w := x.calm()
	v := w.Checkout()
	return v.Generation, w.Files()
}

// steps are the requests of a task by a worker that has nothing, in their order.
var steps = []string{"get HEAD", "get m", "get p", "put p", "put m", "swap HEAD"}

// TestTrouble: a request that is answered badly twice is made three times, with pauses that grow, and
// the task ends as if nothing had been. Of a swap whose answer is lost the first one was made.
func TestTrouble(t *testing.T) {
	for name, how := range badAnswers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTroubled(t)
			for i, step := range steps {
				if name == "429" && !strings.HasSuffix(step, "HEAD") {
					continue // as 503
				}
				ws := fmt.Sprint("step-", i)
				x.begin(ws)
				w := x.worker(name, enough)
				x.front.begin(step, 2, how)
				w.Checkout()
				w.Write("new", "1")
				c := w.Commit("task-2")
				seen := x.front.end()
				times := 3
				if step == "swap HEAD" && name != "503" && name != "429" {
					times = 1 // it was made: reading it back says so
				}
				if len(seen) != times {
					t.Errorf("%s: %d requests, want %d", step, len(seen), times)
				}
				if len(seen) == 3 && seen[2].Sub(seen[1]) < 25*time.Millisecond {
					t.Errorf("%s: tried again after %v, want a pause", step, seen[2].Sub(seen[1]))
				}
				generation, files := x.history()
				if want := map[string]string{"before": ws, "new": "1"}; c.Generation != 2 || generation != 2 ||
					!maps.Equal(files, want) {
					t.Errorf("%s: Commit() = %+v, then generation %d with %v, want generation 2 with %v", step, c,
						generation, files, want)
				}
			}
		})
	}
}

// TestTroubleForEver: an operation that the store never answers well ends with an error that names it,
// after attempts with back-off. What was there is there, the directory is the task's, and the same
// task goes through when the store is well again, once.
func TestTroubleForEver(t *testing.T) {
	for name, how := range badAnswers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTroubled(t)
			for i, step := range steps {
				if strings.HasSuffix(step, " m") || name == "429" || name == "truncated" {
					continue // as the others
				}
				x.begin(fmt.Sprint("step-", i))
				w := x.worker(name, little)
				_, files := x.history()
				task := state.CommitOptions{TaskID: "task-2", Attempt: 1}
				x.front.begin(step, 1000, how)
				_, err := w.Store.Checkout(t.Context(), w.Tree, nil)
				if err == nil {
					w.Write("new", "1")
					_, err = w.Store.Commit(t.Context(), w.Tree, task)
				}
				seen := x.front.end()
				made := step == "swap HEAD" && name != "503" && name != "429" // what is lost is the answer
				if made {
					if err != nil {
						t.Errorf("%s: ended with %v although it was made", step, err)
					}
				} else {
					op, _, _ := strings.Cut(step, " ")
					if !errors.Is(err, objects.ErrTemporary) || !strings.Contains(err.Error(), op+" acme/") ||
						len(seen) < 2 || len(seen) > 9 {
						t.Errorf("%s: %d requests, then %v; want some, and an error that names them", step, len(seen),
							err)
					}
					if generation, now := x.history(); generation != 1 || !maps.Equal(now, files) {
						t.Errorf("%s: generation %d with %v, want 1 as before", step, generation, cmp.Diff(files, now))
					}
					if strings.HasPrefix(step, "get") {
						w.Checkout()
						w.Write("new", "1")
					}
					w.Commit(task.TaskID)
				}
				files["new"] = "1"
				if generation, now := x.history(); generation != 2 || !maps.Equal(now, files) {
					t.Errorf("%s: generation %d with %v once the store is well, want 2", step, generation,
						cmp.Diff(files, now))
				}
			}
		})
	}
}
