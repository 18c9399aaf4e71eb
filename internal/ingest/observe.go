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
	"github.com/codefleet/codefleet/internal/names"
)

// tracedKey is the context key of a bool: whether the caller sent a trace context.
type tracedKey struct{}

// observe gives each request a span and a log message, and responds if the handler panics. It does not log
// queries and headers, which may contain secrets.
func (s *Server) observe(next func(*recorder, *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx = context.WithValue(ctx, tracedKey{}, trace.SpanContextFromContext(ctx).IsValid())
		ctx, span := s.o.Telemetry.Tracer.Start(ctx, loggedMethod(r), trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		r = r.WithContext(ctx)
		rec := &recorder{ResponseWriter: w, rc: http.NewResponseController(w), timeout: s.o.Limits.BodyTime}
		if r.ContentLength != 0 {
			rec.bodyTime = s.o.Limits.BodyTime
		}
		defer func() { // runs also if handlePanic panics
			s.logRequest(rec, r, time.Since(start))
			describeSpan(span, rec, r)
		}()
		defer func() { s.handlePanic(rec, r, recover()) }()
		next(rec, r)
		if rec.status == 0 {
			rec.status = http.StatusOK // net/http sends it for a response without a body
		}
	})
}

// handlePanic responds to a request whose handler panicked with the value p. If a part of the response has been sent,
// it aborts the connection instead. It does nothing if p is nil.
func (s *Server) handlePanic(w *recorder, r *http.Request, p any) {
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	s.o.Telemetry.Log.ErrorContext(r.Context(), "request handler panicked", "panic", fmt.Sprint(p), "stack",
		string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // a partial response must not look complete
	}
	s.fail(w, r, apierror.New(errcode.Internal, "the fleet has a bug; its log has the details"))
}

func (s *Server) logRequest(w *recorder, r *http.Request, duration time.Duration) {
	level := slog.LevelInfo
	if strings.HasPrefix(r.URL.Path, "/health") || strings.HasPrefix(r.URL.Path, "/readyz") ||
		r.URL.Path == "/metrics" {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("method", loggedMethod(r)), slog.String("path", s.loggedPath(r, w.route, w.status)),
		slog.Int("status", w.status), slog.Int64("bytes", w.bytes),
		slog.Float64("ms", float64(duration.Microseconds())/1000), slog.String("remote", r.RemoteAddr),
	}
	if w.id.name != "" {
		attrs = append(attrs, slog.String("tenant", w.id.tenant), slog.String("token", w.id.name))
	}
	if w.code != "" {
		attrs = append(attrs, slog.String("code", w.code))
	}
	s.o.Telemetry.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// loggedMethod returns the method of a request for logs and traces. One that the fleet does not know may be any text.
// It becomes _OTHER, as OpenTelemetry's conventions want it.
func loggedMethod(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method
	}
	return "_OTHER"
}

// loggedPath returns the path of a request for the log. It has the constant segments, the ids of tasks, and, unless the
// request was refused, valid names. Other segments may be names of files, which are tenant data, and a name that the
// fleet refuses may be any text. If no route matches, only the leading segments that the path has in common with some
// route are logged.
func (s *Server) loggedPath(r *http.Request, route string, status int) string {
	segments := strings.Split(r.URL.EscapedPath(), "/")
	if route == "" {
		if n := s.constantSegments(segments); n < len(segments) {
			segments = append(segments[:n:n], "…")
		}
		return strings.Join(segments, "/")
	}
	_, pattern, _ := strings.Cut(route, "/")
	var logged strings.Builder
	for i, part := range strings.Split(strings.TrimSuffix(pattern, "{$}"), "/") {
		segment := "…"
		switch {
		case part == "" && i+1 < len(segments) && segments[i+1] == "": // the root of a subtree
			segment = ""
		case part == "", strings.HasSuffix(part, "...}"):
		case !strings.HasPrefix(part, "{"), i+1 < len(segments) && mayBeLogged(segments[i+1], status):
			segment = segments[i+1]
		}
		logged.WriteString("/" + segment)
	}
	return logged.String()
}

func mayBeLogged(name string, status int) bool {
	return names.IsTaskID(name) || status < http.StatusBadRequest && names.IsSlug(name)
}

// constantSegments returns how many leading segments a path has in common with the route that shares the most.
func (s *Server) constantSegments(segments []string) int {
	most := 0
	for _, rt := range s.routes() {
		_, path, _ := strings.Cut(rt.pattern, "/")
		parts := strings.Split("/"+path, "/")
		n := 0
		for n < min(len(parts), len(segments)) && parts[n] == segments[n] {
			n++
		}
		most = max(most, n)
	}
	return most
}

func describeSpan(span trace.Span, w *recorder, r *http.Request) {
	if !span.IsRecording() {
		return
	}
	if w.route != "" {
		span.SetName(w.route)
	}
	span.SetAttributes(attribute.String("http.request.method", loggedMethod(r)),
		attribute.String("http.route", w.route), attribute.Int("http.response.status_code", w.status),
		attribute.String("codefleet.tenant", w.id.tenant))
	if w.status >= 500 {
		span.SetStatus(codes.Error, w.code)
	}
}
