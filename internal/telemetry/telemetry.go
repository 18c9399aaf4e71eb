// Package telemetry sets up the logger, the trace exporter and the metrics of one process. Only this package
// imports the OpenTelemetry SDK; others take a *slog.Logger and the API's TracerProvider and MeterProvider.
// Nothing is global except the SDK's error handler, and the standard logger, which is silenced. The key type is
// Telemetry.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // to silence it
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
)

// Options configure what a process logs, traces and measures. The zero value discards logs and disables traces
// and metrics.
type Options struct {
	// Service is the name of this process's service in traces, logs and metrics. If it is "", OTEL_RESOURCE_ATTRIBUTES
	// may contain the name, and otherwise it is DefaultService.
	Service        string
	DefaultService string
	Instance       string // name of this process, such as a worker's name
	Version        string

	Log LogOptions

	Endpoint string  // for OTLP over HTTP, such as http://host:4318; "" disables traces and the export of logs
	Logs     bool    // send the log to Endpoint, too
	Sample   float64 // share of traces to record unless the caller has decided, 0 to 1
	Metrics  bool    // collect metrics for MetricsHandler
}

// Telemetry is a process's logger and providers. Providers are never nil; disabled ones cost nothing.
type Telemetry struct {
	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	MetricsHandler http.Handler // serves Prometheus's text format, or 404 if metrics are disabled

	closers []func(context.Context) error
}

// Setup sets up a process's telemetry. Without a call of Shutdown before the process ends, the last spans and exported
// log records are lost. An unreachable endpoint is logged when they are sent, and blocks only Shutdown.
func Setup(ctx context.Context, o Options) (*Telemetry, error) {
	// The HTTP client logs bytes from servers to the standard logger. They may repeat secrets of requests.
	log.SetOutput(io.Discard)
	t := &Telemetry{
		TracerProvider: nooptrace.NewTracerProvider(),
		MeterProvider:  noopmetric.NewMeterProvider(),
		MetricsHandler: http.NotFoundHandler(),
	}
	handler, file, err := o.Log.handler()
	if err != nil {
		return nil, err
	}
	if file != nil {
		t.onShutdown(func(context.Context) error { return file.Close() })
	}
	t.Logger = slog.New(Traced(handler))
	if o.Endpoint == "" && !o.Metrics {
		return t, nil
	}
	res, err := o.resource(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("describe this process: %w", err), t.Shutdown(ctx))
	}
	if o.Endpoint != "" {
		t.reportErrors()
		err = t.setUpTraces(ctx, o, res)
	}
	if err == nil && o.Endpoint != "" && o.Logs {
		err = t.setUpLogs(ctx, o, res)
	}
	if err == nil && o.Metrics {
		err = t.setUpMetrics(o, res)
	}
	if err != nil {
		return nil, errors.Join(err, t.Shutdown(ctx))
	}
	return t, nil
}

// resource describes this process. Later options take precedence. WithFromEnv reads OTEL_RESOURCE_ATTRIBUTES, and
// OTEL_SERVICE_NAME, which the settings include in Service.
func (o Options) resource(ctx context.Context) (*resource.Resource, error) {
	var named []attribute.KeyValue
	if o.Service != "" {
		named = append(named, attribute.String("service.name", o.Service))
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", o.DefaultService),
		attribute.String("service.version", o.Version),
		attribute.String("service.instance.id", o.Instance),
	), resource.WithFromEnv(), resource.WithAttributes(named...))
}

// address matches an HTTP address. The groups are its scheme and its host.
var address = regexp.MustCompile(`(https?://)(?:[^\s"/?#]*@)?([^\s"/?#]*)[^\s"]*`)

// reportErrors logs the errors of exporters. The SDK has one error handler per process. The errors are not exported,
// because a failed export would then cause the next one. In their texts, addresses have only the host: a path or a
// query may have a token.
func (t *Telemetry) reportErrors() {
	log := t.Logger
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		message := address.ReplaceAllString(err.Error(), "$1$2")
		log.Warn("telemetry failed", "error", message) // the SDK passes no context
	}))
}

// setUpTraces makes the TracerProvider send spans to the endpoint.
func (t *Telemetry) setUpTraces(ctx context.Context, o Options, res *resource.Resource) error {
	endpoint, err := url.JoinPath(o.Endpoint, "v1/traces")
	if err != nil {
		return fmt.Errorf("parse the trace endpoint: %w", err)
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return fmt.Errorf("create the trace exporter: %w", err)
	}
	p := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(res),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Sample))),
	)
	t.TracerProvider = p
	t.onShutdown(p.Shutdown)
	return nil
}

// setUpMetrics makes the MeterProvider collect metrics for MetricsHandler.
func (t *Telemetry) setUpMetrics(o Options, res *resource.Resource) error {
	registry := prometheus.NewRegistry()
	service, _ := res.Set().Value("service.name")
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "codefleet_build_info", Help: "Always 1; the version is a label.",
		ConstLabels: prometheus.Labels{"version": o.Version, "service": service.AsString()},
	})
	build.Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return fmt.Errorf("create the metric exporter: %w", err)
	}
	p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(res))
	t.MeterProvider = p
	t.MetricsHandler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	t.onShutdown(p.Shutdown)
	return nil
}

func (t *Telemetry) onShutdown(f func(context.Context) error) { t.closers = append(t.closers, f) }

// Shutdown sends pending spans and log records, and closes everything, the log file last. Call it once, with a live
// context that has a timeout.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	for _, closer := range slices.Backward(t.closers) {
		errs = append(errs, closer(ctx))
	}
	return errors.Join(errs...)
}
