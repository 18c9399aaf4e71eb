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

// badly answers some requests to a gateway badly.
type badly struct {
	target *url.URL
	how    func(w http.ResponseWriter, answer func() *http.Response)
	bad    atomic.Int64

	mu     sync.Mutex
	random *rand.Rand
}

func (b *badly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func() *http.Response {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.RequestURI = b.target.Scheme, b.target.Host, ""
		resp, err := http.DefaultTransport.RoundTrip(out) // with the Host that is signed
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		return resp
	}
	b.mu.Lock()
	bad := b.random.IntN(3) == 0 // a fixed period would meet the same request again and again
	b.mu.Unlock()
	if bad {
		b.bad.Add(1)
		b.how(w, answer)
		return
	}
	resp := answer()
	defer resp.Body.Close()
	pass(w, resp)
	_, _ = io.Copy(w, resp.Body) // the client notices
}

func pass(w http.ResponseWriter, resp *http.Response) {
	maps.Copy(w.Header(), resp.Header)
	if resp.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	w.WriteHeader(resp.StatusCode)
}

func status(code int, name string) func(http.ResponseWriter, func() *http.Response) {
	return func(w http.ResponseWriter, _ func() *http.Response) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(code)
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>later</Message></Error>`, name)
	}
}

// TestBadAnswers: whatever a store that works badly answers, a commit is whole and happens once.
func TestBadAnswers(t *testing.T) {
	for name, how := range map[string]func(http.ResponseWriter, func() *http.Response){
		"503": status(http.StatusServiceUnavailable, "SlowDown"),       //nolint:bodyclose // the store is not asked
		"429": status(http.StatusTooManyRequests, "TooManyRequests"),   //nolint:bodyclose // the store is not asked
		"500": status(http.StatusInternalServerError, "InternalError"), //nolint:bodyclose // the store is not asked
		"lost answer": func(_ http.ResponseWriter, answer func() *http.Response) {
			answer().Body.Close()
			panic(http.ErrAbortHandler)
		},
		"lost request": func(http.ResponseWriter, func() *http.Response) { panic(http.ErrAbortHandler) },
		"truncated": func(w http.ResponseWriter, answer func() *http.Response) {
			resp := answer()
			defer resp.Body.Close()
			pass(w, resp)
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
			front := &badly{target: target, how: how, random: rand.New(rand.NewPCG(1, 2))}
			server := httptest.NewServer(front)
			t.Cleanup(func() { // which would wait seconds for connections that nobody has used yet
				server.CloseClientConnections()
				server.Close()
			})
			opts.Endpoint = server.URL
			tasksOverBadAnswers(t, func() objects.Objects { return reopen(t, opts) })
			if front.bad.Load() < 5 {
				t.Errorf("%d answers were bad, want some at each step", front.bad.Load())
			}
		})
	}
}

// reopen returns the store without asking for its bucket, which nobody tries twice.
func reopen(t *testing.T, opts s3.Options) objects.Objects {
	t.Helper()
	o, err := s3.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// tasksOverBadAnswers runs tasks on two workers that take turns; the second one always merges.
func tasksOverBadAnswers(t *testing.T, open func() objects.Objects) {
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
