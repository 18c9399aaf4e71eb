package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
)

// handler answers a request, or returns an error before it has written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

// open is a handler for everybody.
func (s *Server) open(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// needs is a handler for those whose token has the scope.
func (s *Server) needs(scope string, h handler) http.Handler {
	return s.open(func(w http.ResponseWriter, r *http.Request) error {
		id, e := s.authenticate(r)
		if e != nil {
			return e
		}
		if e := permit(id, scope); e != nil {
			return e
		}
		if v := visitOf(r.Context()); v != nil {
			v.id = id
		}
		return h(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
	})
}

// fail answers with an error. What the queue did not explain is logged; the caller does not see it.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := apierror.Of(err)
	if e.Status >= 500 && r.Context().Err() == nil { // else nobody is there to hear the answer
		s.o.Log.WarnContext(r.Context(), "request not answered", "code", e.Code, "error", err.Error())
	}
	h := w.Header()
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="codefleet"`)
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	if v := visitOf(r.Context()); v != nil {
		v.code = e.Code
	}
	writeJSON(w, e.Status, e)
}

// writeJSON writes v as the whole answer. Nothing can be said to a caller who does not take it.
func writeJSON(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// route is the mux with errors in our shape, and without its redirects.
func (s *Server) route(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if clean := path.Clean(r.URL.Path); clean != r.URL.Path && clean+"/" != r.URL.Path {
			s.fail(w, r, apierror.New(errcode.NotFound, "there is nothing at this address"))
			return
		}
		h, pattern := mux.Handler(r)
		if pattern != "" {
			if v := visitOf(r.Context()); v != nil {
				v.route = pattern
			}
			mux.ServeHTTP(w, r)
			return
		}
		said := &deafWriter{header: http.Header{}}
		h.ServeHTTP(said, r)
		if said.status == http.StatusMethodNotAllowed {
			allow := said.header.Get("Allow")
			w.Header().Set("Allow", allow)
			e := apierror.New(errcode.MethodNotAllowed, "this address does not take %s", r.Method)
			e.Hint = "it takes " + allow
			s.fail(w, r, e)
			return
		}
		s.fail(w, r, apierror.New(errcode.NotFound, "there is nothing at this address"))
	})
}

// guard refuses what a hostile web page could send through a browser, and bounds time and size.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Deadlines are not supported by every ResponseWriter; without them nothing is lost.
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(time.Now().Add(s.o.Limits.Wait + s.o.Limits.BodyTime))
		if r.ContentLength != 0 { // even of a request that is refused, the server reads some more
			_ = rc.SetReadDeadline(time.Now().Add(s.o.Limits.BodyTime))
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !s.allowedHost(r.Host) {
			e := apierror.New(errcode.HostRefused, "the Host header names another server")
			e.Hint = "add the name to http.allowed_hosts"
			s.fail(w, r, e)
			return
		}
		if o := r.Header.Get("Origin"); o != "" && !slices.Contains(s.o.Access.Origins, o) && o != "http://"+r.Host && o != "https://"+r.Host {
			e := apierror.New(errcode.OriginRefused, "pages of this origin may not call")
			e.Hint = "add the origin to http.allowed_origins"
			s.fail(w, r, e)
			return
		}
		limit := s.o.Limits.Body
		if isUpload(r) {
			limit = s.o.Limits.Upload
		}
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		next.ServeHTTP(w, r)
	})
}

// visit is what the log wants to know of a request, filled in on the way.
type visit struct {
	id          identity
	route, code string
	traced      bool // the caller sent a trace
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// observe gives each request its span, its line in the log, and an answer when a handler panics.
// Addresses are logged without their query, and headers not at all: they may hold secrets.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		v := &visit{traced: trace.SpanContextFromContext(ctx).IsValid()}
		ctx, span := s.o.Tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		r = r.WithContext(context.WithValue(ctx, visitKey{}, v))
		cw := &countingWriter{ResponseWriter: w}
		defer func() {
			s.recovered(cw, r, recover())
			s.logVisit(r, v, cw, time.Since(start))
			describe(span, r, v, cw)
		}()
		next.ServeHTTP(cw, r)
	})
}

func (s *Server) recovered(w *countingWriter, r *http.Request, p any) {
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	s.o.Log.ErrorContext(r.Context(), "request handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	s.fail(w, r, apierror.New(errcode.Internal, "this is a bug of the fleet"))
}

func (s *Server) logVisit(r *http.Request, v *visit, w *countingWriter, took time.Duration) {
	level := slog.LevelInfo
	if strings.HasPrefix(r.URL.Path, "/healthz") || strings.HasPrefix(r.URL.Path, "/readyz") || r.URL.Path == "/metrics" {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", loggedPath(r.URL.Path, v.route)), slog.Int("status", w.status),
		slog.Int64("bytes", w.bytes), slog.Float64("ms", float64(took.Microseconds())/1000), slog.String("remote", r.RemoteAddr),
	}
	if v.id.name != "" {
		attrs = append(attrs, slog.String("tenant", v.id.tenant), slog.String("token", v.id.name))
	}
	if v.code != "" {
		attrs = append(attrs, slog.String("code", v.code))
	}
	s.o.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// loggedPath is the path of a request without the name of a file at its end, which is the tenant's.
func loggedPath(path, route string) string {
	before, _, ok := strings.Cut(route, "...}")
	if !ok {
		return path
	}
	own := path
	for range strings.Count(before, "/") {
		_, own, _ = strings.Cut(own, "/")
	}
	return strings.TrimSuffix(path, own) + "…"
}

func describe(span trace.Span, r *http.Request, v *visit, w *countingWriter) {
	if !span.IsRecording() {
		return
	}
	if v.route != "" {
		span.SetName(v.route)
	}
	span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("http.route", v.route),
		attribute.Int("http.response.status_code", w.status), attribute.String("codefleet.tenant", v.id.tenant))
	if w.status >= 500 {
		span.SetStatus(codes.Error, v.code)
	}
}

// countingWriter remembers what was answered.
type countingWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// Unwrap lets http.ResponseController reach what the server's own writer can do.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *countingWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *countingWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// deafWriter hears the status and the header of an answer only.
type deafWriter struct {
	header http.Header
	status int
}

func (w *deafWriter) Header() http.Header         { return w.header }
func (w *deafWriter) WriteHeader(status int)      { w.status = status }
func (w *deafWriter) Write(b []byte) (int, error) { return len(b), nil }
