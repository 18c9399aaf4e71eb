package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
)

// setUpLogs makes the logger send its records to the endpoint as well, from the log's level on, and with the same
// private values hidden.
func (t *Telemetry) setUpLogs(ctx context.Context, o Options, res *resource.Resource) error {
	endpoint, err := url.JoinPath(o.Endpoint, "v1/logs")
	if err != nil {
		return fmt.Errorf("parse the endpoint of logs: %w", err)
	}
	level, err := parseLevel(o.Log.Level)
	if err != nil {
		return err
	}
	exporter, err := otlploghttp.New(ctx, otlploghttp.WithEndpointURL(endpoint))
	if err != nil {
		return fmt.Errorf("create the log exporter: %w", err)
	}
	p := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)), sdklog.WithResource(res))
	handler := exportHandler{otelslog.NewHandler("codefleet", otelslog.WithLoggerProvider(p)), level, o.Log.Hide}
	t.Logger = slog.New(slog.NewMultiHandler(t.Logger.Handler(), handler))
	t.onShutdown(p.Shutdown)
	return nil
}

// exportHandler passes on the records at a level or above, with their private values replaced.
type exportHandler struct {
	next  slog.Handler
	level slog.Level
	hide  func(string) string // may be nil
}

func (h exportHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level && h.next.Enabled(ctx, l)
}

func (h exportHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.hide == nil {
		return h.next.Handle(ctx, r)
	}
	hidden := slog.NewRecord(r.Time, r.Level, h.hide(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		hidden.AddAttrs(h.hidden(a))
		return true
	})
	return h.next.Handle(ctx, hidden)
}

// hidden replaces the private values in an attribute, or in those of a group.
func (h exportHandler) hidden(a slog.Attr) slog.Attr {
	if a.Value = a.Value.Resolve(); a.Value.Kind() != slog.KindGroup {
		return hiding(h.hide)(nil, a)
	}
	var group []slog.Attr
	for _, member := range a.Value.Group() {
		group = append(group, h.hidden(member))
	}
	return slog.Attr{Key: a.Key, Value: slog.GroupValue(group...)}
}

func (h exportHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if h.hide != nil {
		hidden := make([]slog.Attr, len(attrs))
		for i, a := range attrs {
			hidden[i] = h.hidden(a)
		}
		attrs = hidden
	}
	return exportHandler{h.next.WithAttrs(attrs), h.level, h.hide}
}

func (h exportHandler) WithGroup(name string) slog.Handler {
	return exportHandler{h.next.WithGroup(name), h.level, h.hide}
}
