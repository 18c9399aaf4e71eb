package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
)

// tracedKey marks the context of a request whose caller sent a trace.
type tracedKey struct{}

// observe gives each request a span and a log message, and responds if the handler panics. It does not log
// queries and headers, which may contain secrets.
func (s *Server) observe(next func(*recorder, *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx = context.WithValue(ctx, tracedKey{}, trace.SpanContextFromContext(ctx).IsValid())
		ctx, span := s.o.Tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		r = r.WithContext(ctx)
		rec := &recorder{ResponseWriter: w}
		defer func() {
			s.recovered(rec, r, recover())
			s.logRequest(rec, r, time.Since(start))
			describeSpan(span, rec, r)
		}()
		next(rec, r)
	})
}

// recovered handles p, the value of a panic, or nil if there was none.
func (s *Server) recovered(w *recorder, r *http.Request, p any) {
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	s.o.Log.ErrorContext(r.Context(), "request handler panicked", "panic", fmt.Sprint(p), "stack",
		string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // a partial response must not look complete
	}
	s.fail(w, r, apierror.New(errcode.Internal, "the fleet has a bug; its log has the details"))
}

func (s *Server) logRequest(w *recorder, r *http.Request, duration time.Duration) {
	level := slog.LevelInfo
	if strings.HasPrefix(r.URL.Path, "/healthz") || strings.HasPrefix(r.URL.Path, "/readyz") ||
		r.URL.Path == "/metrics" {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", loggedPath(r.URL.Path, w.route)),
		slog.Int("status", w.status), slog.Int64("bytes", w.bytes),
		slog.Float64("ms", float64(duration.Microseconds())/1000), slog.String("remote", r.RemoteAddr),
	}
	if w.id.name != "" {
		attrs = append(attrs, slog.String("tenant", w.id.tenant), slog.String("token", w.id.name))
	}
	if w.code != "" {
		attrs = append(attrs, slog.String("code", w.code))
	}
	s.o.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// loggedPath returns the path of a request. It omits a file name at the end, which is tenant data.
func loggedPath(path, route string) string {
	before, _, ok := strings.Cut(route, "...}")
	if !ok {
		return path
	}
	name := path
	for range strings.Count(before, "/") {
		_, name, _ = strings.Cut(name, "/")
	}
	return strings.TrimSuffix(path, name) + "…"
}

func describeSpan(span trace.Span, w *recorder, r *http.Request) {
	if !span.IsRecording() {
		return
	}
	if w.route != "" {
		span.SetName(w.route)
	}
	span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("http.route", w.route),
		attribute.Int("http.response.status_code", w.status), attribute.String("codefleet.tenant", w.id.tenant))
	if w.status >= 500 {
		span.SetStatus(codes.Error, w.code)
	}
}
