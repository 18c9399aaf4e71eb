package worker_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/worker"
	"github.com/codefleet/codefleet/schemas"
)

var quiet = slog.New(slog.DiscardHandler)

// fleet is a queue and one worker, whose programs are processes on this host.
type fleet struct {
	*jobs.Client
	events chan executor.PoolEvent
}

// newFleet starts a fleet; network replaces the internet.
func newFleet(t *testing.T, network egress.Options) *fleet {
	t.Helper()
	user := embedded.NATSUser{User: "fleet", Password: "p"}
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Fleet: user, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	f := &fleet{events: make(chan executor.PoolEvent, 1000)}
	policy := func(string) (jobs.TenantPolicy, bool) {
		hosts := []allowlist.Pattern{{Name: "example.com"}, {Name: "example.com", Wild: true}}
		return jobs.TenantPolicy{Network: hosts}, true
	}
	f.Client, err = jobs.Connect(t.Context(), jobs.Options{
		Server:      jobs.Server{InProcess: srv},
		Credentials: jobs.Credentials{User: user.User, Password: user.Password},
		Policy:      policy, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	if err := f.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := state.New(mem.New(), state.Options{Log: quiet})
	pool, err := executor.NewPool(executortest.Host{}, executor.PoolOptions{
		MinReady: 1, Max: 4, Dir: filepath.Join(t.TempDir(), "b"), Owner: "w", DiskMB: -1, Log: quiet,
		Trace: func(e executor.PoolEvent) { f.events <- e },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		err := worker.Run(ctx, ctx, worker.Parts{
			Queue:    jobs.WorkerOptions{Name: "w", Pools: []string{"default"}, Slots: 1, Policy: policy},
			Pipeline: pipeline.Parts{Pool: pool, Limits: pipeline.Limits{Network: network}, Log: quiet},
			Join: func(context.Context) (worker.Fleet, error) {
				return worker.Fleet{Queue: f.Client, Store: store}, nil
			},
		})
		if err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return f
}

// run runs a program with access to the hosts.
func (f *fleet) run(t *testing.T, id, code string, allow ...string) *schemas.Result {
	t.Helper()
	task := schemas.Task{Code: code}
	if len(allow) > 0 {
		task.Network = &schemas.Network{Allow: allow}
	}
	e := event.New()
	e.SetID(id)
	e.SetSource("test")
	e.SetType(schemas.TypeTask)
	if err := e.SetData("application/json", task); err != nil {
		t.Fatal(err)
	}
	rec, err := f.Submit(t.Context(), "acme", e)
	if err != nil {
		t.Fatal(err)
	}
	if rec, err = f.Wait(t.Context(), "acme", rec.TaskID); err != nil || rec.Result == nil {
		t.Fatalf("Wait() = %+v, %v; want a result", rec, err)
	}
	return rec.Result
}

// With Python's standard library, a program reaches the hosts that its task allows, and the result lists its attempts.
// The worker resolves every name and opens every connection.
func TestNetwork(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
			return
		}
		fmt.Fprint(w, r.Host)
	})
	insecure, secret := httptest.NewServer(page), httptest.NewTLSServer(page)
	t.Cleanup(func() { insecure.Close(); secret.Close() })
	secret.TLS.MinVersion = tls.VersionTLS12
	f := newFleet(t, egress.Options{
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			switch host {
			case "inside.example.com":
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
			case "example.com", "www.example.com":
				return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
			}
			return nil, errors.New("no such host")
		},
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			server := insecure
			if to.Port() == 443 {
				server = secret
			}
			if to.Addr() != netip.MustParseAddr("93.184.216.34") {
				return nil, fmt.Errorf("dialled %s, want 93.184.216.34", to)
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	})
	res := f.run(t, "1", `
import ssl, urllib.request
context = ssl._create_unverified_context()
def get(url):
    try:
        return urllib.request.urlopen(url, context=context if url.startswith('https') else None).read().decode()
    except OSError as e:
        return str(e)
[get(u) for u in ('http://example.com/', 'https://www.example.com/', 'https://evil.net/', 'http://example.com/away',
                  'http://inside.example.com/', 'https://example.com:8443/', 'http://nowhere.example.com/')]`,
		"example.com", "*.example.com")
	var got []string
	if err := json.Unmarshal(res.Result, &got); err != nil {
		t.Fatalf("result = %+v, want a list of responses", res)
	}
	want := []string{
		"example.com", "www.example.com",
		"<urlopen error Tunnel connection failed: 403 evil.net is not in network.allow>",
		"HTTP Error 403: 169.254.169.254 is not in network.allow",
		"HTTP Error 403: inside.example.com has an address that is not on the public internet",
		"<urlopen error Tunnel connection failed: 403 port 8443 of example.com is not in network.allow, " +
			"which may name ports 80 and 443>",
		"HTTP Error 502: nowhere.example.com has no address",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("responses (-want +got):\n%s", d)
	}
	verdicts := map[string]bool{}
	for _, e := range res.Egress {
		verdicts[fmt.Sprintf("%s %d %s %v", e.Host, e.Port, e.Verdict, e.Bytes > 0)] = true
	}
	if d := cmp.Diff(map[string]bool{
		"example.com 80 allowed true": true, "www.example.com 443 allowed true": true,
		"evil.net 443 refused_host false": true, "169.254.169.254 80 refused_host false": true,
		"inside.example.com 80 refused_address false": true, "example.com 8443 refused_port false": true,
		"nowhere.example.com 80 failed_dns false": true,
	}, verdicts); d != "" {
		t.Errorf("egress (-want +got):\n%s", d)
	}

	res = f.run(t, "2", "import os\n[k for k in os.environ if 'proxy' in k.lower()]")
	if string(res.Result) != "[]" || res.Egress != nil {
		t.Errorf("task without network = %s, %+v, want no proxy and no attempts", res.Result, res.Egress)
	}
	f.run(t, "3", "1", "example.com")
	f.run(t, "4", "1", "*.example.com", "example.com")
	boxes := map[string]string{}
	for len(f.events) > 0 {
		if e := <-f.events; e.Step == "ran" {
			boxes[e.Task] = e.BoxID
		}
	}
	distinct := map[string]bool{}
	for _, box := range boxes {
		distinct[box] = true
	}
	if len(boxes) != 4 || len(distinct) != 3 {
		t.Errorf("4 tasks with 3 different allow-lists ran in boxes %v, want 3 boxes", boxes)
	}
}

func TestTenantAllowListBoundsTasks(t *testing.T) {
	f := newFleet(t, egress.Options{})
	for _, c := range []struct{ allow, code, text string }{
		{"example.org", "not_allowed", "/network/allow/0: tenant acme may not reach example.org"},
		{"*", "not_allowed", "/network/allow/0: tenant acme may not reach *"},
		{"example.com:22", "bad_data", "/network/allow/0: \"example.com:22\": only ports 80 and 443"},
		{"http://example.com", "bad_data", "/network/allow/0"},
	} {
		e := event.New()
		e.SetID(c.allow)
		e.SetSource("test")
		e.SetType(schemas.TypeTask)
		task := schemas.Task{Code: "1", Network: &schemas.Network{Allow: []string{c.allow}}}
		if err := e.SetData("application/json", task); err != nil {
			t.Fatal(err)
		}
		_, err := f.Submit(t.Context(), "acme", e)
		refused, ok := errors.AsType[*jobs.RefusedError](err)
		text := ""
		if ok {
			text = refused.Path + ": " + strings.TrimPrefix(refused.Message, refused.Path+": ")
		}
		if !ok || refused.Code != c.code || !strings.HasPrefix(text, c.text) {
			t.Errorf("Submit(%s) = %v, want %s %s", c.allow, err, c.code, c.text)
		}
	}
}
