package assembly

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/codefleet/codefleet/internal/tools/mcp"
)

// observeUpstreams shows the MCP servers in metrics. Why one is down is in the log: an error's text
// is no label.
func observeUpstreams(m metric.Meter, servers *mcp.Manager) (unregister func(), err error) {
	states, err1 := m.Int64ObservableGauge("codefleet.tools.upstream", metric.WithDescription("1 for the state of an MCP server: idle, up or down"))
	failures, err2 := m.Int64ObservableGauge("codefleet.tools.upstream_failures", metric.WithDescription("connections to an MCP server that failed in a row"))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	reg, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, h := range servers.Health() {
			name := attribute.String("server", h.Server)
			o.ObserveInt64(states, 1, metric.WithAttributes(name, attribute.String("state", h.State)))
			o.ObserveInt64(failures, int64(h.Failures), metric.WithAttributes(name))
		}
		return nil
	}, states, failures)
	if err != nil {
		return nil, err
	}
	return func() { _ = reg.Unregister() }, nil
}
