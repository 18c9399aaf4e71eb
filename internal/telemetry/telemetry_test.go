package telemetry_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // to check that it is silent
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/metrics"
	"github.com/codefleet/codefleet/internal/telemetry"
)

func setup(t *testing.T, o telemetry.Options) *telemetry.Telemetry {
	t.Helper()
	tel, err := telemetry.Setup(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// The path and the query of the endpoint may have a token.
func TestFailedExportsHaveNoPath(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer refusing.Close()
	for _, host := range []string{refusing.URL, "http://127.0.0.1:1"} {
		var out bytes.Buffer
		tel := setup(t, telemetry.Options{
			Log: telemetry.LogOptions{Output: &out, Format: "text"}, Endpoint: host + "/t0ken", Sample: 1, Logs: true,
		})
		_, span := tel.TracerProvider.Tracer("x").Start(t.Context(), "x")
		span.End()
		_ = tel.Shutdown(t.Context()) // exports
		otel.Handle(fmt.Errorf("export: %w", &url.Error{
			Op: "Post", URL: strings.Replace(host, "//", "//ann:t0ken@", 1) + "/t0ken?k=t1ken", Err: io.EOF,
		}))
		if got := out.String(); strings.Contains(got, "t0ken") || strings.Contains(got, "t1ken") ||
			!strings.Contains(got, host) {
			t.Errorf("log = %q, want %s without path and query", got, host)
		}
	}
}

// Every log record has the trace ids, also those of loggers from With and WithGroup.
func TestTraced(t *testing.T) {
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	ctx := trace.ContextWithSpanContext(t.Context(), sc)
	for name, derive := range map[string]func(*slog.Logger) *slog.Logger{
		"plain":     func(l *slog.Logger) *slog.Logger { return l },
		"With":      func(l *slog.Logger) *slog.Logger { return l.With("task_id", "x") },
		"WithGroup": func(l *slog.Logger) *slog.Logger { return l.WithGroup("g").With("task_id", "x") },
	} {
		var out bytes.Buffer
		log := derive(setup(t, telemetry.Options{Log: telemetry.LogOptions{Output: &out}}).Logger)
		log.InfoContext(ctx, "hello")
		ids := `"trace_id":"01000000000000000000000000000000","span_id":"0200000000000000"`
		if !strings.Contains(out.String(), ids) {
			t.Errorf("%s: log = %s, want trace ids", name, out.String())
		}
		out.Reset()
		log.InfoContext(t.Context(), "hello")
		if strings.Contains(out.String(), "trace_id") {
			t.Errorf("%s: log without a span = %s, want no trace ids", name, out.String())
		}
	}
}

// What a server sends after its response may repeat a secret of the request. It is written nowhere.
func TestBytesOfServersAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	was := log.Writer()
	log.SetOutput(&out)
	t.Cleanup(func() { log.SetOutput(was) })
	setup(t, telemetry.Options{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	closed := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			closed <- err
			return
		}
		defer conn.Close()
		if _, err = http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxs3cr3t")
		}
		if err == nil {
			_, err = io.Copy(io.Discard, conn) // until the client closes the connection, after it has logged
		}
		closed <- err
	}()
	client := &http.Client{Transport: &http.Transport{}}
	res, err := client.Get("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "x" {
		t.Errorf("body = %q, %v, want x", body, err)
	}
	if err := errors.Join(res.Body.Close(), <-closed); err != nil {
		t.Error(err)
	}
	if out.Len() > 0 {
		t.Errorf("log = %q, want none", out.String())
	}
}

// Hide changes the texts of a record, whatever types they have, and not its level, time and numbers.
func TestHide(t *testing.T) {
	hide := func(s string) string { return strings.ReplaceAll(s, "ada", "[X]") }
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		log := setup(t, telemetry.Options{Log: telemetry.LogOptions{Output: &out, Format: format, Hide: hide}}).Logger
		log.With("who", "ada").WithGroup("g").InfoContext(t.Context(), "hello ada",
			"error", errors.New("no ada"), "list", []string{"ada"}, "map", map[string]string{"ada": "x"}, "n", 7,
			slog.Group("h", "deep", "ada"))
		got := out.String()
		if strings.Contains(got, "ada") || strings.Count(got, "[X]") != 6 || !strings.Contains(got, "INFO") ||
			!strings.Contains(got, "7") {
			t.Errorf("%s: log = %s, want [X] six times, the level and the number", format, got)
		}
	}
}

func TestLogOptions(t *testing.T) {
	var out bytes.Buffer
	log := setup(t, telemetry.Options{Log: telemetry.LogOptions{Output: &out, Level: "warning", Format: "text"}}).Logger
	log.InfoContext(t.Context(), "quiet")
	log.WarnContext(t.Context(), "loud")
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "level=WARN msg=loud") {
		t.Errorf("log = %q, want only the warning", got)
	}

	file := filepath.Join(t.TempDir(), "logs", "fleet.log")
	for range 2 {
		tel := setup(t, telemetry.Options{Log: telemetry.LogOptions{File: file}})
		tel.Logger.InfoContext(t.Context(), "line")
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), `"msg":"line"`); n != 2 {
		t.Errorf("log file has %d lines, want 2: %s", n, data)
	}
	if _, err := telemetry.Setup(t.Context(), telemetry.Options{Log: telemetry.LogOptions{Level: "loud"}}); err == nil {
		t.Error("Setup with level loud = nil error, want an error")
	}
}

