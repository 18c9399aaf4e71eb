package jobs

import (
	"context"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/internal/metrics"
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
	m := metrics.New(meter)
	t := &telemetry{
		Tracer:    tracer,
		submitted: m.Counter(metrics.TasksSubmitted),
		ended:     m.Counter(metrics.TasksEnded),
		retried:   m.Counter(metrics.TasksRetried),
		lost:      m.Counter(metrics.TasksLost),
		refused:   m.Counter(metrics.TasksRefused),
		running:   m.UpDown(metrics.TasksRunning),
		queued:    m.Histogram(metrics.TaskQueued),
		run:       m.Histogram(metrics.TaskRun),
	}
	return t, m.Err()
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
