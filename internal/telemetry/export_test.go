package telemetry_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/telemetry"
)

// TestLogs checks that the endpoint receives the records of the log with their trace, at the log's level and with its
// replacements, and none unless the export is enabled.
func TestLogs(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		bodies := make(chan []byte, 10)
		collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/logs" {
				body, _ := io.ReadAll(r.Body)
				bodies <- body
			}
		}))
		defer collector.Close()
		var out bytes.Buffer
		tel := setup(t, telemetry.Options{
			Service: "codefleet-worker", Endpoint: collector.URL, Logs: enabled, Log: telemetry.LogOptions{
				Output: &out, Hide: func(s string) string { return strings.ReplaceAll(s, "ada", "[X]") },
			},
		})
		sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 7}, SpanID: trace.SpanID{2}})
		ctx := trace.ContextWithSpanContext(t.Context(), sc)
		tel.Logger.With("who", "ada").WithGroup("g").InfoContext(ctx, "hello ada", "error", errors.New("no ada"),
			"list", []string{"ada"}, slog.Group("h", "deep", "ada"), "n", 7)
		tel.Logger.DebugContext(ctx, "too much detail")
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(bodies)
		var got []byte
		for b := range bodies {
			got = append(got, b...)
		}
		if !strings.Contains(out.String(), "hello [X]") {
			t.Errorf("the log = %s, want the record there, too", out.String())
		}
		if !enabled {
			if len(got) > 0 {
				t.Errorf("the endpoint received %q, want nothing", got)
			}
			continue
		}
		id := sc.TraceID()
		if bytes.Contains(got, []byte("ada")) || bytes.Contains(got, []byte("detail")) ||
			bytes.Count(got, []byte("[X]")) != 5 || !bytes.Contains(got, []byte("codefleet-worker")) ||
			!bytes.Contains(got, id[:]) {
			t.Errorf("the endpoint received %q, want one record with [X] five times, the service and the trace", got)
		}
	}
}
