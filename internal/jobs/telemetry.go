package jobs

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/internal/metrics"
	"github.com/codefleet/codefleet/schemas"
)

// telemetry records the spans and metrics of the queue.
type telemetry struct {
	trace.Tracer
	submitted, completed, retried, lost, refused, deadRemoved, payloadsRemoved, storageFull metric.Int64Counter
	automated                                                                               metric.Int64Counter
	running                                                                                 metric.Int64UpDownCounter
	queued, run, tenantQueued, late                                                         metric.Float64Histogram
	tenants                                                                                 namedTenants
}

func newTelemetry(tracer trace.Tracer, meter metric.Meter) (*telemetry, error) {
	m := metrics.New(meter)
	t := &telemetry{
		Tracer:          cmp.Or(tracer, tracenoop.NewTracerProvider().Tracer("")),
		submitted:       m.Counter(metrics.TasksSubmitted),
		completed:       m.Counter(metrics.TasksEnded),
		retried:         m.Counter(metrics.TasksRetried),
		lost:            m.Counter(metrics.TasksLost),
		refused:         m.Counter(metrics.TasksRefused),
		deadRemoved:     m.Counter(metrics.DeadLettersRemoved),
		storageFull:     m.Counter(metrics.StorageRefusals),
		payloadsRemoved: m.Counter(metrics.PayloadsRemoved),
		running:         m.UpDown(metrics.TasksRunning),
		automated:       m.Counter(metrics.AutomationActions),
		late:            m.Histogram(metrics.AutomationLate),
		tenantQueued:    m.Histogram(metrics.TenantQueued),
		queued:          m.Histogram(metrics.TaskQueued),
		run:             m.Histogram(metrics.TaskRun),
	}
	return t, m.Err()
}

// OtherTenants is the tenant in metrics for tenants that are not named. It is not a valid name.
const OtherTenants = "(other)"

const maxNamedTenants = 50 // per process; limits the number of time series

// namedTenants are the tenants that the metrics of a process name, and OtherTenants once there are others, with the
// attribute for each.
type namedTenants struct {
	mu    sync.Mutex
	attrs map[string]metric.MeasurementOption
}

// attr returns the attribute tenant: the tenant, or OtherTenants if enough others are named already.
func (n *namedTenants) attr(tenant string) metric.MeasurementOption {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.attrs == nil {
		n.attrs = map[string]metric.MeasurementOption{}
	}
	if n.attrs[tenant] == nil && len(n.attrs) >= maxNamedTenants {
		tenant = OtherTenants
	}
	if n.attrs[tenant] == nil {
		n.attrs[tenant] = metric.WithAttributeSet(attribute.NewSet(attribute.String("tenant", tenant)))
	}
	return n.attrs[tenant]
}

// waited records how long a task was queued before its first run.
func (t *telemetry) waited(ctx context.Context, pool, tenant string, wait time.Duration) {
	t.queued.Record(ctx, wait.Seconds(), attrPool(pool))
	t.tenantQueued.Record(ctx, wait.Seconds(), t.tenants.attr(tenant))
}

// CountAutomation counts an action of a schedule, trigger or webhook. The metric's row in package metrics has the kinds
// and outcomes.
func (c *Client) CountAutomation(ctx context.Context, kind, outcome string) {
	c.tel.automated.Add(ctx, 1, metric.WithAttributes(
		attribute.String("kind", kind), attribute.String("outcome", outcome)))
}

// RecordLate records how late a schedule's task was submitted.
func (c *Client) RecordLate(ctx context.Context, late time.Duration) {
	c.tel.late.Record(ctx, max(0, late.Seconds()))
}

func attrPool(pool string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("pool", pool))
}

// Trace context travels from hop to hop in the NATS headers traceparent and tracestate. The event attributes
// with these names keep the span in which the event was created, and never change.
var propagator = propagation.TraceContext{}

// carrier makes nats.Header a propagation.TextMapCarrier.
type carrier nats.Header

func (c carrier) Get(key string) string { return nats.Header(c).Get(key) }
func (c carrier) Set(key, value string) { nats.Header(c).Set(key, value) }
func (c carrier) Keys() []string        { return slices.Collect(maps.Keys(c)) }

// inject writes the span of ctx, if any, into the headers.
func inject(ctx context.Context, h nats.Header) { propagator.Inject(ctx, carrier(h)) }

// extract returns ctx with the remote span of the headers, or else of the event.
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

func attrStatus(pool string, s schemas.Status) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("pool", pool), attribute.String("status", string(s)))
}
