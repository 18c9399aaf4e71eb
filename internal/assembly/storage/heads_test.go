package storage_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/assembly/storage"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	m.Run()
}

// lackingStore starts an S3 server that, like some stores, responds with 501 to a conditional PUT: to If-Match
// always, and to If-None-Match unless create is set. It returns settings with this server and a queue.
func lackingStore(t *testing.T, create bool) *config.Config {
	t.Helper()
	s3, err := embedded.StartS3(t.Context(), embedded.S3Options{
		Dir: t.TempDir(), Addr: "127.0.0.1:0", Bucket: "fleet", NoSync: true,
		AccessKey: "access", SecretKey: "secret-secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s3.Close() })
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: s3.Endpoint()})
		r.Out.Host = r.In.Host // the signature covers it
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conditional := r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != "" && !create
		if r.Method == http.MethodPut && conditional {
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	nats, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Close)
	c := config.Default()
	c.Data = t.TempDir()
	c.S3.Endpoint, c.S3.Bucket, c.S3.AccessKey, c.S3.SecretKey = front.URL, "fleet", "access", "secret-secret"
	c.NATS.URL, c.NATS.User, c.NATS.Password = nats.URL(), nats.Fleet().User, config.Secret(nats.Fleet().Password)
	return c
}

// On a store without conditional writes, Check refuses the default head mode and suggests safe ones, and the
// safe modes lose no commit.
func TestHeads(t *testing.T) {
	for _, m := range []struct {
		heads  string
		create bool
		advice string // in the error for the default mode
	}{
		{config.HeadsCreate, true, "s3.heads: s3-create, nats, or unsafe-single-writer"},
		{config.HeadsNATS, false, "s3.heads: nats, or unsafe-single-writer"},
		{config.HeadsSingleWriter, false, "s3.heads: nats, or unsafe-single-writer"},
	} {
		t.Run(m.heads, func(t *testing.T) {
			c := lackingStore(t, m.create)
			open := func(t *testing.T) objects.Objects {
				t.Helper()
				bucket, err := storage.Objects(c)
				if err != nil {
					t.Fatal(err)
				}
				return bucket
			}
			check := func() error { return storage.Check(t.Context(), c, state.New(open(t), state.Options{})) }
			if err := check(); !errors.Is(err, objects.ErrUnsafe) || !strings.Contains(err.Error(), m.advice) {
				t.Errorf("Check with s3.heads %s = %v, want %v with %q", c.S3.Heads, err, objects.ErrUnsafe, m.advice)
			}
			c.S3.Heads = m.heads
			if err := check(); err != nil {
				t.Fatal(err)
			}
			twoWorkers(t, open)
			if os.Getenv("CODEFLEET_LONG_TESTS") == "1" { // package state runs these tests on stores in memory
				statetest.TestObjects(t, open)
				t.Run("store", func(t *testing.T) { statetest.TestStore(t, open) })
			}
			c.S3.Heads = config.HeadsNATS
			if m.heads == config.HeadsNATS {
				c.S3.Heads = config.HeadsSingleWriter
			}
			if err := check(); !errors.Is(err, state.ErrConflict) ||
				!strings.Contains(err.Error(), "head mode "+m.heads) {
				t.Errorf("Check with s3.heads %s = %v, want %v that names %s", c.S3.Heads, err,
					state.ErrConflict, m.heads)
			}
		})
	}
}

// twoWorkers checks that two workers that have checked out the same version can both commit without losing a file.
func twoWorkers(t *testing.T, open func(*testing.T) objects.Objects) {
	t.Helper()
	ref := state.Ref{Tenant: "acme", Workspace: "two"}
	a, b := statetest.NewWorker(t, open(t), ref, state.Options{}), statetest.NewWorker(t, open(t), ref, state.Options{})
	want := map[string]string{}
	for i := range 5 {
		a.Checkout()
		b.Checkout()
		for name, w := range map[string]*statetest.Worker{"a": a, "b": b} {
			file := fmt.Sprint(name, i)
			w.Write(file, file)
			want[file] = file
		}
		a.Commit(fmt.Sprint("a-", i))
		if c := b.Commit(fmt.Sprint("b-", i)); c.Generation != int64(2*i+2) {
			t.Errorf("second of two commits = %+v, want generation %d", c, 2*i+2)
		}
	}
	fresh := statetest.NewWorker(t, open(t), ref, state.Options{})
	fresh.Checkout()
	fresh.Want(want)
}

func TestHeadsNeedQueue(t *testing.T) {
	c := config.Default()
	c.S3.Endpoint, c.S3.Heads = "http://127.0.0.1:1", config.HeadsNATS
	if _, err := storage.Objects(c); err == nil || !strings.Contains(err.Error(), "nats.url is empty") {
		t.Errorf("Objects with s3.heads nats and without nats.url = %v, want an error", err)
	}
}
