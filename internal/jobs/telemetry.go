package jobs

import (
	"context"
	"errors"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// telemetry is the spans and numbers of the queue. Without a tracer and a meter it does nothing.
type telemetry struct {
	trace.Tracer
	submitted, ended, retried, lost, refused metric.Int64Counter
	running                                  metric.Int64UpDownCounter
	queued, run                              metric.Float64Histogram
}

func newTelemetry(tracer trace.Tracer, meter metric.Meter) (*telemetry, error) {
	if tracer == nil {
		tracer = tracenoop.NewTracerProvider().Tracer("")
	}
	if meter == nil {
		meter = metricnoop.NewMeterProvider().Meter("")
	}
	t := &telemetry{Tracer: tracer}
	var errs []error
	count := func(to *metric.Int64Counter, name, what string) {
		var err error
		*to, err = meter.Int64Counter(name, metric.WithDescription(what))
		errs = append(errs, err)
	}
	seconds := func(to *metric.Float64Histogram, name, what string) {
		var err error
		*to, err = meter.Float64Histogram(name, metric.WithDescription(what), metric.WithUnit("s"))
		errs = append(errs, err)
	}
	count(&t.submitted, "codefleet.tasks.submitted", "tasks queued")
	count(&t.ended, "codefleet.tasks.ended", "tasks that reached a terminal status")
	count(&t.retried, "codefleet.tasks.retried", "runs that led to another")
	count(&t.lost, "codefleet.tasks.lost", "runs given up because their lease was lost")
	count(&t.refused, "codefleet.tasks.refused", "events that could not become a task")
	seconds(&t.queued, "codefleet.task.queued", "from submission to the first run")
	seconds(&t.run, "codefleet.task.run", "one run")
	var err error
	t.running, err = meter.Int64UpDownCounter("codefleet.tasks.running", metric.WithDescription("tasks running on this worker"))
	return t, errors.Join(append(errs, err)...)
}

func attrPool(pool string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("pool", pool))
}

// Trace context travels hop by hop in the NATS headers traceparent and tracestate. The event's own
// attributes of that name keep the span in which it was born and are never rewritten.
var propagator = propagation.TraceContext{}

// carrier is nats.Header with keys as they are: its own methods know no case folding either.
type carrier nats.Header

func (c carrier) Get(key string) string { return nats.Header(c).Get(key) }
func (c carrier) Set(key, value string) { nats.Header(c).Set(key, value) }
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}

// inject writes the span of ctx into the headers, if there is one.
func inject(ctx context.Context, h nats.Header) { propagator.Inject(ctx, carrier(h)) }

// extract returns ctx with the remote span of the headers, or of the event where they have none.
func extract(ctx context.Context, h nats.Header, ev event.Event) context.Context {
	if h.Get("traceparent") != "" {
		return propagator.Extract(ctx, carrier(h))
	}
	c := propagation.MapCarrier{}
	for _, key := range propagator.Fields() {
		if v, ok := ev.Extensions()[key].(string); ok {
			c[key] = v
		}
	}
	return propagator.Extract(ctx, c)
}

func traceID(ctx context.Context) string {
	if id := trace.SpanContextFromContext(ctx).TraceID(); id.IsValid() {
		return id.String()
	}
	return ""
}
