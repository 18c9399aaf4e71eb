package ingest

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/internal/logtest"
)

// TestEmptyResponseIsLogged checks the log of a request to which net/http responds, because its handler writes nothing.
func TestEmptyResponseIsLogged(t *testing.T) {
	log := new(logtest.Log)
	observing(log).observe(func(rec *recorder, _ *http.Request) { rec.route = "GET /v1/x" }).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("HEAD", "/v1/x", nil))
	if text := log.String(); !strings.Contains(text, "msg=request method=HEAD path=/v1/x status=200 bytes=0") {
		t.Errorf("the log is %q, want the request with status 200", text)
	}
}

// observing returns a server that can only observe requests.
func observing(log *logtest.Log) *Server {
	return &Server{o: Options{Telemetry: Telemetry{
		Log: slog.New(slog.NewTextHandler(log, nil)), Tracer: noop.NewTracerProvider().Tracer(""),
	}}}
}

// TestAbortedRequestIsLogged checks the log of requests whose responses break off.
func TestAbortedRequestIsLogged(t *testing.T) {
	for _, p := range []any{http.ErrAbortHandler, "a bug"} {
		log := new(logtest.Log)
		h := observing(log).observe(func(rec *recorder, _ *http.Request) {
			rec.route = "GET /v1/x"
			_, _ = rec.Write([]byte("part"))
			panic(p)
		})
		func() {
			defer func() {
				if got, ok := recover().(error); !ok || !errors.Is(got, http.ErrAbortHandler) {
					t.Errorf("after the panic %v: panic %v, want %v", p, got, http.ErrAbortHandler)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/x", nil))
		}()
		if text := log.String(); !strings.Contains(text, "msg=request method=GET path=/v1/x status=200 bytes=4") {
			t.Errorf("after the panic %v, the log is %q, want the request", p, text)
		}
	}
}
