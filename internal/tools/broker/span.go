package broker

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/text"
)

// span traces the call: its tool and outcome, but neither arguments nor result.
func span(cfg Config) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		ctx, s := cfg.Tracer.Start(ctx, "tool.call", trace.WithAttributes(
			attribute.String("tool.server", text.Printable(c.Server)),
			attribute.String("tool.name", text.Printable(c.Tool))))
		defer s.End()
		r, err := next(ctx, c)
		s.SetAttributes(attribute.Bool("tool.replayed", r.Replayed))
		if err != nil {
			code := "cut"
			if e, ok := errors.AsType[*Error](asError(ctx, c, err)); ok {
				code = e.Code
			}
			s.SetStatus(otelcodes.Error, code)
		}
		return r, err
	}
}