// Disabled telemetry allocates nothing.
func TestDisabled(t *testing.T) {
	tel := setup(t, telemetry.Options{})
	tracer, ctx := tel.TracerProvider.Tracer("x"), t.Context()
	counter, err := tel.MeterProvider.Meter("x").Int64Counter("n")
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { counter.Add(ctx, 1) }); n > 0 {
		t.Errorf("a disabled counter allocates %v times, want 0", n)
	}
	if _, span := tracer.Start(ctx, "s"); span.IsRecording() {
		t.Error("a disabled span is recording, want it not to")
	}
	w := httptest.NewRecorder()
	tel.MetricsHandler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("/metrics = %d, want 404", w.Code)
	}
}

func TestMetrics(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "other") // Options.Service takes precedence
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-7")
	tel := setup(t, telemetry.Options{Service: "worker", Version: "v1.2.3", Metrics: true})
	counter, err := tel.MeterProvider.Meter("x").Int64Counter("codefleet.tasks")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3)
	w := httptest.NewRecorder()
	tel.MetricsHandler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		"codefleet_tasks_total 3\n", `codefleet_build_info{service="worker",version="v1.2.3"} 1`, "go_goroutines ",
		`target_info{service_instance_id="pod-7",service_name="worker",service_version="v1.2.3",`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("/metrics lacks %q:\n%s", want, w.Body.String())
		}
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestService checks which name of the service precedes which.
func TestService(t *testing.T) {
	for _, c := range []struct{ service, attributes, want string }{
		{"", "", "codefleet-worker"},
		{"", "service.name=acme", "acme"},
		{"set", "service.name=acme", "set"},
	} {
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", c.attributes)
		tel := setup(t, telemetry.Options{Service: c.service, DefaultService: "codefleet-worker", Metrics: true})
		if _, err := tel.MeterProvider.Meter("x").Int64Counter("x"); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		tel.MetricsHandler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		label := `="` + c.want + `"`
		for _, want := range []string{`service_name` + label, `codefleet_build_info{service` + label} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%q, %q: /metrics lacks %s:\n%.300s", c.service, c.attributes, want, w.Body.String())
			}
		}
	}
}

// TestTraces checks that a span reaches an OTLP receiver by the time Shutdown returns.
func TestTraces(t *testing.T) {
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- r.URL.Path + " " + string(body)
	}))
	defer server.Close()
	var out bytes.Buffer
	tel := setup(t, telemetry.Options{
		Service: "worker", Endpoint: server.URL, Sample: 1,
		Log: telemetry.LogOptions{Output: &out},
	})
	ctx, span := tel.TracerProvider.Tracer("x").Start(t.Context(), "a task")
	tel.Logger.InfoContext(ctx, "hello")
	span.End()
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sent := <-got; !strings.HasPrefix(sent, "/v1/traces ") || !strings.Contains(sent, "a task") ||
		!strings.Contains(sent, "worker") {
		t.Errorf("request = %q, want the span of the worker at /v1/traces", sent)
	}
	var line struct {
		TraceID string `json:"trace_id"`
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.TraceID != span.SpanContext().TraceID().String() {
		t.Errorf("log = %s, %v, want trace id %s", out.Bytes(), err, span.SpanContext().TraceID())
	}
}

// BenchmarkTask records as much as one task does: ten spans and ten values. Spans are sent to a receiver that
// responds at once.
func BenchmarkTask(b *testing.B) {
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	for _, bb := range []struct {
		name string
		opts telemetry.Options
	}{
		{"off", telemetry.Options{}},
		{"metrics", telemetry.Options{Metrics: true}},
		{"traces", telemetry.Options{Metrics: true, Endpoint: receiver.URL, Sample: 1}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			tel, err := telemetry.Setup(b.Context(), bb.opts)
			if err != nil {
				b.Fatal(err)
			}
			histogram, err := tel.MeterProvider.Meter("x").Float64Histogram("codefleet.stage")
			if err != nil {
				b.Fatal(err)
			}
			tracer := tel.TracerProvider.Tracer("x")
			b.ReportAllocs()
			for b.Loop() {
				ctx, parent := tracer.Start(b.Context(), "task")
				for range 9 {
					_, span := tracer.Start(ctx, "stage")
					histogram.Record(ctx, 1)
					span.End()
				}
				histogram.Record(ctx, 1)
				parent.End()
			}
			b.StopTimer()
			if err := tel.Shutdown(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
}

// TestMetricNames checks the names of the table as Prometheus shows them.
func TestMetricNames(t *testing.T) {
	tel := setup(t, telemetry.Options{Metrics: true})
	m := metrics.New(tel.MeterProvider.Meter("x"))
	for _, row := range metrics.Table {
		var err error
		switch {
		case row.Kind == metrics.Counter:
			m.Counter(row).Add(t.Context(), 1)
		case row.Kind == metrics.UpDown:
			m.UpDown(row).Add(t.Context(), 1)
		case row.Kind == metrics.Histogram:
			m.Histogram(row).Record(t.Context(), 1)
		case row.Unit == metrics.Seconds:
			g := m.TimeGauge(row)
			_, err = m.Observe(func(_ context.Context, o metric.Observer) error {
				o.ObserveFloat64(g, 1)
				return nil
			}, g)
		default:
			g := m.Gauge(row)
			_, err = m.Observe(func(_ context.Context, o metric.Observer) error { o.ObserveInt64(g, 1); return nil }, g)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w := httptest.NewRecorder()
	tel.MetricsHandler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, row := range metrics.Table {
		if !strings.Contains(w.Body.String(), "# TYPE "+row.Prometheus()+" ") {
			t.Errorf("/metrics lacks %s:\n%s", row.Prometheus(), w.Body.String())
		}
	}
}
