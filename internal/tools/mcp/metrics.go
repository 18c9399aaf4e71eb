package mcp

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/codefleet/codefleet/internal/metrics"
)

// Observe registers the servers' metrics until unregister is called. The error of a server that is down is not an
// attribute, because its text is unbounded; Health and the log have it.
func (m *Manager) Observe(meter metric.Meter) (unregister func(), err error) {
	instruments := metrics.New(meter)
	states, failures := instruments.Gauge(metrics.ToolsUpstream), instruments.Gauge(metrics.ToolsUpstreamFailures)
	return instruments.Observe(func(_ context.Context, o metric.Observer) error {
		for _, h := range m.Health() {
			name := attribute.String("server", h.Server)
			o.ObserveInt64(states, 1, metric.WithAttributes(name, attribute.String("state", h.State)))
			o.ObserveInt64(failures, int64(h.Failures), metric.WithAttributes(name))
		}
		return nil
	}, states, failures)
}
