package up_test

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/internal/wire"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	os.Exit(m.Run())
}

// engine is the path of runsc, or the test is skipped.
func engine(t *testing.T) string {
	t.Helper()
	for _, path := range []string{os.Getenv("CODEFLEET_RUNSC"), "../../bin/runsc", "runsc"} {
		if found, err := exec.LookPath(path); err == nil {
			abs, err := filepath.Abs(found)
			if err != nil {
				t.Fatal(err)
			}
			return abs
		}
	}
	if os.Getenv("CODEFLEET_REQUIRE_GVISOR") == "1" {
		t.Fatal("no runsc: make bin/runsc")
	}
	t.Skip("no runsc: make bin/runsc")
	return ""
}

// start runs a fleet of this test's own whose spans go to the recorder. stop ends it.
func start(t *testing.T, spans *tracetest.SpanRecorder) (c *client.Client, stop func()) {
	t.Helper()
	_, c, stop = startFleet(t, spans, t.Output())
	return c, stop
}

func startFleet(t *testing.T, spans *tracetest.SpanRecorder, log io.Writer) (f *up.Fleet, c *client.Client, stop func()) {
	t.Helper()
	conf := config.Default()
	conf.Data = t.TempDir()
	conf.Worker.Name = "test"
	conf.Execution.Runsc = engine(t)
	conf.Tenants = map[string]config.Tenant{config.DefaultTenant: {}}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	f, err := up.Start(t.Context(), up.Options{
		Config: conf, Version: "test", Private: true,
		Telemetry: &telemetry.Telemetry{
			Logger: slog.New(slog.NewTextHandler(log, nil)), TracerProvider: provider,
			MeterProvider: noop.NewMeterProvider(), MetricsHandler: http.NotFoundHandler(),
		},
		Worker: wire.RunWorker,
	})
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	c, err = client.New(t.Context(), client.Options{URL: f.File.URL, Token: f.File.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return f, c, stop
}

// One trace goes from the request through the queue to the sandbox and the workspace.
func TestOneTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	c, stop := start(t, spans)
	rec, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: `open("a", "w").write("b")`}})
	if err != nil {
		t.Fatal(err)
	}
	rec, err = c.Wait(t.Context(), rec.TaskID)
	if err != nil || rec.Status != client.Succeeded {
		t.Fatalf("Wait = %+v, %v", rec, err)
	}
	stop() // the last span ends after the result is out
	var got []string
	for _, s := range spans.Ended() {
		if s.SpanContext().TraceID().String() == rec.TraceID {
			got = append(got, s.Name())
		}
	}
	slices.Sort(got)
	want := []string{"sandbox.lease", "sandbox.run", "task.publish", "task.queue", "task.run", "workspace.checkout", "workspace.commit"}
	got = slices.DeleteFunc(got, func(name string) bool { return !slices.Contains(want, name) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("spans of the task's trace %s (-want +got):\n%s", rec.TraceID, d)
	}
}
