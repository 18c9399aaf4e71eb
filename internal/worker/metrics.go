package worker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/metrics"
)

// observe registers the pool's metrics.
func observe(meter metric.Meter, pool *executor.Pool) (unregister func(), err error) {
	m := metrics.New(meter)
	boxes, waiting := m.Gauge(metrics.PoolBoxes), m.Gauge(metrics.PoolWaiting)
	failing, made := m.Gauge(metrics.PoolFailing), m.TimeGauge(metrics.PoolMade)
	events := m.ObservedCounter(metrics.PoolEvents)
	return m.Observe(func(_ context.Context, o metric.Observer) error {
		s := pool.Stats()
		for _, e := range pool.Environments() {
			with := func(key, value string) metric.MeasurementOption {
				return metric.WithAttributes(attribute.String("environment", e.Name), attribute.String(key, value))
			}
			o.ObserveInt64(boxes, int64(e.Warming), with("state", "warming"))
			o.ObserveInt64(boxes, int64(e.Ready), with("state", "ready"))
			o.ObserveInt64(boxes, int64(e.Bound), with("state", "bound"))
			o.ObserveInt64(boxes, int64(e.Acquired), with("state", "acquired"))
			o.ObserveInt64(waiting, int64(e.Waiting-e.WaitingMemory), with("for", string(executor.WaitBox)))
			o.ObserveInt64(waiting, int64(e.WaitingMemory), with("for", string(executor.WaitMemory)))
			switch {
			case e.CreateTime <= 0:
			case e.Restored:
				o.ObserveFloat64(made, e.CreateTime.Seconds(), with("how", "restored"))
			default:
				o.ObserveFloat64(made, e.CreateTime.Seconds(), with("how", "booted"))
			}
			if e.LastReason != "" {
				o.ObserveInt64(failing, 1, with("reason", string(e.LastReason)))
			}
		}
		for event, n := range map[string]uint64{
			"created": s.Created, "restored": s.Restored, "create_error": s.CreateErrors,
			"acquired": s.Acquires, "acquired_cold": s.ColdAcquires,
			"discarded": s.Discarded, "evicted": s.Evicted, "died": s.Died,
		} {
			o.ObserveInt64(events, int64(n), metric.WithAttributes(attribute.String("event", event)))
		}
		return nil
	}, boxes, waiting, failing, made, events)
}
