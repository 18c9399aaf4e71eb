package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/up"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	os.Exit(m.Run())
}

// startFleet starts a fleet without a worker of its own and returns its fleet file.
func startFleet(t *testing.T) (file string, c *client.Client) {
	t.Helper()
	conf := config.Default()
	conf.Data = t.TempDir()
	conf.Queue.AckWait = testAckWait
	conf.Tenants = map[string]config.Tenant{config.DefaultTenant: {}}
	f, err := up.Start(t.Context(), up.Options{
		Config: conf, Version: "test", Private: true,
		Telemetry: &telemetry.Telemetry{
			Logger: slog.New(slog.DiscardHandler), TracerProvider: tracenoop.NewTracerProvider(),
			MeterProvider: metricnoop.NewMeterProvider(), MetricsHandler: http.NotFoundHandler(),
		},
		Worker: func(take, _ context.Context, _ *config.Config, _ string, join func(context.Context) (*jobs.Client, error), _ *telemetry.Telemetry, ready func()) error {
			if _, err := join(take); err != nil {
				return err
			}
			ready()
			<-take.Done()
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	file = filepath.Join(t.TempDir(), "fleet.json")
	if err := f.File.Write(file); err != nil {
		t.Fatal(err)
	}
	c, err = client.New(t.Context(), client.Options{URL: f.File.URL, Token: f.File.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return file, c
}

// testAckWait is that of the fleets here, which the worker is told too.
const testAckWait = 2e9

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

// A worker that joins a fleet takes its tasks, and lets the one that it has end when it is told to stop.
func TestJoinsAndDrains(t *testing.T) {
	runsc := engine(t)
	file, c := startFleet(t)
	data, err := os.MkdirTemp("", "cf") //nolint:usetesting // TempDir has the name of the test in it, and sockets lie below
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	ctx, stop := context.WithCancel(t.Context())
	var log bytes.Buffer
	code := make(chan int, 1)
	go func() {
		env := []string{
			"HOME=" + data, "CODEFLEET_DATA=" + data, "CODEFLEET_EXECUTION_RUNSC=" + runsc, "CODEFLEET_WORKER_NAME=second",
			"CODEFLEET_QUEUE_ACK_WAIT=2s",
		}
		code <- run(ctx, []string{"--fleet", file}, env, &log)
	}()
	rec, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: "import time\nprint('on', flush=True)\ntime.sleep(0.5)\n6*7"}})
	if err != nil {
		t.Fatal(err)
	}
	rec, err = c.Watch(t.Context(), rec.TaskID, 0, func(e client.Event) error {
		if e.Text != "" {
			stop()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(rec.Result.Result) != "42" || rec.Result.Worker != "second" {
		t.Errorf("Watch = %+v; want 42 from second", rec.Result)
	}
	if got := <-code; got != 0 {
		t.Errorf("exit code %d, want 0: %s", got, log.String())
	}
	if left, err := filepath.Glob(filepath.Join(data, "w0", "boxes", "*")); err != nil || len(left) > 0 {
		t.Errorf("left of its sandboxes: %v, %v", left, err)
	}
}

func TestUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  []string
		want string
	}{
		"no fleet":        {nil, nil, "the address of the queue is missing"},
		"no such file":    {[]string{"--fleet", "/nonexistent/fleet.json"}, nil, "/nonexistent/fleet.json"},
		"argument":        {[]string{"now"}, nil, `unexpected argument "now"`},
		"unknown setting": {nil, []string{"CODEFLEET_WORKER_SLOT=1"}, "CODEFLEET_WORKER_SLOTS"},
	} {
		var out strings.Builder
		if code := run(t.Context(), c.args, append(c.env, "HOME=/nonexistent"), io.Writer(&out)); code != 2 || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit code %d, %q; want 2 and %q", name, code, out.String(), c.want)
		}
	}
}
