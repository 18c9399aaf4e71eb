package up_test

import (
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/logtest"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/internal/up/uptest"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	os.Exit(m.Run())
}

// start starts a fleet that sends its spans to the recorder. stop ends it.
func start(t *testing.T, spans *tracetest.SpanRecorder) (c *client.Client, stop func()) {
	t.Helper()
	_, c, stop = startFleet(t, spans, t.Output())
	return c, stop
}

func startFleet(t *testing.T, spans *tracetest.SpanRecorder, log io.Writer) (f *up.Fleet, c *client.Client,
	stop func(),
) {
	t.Helper()
	conf := uptest.Config(t)
	conf.Worker.Name = "test"
	conf.Execution.Runsc = executortest.Runsc(t)
	tel := uptest.Telemetry()
	tel.Logger = slog.New(slog.NewTextHandler(log, nil))
	tel.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	f, c = uptest.Start(t, up.Options{Config: conf, Telemetry: tel, Worker: process.RunWorker})
	return f, c, sync.OnceFunc(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDoubtfulFiles checks that a fleet that may start without a file of the settings logs that it is missing, and that
// it starts with settings of another queue and object store.
func TestDoubtfulFiles(t *testing.T) {
	conf, tel, log := uptest.Config(t), uptest.Telemetry(), &logtest.Log{}
	conf.Execution.Runsc = "./none"
	// The credentials of another queue have no effect.
	conf.NATS.Token, conf.NATS.Creds, conf.NATS.TLSCA, conf.S3.Region = "t", "./none", "./none", "eu-north-1"
	tel.Logger = slog.New(slog.NewTextHandler(log, nil))
	uptest.Start(t, up.Options{Config: conf, Telemetry: tel})
	const want = "execution.runsc: ./none: no such file or directory (needed if microsandbox does not work)"
	if !strings.Contains(log.String(), want) {
		t.Errorf("the log is %q, want a line with %q", log, want)
	}
}

// TestOneTrace checks that one trace has spans of the request, the queue, the sandbox and the workspace.
func TestOneTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	c, stop := start(t, spans)
	rec, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: `open("a", "w").write("b")`}})
	if err != nil {
		t.Fatal(err)
	}
	rec, err = c.Wait(t.Context(), rec.TaskID)
	if err != nil || rec.Status != client.Succeeded {
		t.Fatalf("Wait = %+v, %v; want succeeded", rec, err)
	}
	stop() // the last span ends after the result is published
	var got []string
	for _, s := range spans.Ended() {
		if s.SpanContext().TraceID().String() == rec.TraceID {
			got = append(got, s.Name())
		}
	}
	slices.Sort(got)
	want := []string{
		"sandbox.acquire", "sandbox.run", "task.publish", "task.queue", "task.run", "workspace.checkout",
		"workspace.commit",
	}
	got = slices.DeleteFunc(got, func(name string) bool { return !slices.Contains(want, name) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("spans of the task's trace %s (-want +got):\n%s", rec.TraceID, d)
	}
}
