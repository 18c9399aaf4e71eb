package s3_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	planned(killVariable, killWorker)
	planned(opVariable, doOp)
	planned(mirrorVariable, commitAndMirror)
	os.Exit(m.Run())
}

// planned runs main and exits if the process was started with a plan in the environment variable.
func planned[T any](variable string, main func(T) error) {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var plan T
	err := json.Unmarshal([]byte(text), &plan)
	if err == nil {
		err = main(plan)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// gateway starts a real S3 server with an empty bucket.
func gateway(t testing.TB) s3.Options {
	t.Helper()
	server, err := embedded.StartS3(t.Context(), embedded.S3Options{
		Dir: t.TempDir(), Addr: "127.0.0.1:0", AccessKey: "access", SecretKey: "secret-secret", Bucket: "fleet",
		NoSync: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	transport := s3.NewTransport()
	t.Cleanup(transport.CloseIdleConnections) // the server's Close would wait for them
	return s3.Options{
		Endpoint: "http://" + server.Endpoint(), Bucket: "fleet", AccessKey: "access", SecretKey: "secret-secret",
		Transport: transport,
	}
}

func open(t testing.TB, opts s3.Options) *s3.Objects {
	t.Helper()
	o, err := s3.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.EnsureBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestObjects(t *testing.T) {
	opts := gateway(t)
	statetest.TestObjects(t, func(t *testing.T) objects.Objects { t.Helper(); return open(t, opts) })
	opts.Prefix = "some/prefix"
	t.Run("prefix", func(t *testing.T) {
		statetest.TestObjects(t, func(t *testing.T) objects.Objects { t.Helper(); return open(t, opts) })
	})
}

func TestStore(t *testing.T) {
	opts := gateway(t)
	statetest.TestStore(t, func(t *testing.T) objects.Objects { t.Helper(); return open(t, opts) })
	opts.Prefix = "locked"
	t.Run("encrypted", func(t *testing.T) {
		statetest.TestStoreWith(t, func(t *testing.T) objects.Objects { t.Helper(); return open(t, opts) },
			state.Options{Secrets: statetest.Secrets("a secret")})
	})
	opts.Prefix = "carried"
	t.Run("carried", func(t *testing.T) {
		statetest.TestStoreWith(t, func(t *testing.T) objects.Objects { t.Helper(); return open(t, opts) },
			statetest.Carrying)
	})
}

func TestProbe(t *testing.T) {
	caps, err := heads.Probe(t.Context(), open(t, gateway(t)))
	if err != nil || !caps.Verify || !caps.Fresh || !caps.Ranges {
		t.Errorf("Probe() = %+v, %v, want everything honoured", caps, err)
	}
	t.Log(caps.Summary)
}

// TestErrorsHaveNoPassword checks the error for an endpoint that is no URL and contains a password.
func TestErrorsHaveNoPassword(t *testing.T) {
	const want = `s3 endpoint "http://…@h": want http://host:port or https://host`
	if _, err := s3.Open(s3.Options{Endpoint: "http://key:s3cret/@h", Bucket: "b"}); fmt.Sprint(err) != want {
		t.Errorf("Open = %v, want %s", err, want)
	}
}

const lastModified = "Thu, 01 Jan 2026 00:00:00 GMT" // the client needs this header

// TestErrorsHaveNoPaths checks that errors have neither the path of a file in a mirror nor the URL of the request.
func TestErrorsHaveNoPaths(t *testing.T) {
	o, err := s3.Open(s3.Options{Endpoint: "http://127.0.0.1:1", Bucket: "the-bucket", AccessKey: "k", SecretKey: "s"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the module tries for longer
	defer cancel()
	err = o.PutFile(ctx, "acme/main/files/plans/secret.txt", strings.NewReader("x"), 1)
	if err == nil || !strings.HasPrefix(err.Error(), "put acme/main/files/…: ") ||
		strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "the-bucket") {
		t.Errorf("PutFile() = %v, want an error without the path and the bucket", err)
	}
	closing := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer closing.Close()
	o, err = s3.Open(s3.Options{Endpoint: closing.URL, Bucket: "the-bucket", AccessKey: "k", SecretKey: "s"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.Get(t.Context(), "acme/main/files/secret", objects.GetOptions{})
	if !errors.Is(err, objects.ErrTemporary) || strings.Contains(err.Error(), "secret") ||
		strings.Contains(err.Error(), "the-bucket") {
		t.Errorf("Get() over a closed connection = %v, want %v without the path and the bucket", err,
			objects.ErrTemporary)
	}
	cut := answering(t, http.StatusOK, "x", "Content-Length", "2", "Last-Modified", lastModified)
	_, err = cut.Get(t.Context(), "acme/main/files/secret", objects.GetOptions{})
	if !errors.Is(err, objects.ErrTemporary) || strings.Contains(err.Error(), "secret") {
		t.Errorf("Get() of a body that is cut = %v, want %v without the path", err, objects.ErrTemporary)
	}
}

// cancelling is a transport that ends a context when a response has arrived, before its body is read.
type cancelling struct {
	http.RoundTripper
	cancel context.CancelFunc
}

// RoundTrip implements http.RoundTripper.
func (c cancelling) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	c.cancel()
	return resp, err
}

// TestCancelledRead checks that a read whose context ends while the body arrives is no temporary error, which would
// make a store of Reopening open again.
func TestCancelledRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		w.Header().Set("Last-Modified", lastModified)
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o, err := s3.Open(s3.Options{
		Endpoint: server.URL, Bucket: "bucket", AccessKey: "access", SecretKey: "secret",
		Transport: cancelling{s3.NewTransport(), cancel},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.Get(ctx, "key", objects.GetOptions{})
	if !errors.Is(err, context.Canceled) || errors.Is(err, objects.ErrTemporary) {
		t.Errorf("Get() with a cancelled context = %v, want %v and not %v", err, context.Canceled, objects.ErrTemporary)
	}
}
