// Package uptest starts whole fleets for tests.
package uptest

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/up"
)

// Telemetry returns a Telemetry that records nothing.
func Telemetry() *telemetry.Telemetry {
	return &telemetry.Telemetry{
		Logger: slog.New(slog.DiscardHandler), TracerProvider: tracenoop.NewTracerProvider(),
		MeterProvider: metricnoop.NewMeterProvider(), MetricsHandler: http.NotFoundHandler(),
	}
}

// Config returns the settings of a fleet with the default tenant, in a directory of the test.
func Config(tb testing.TB) *config.Config {
	tb.Helper()
	conf := config.Default()
	conf.Data = tb.TempDir()
	conf.Optimizations.SandboxPoolSize = 1
	conf.Tenants = map[string]config.Tenant{config.DefaultTenant: {}}
	return conf
}

// Start starts a fleet that ends with the test, and returns it with a client. By default the fleet has no telemetry and
// no worker, so that tasks wait for a worker that joins. TestMain must call embedded.S3Main.
func Start(tb testing.TB, o up.Options) (*up.Fleet, *client.Client) {
	tb.Helper()
	o.Version, o.Private = "test", true
	if o.Telemetry == nil {
		o.Telemetry = Telemetry()
	}
	if o.Worker == nil {
		o.Worker = noWorker
	}
	f, err := up.Start(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := f.Close(); err != nil {
			tb.Error(err)
		}
	})
	c, err := client.New(tb.Context(), client.Options{URL: f.File.URL, Token: f.File.Token})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return f, c
}

// File writes the fleet file of f, for a worker that joins it, and returns its path.
func File(tb testing.TB, f *up.Fleet) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "fleet.json")
	if err := f.File.Write(file); err != nil {
		tb.Fatal(err)
	}
	return file
}

func noWorker(accept, _ context.Context, p assembly.WorkerOptions) error {
	if _, err := p.Join(accept); err != nil {
		return err
	}
	p.Ready()
	<-accept.Done()
	return nil
}
