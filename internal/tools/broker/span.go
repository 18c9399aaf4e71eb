package broker

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/tools"
)

// span traces the call: its tool and outcome, but neither arguments nor result.
func span(cfg Config) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		server, tool := knownNames(cfg.Catalogue, c)
		ctx, s := cfg.Tracer.Start(ctx, "tool.call", trace.WithAttributes(
			attribute.String("tool.server", server), attribute.String("tool.name", tool)))
		defer s.End()
		r, err := next(ctx, c)
		s.SetAttributes(attribute.Bool("tool.replayed", r.Replayed))
		if err != nil {
			code := "cut" // the call outlived its program, so that it has no error code
			if e, ok := errors.AsType[*Error](asError(ctx, c, err)); ok {
				code = e.Code
			}
			s.SetStatus(otelcodes.Error, code)
		}
		return r, err
	}
}

// notInCatalogue replaces the name of a tool or server that the catalogue does not have. Programs choose such names, so
// traces, logs and audit records do not contain them.
const notInCatalogue = "(unknown)"

// knownNames returns the names of a call's server and tool for a trace, log or audit record.
func knownNames(catalogue *tools.Listing, c Call) (server, tool string) {
	if t, err := catalogue.Lookup(c.Server, c.Tool); err == nil {
		return t.Server, t.Name
	}
	for _, t := range catalogue.Tools {
		if t.Server == c.Server {
			return t.Server, notInCatalogue
		}
	}
	return notInCatalogue, notInCatalogue
}
