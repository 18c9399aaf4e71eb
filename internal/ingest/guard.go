package ingest

import (
	"net/http"
	"path"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/httpserve"
)

// guard refuses requests that a hostile web page could send through a browser. It also limits the time and the size
// of requests.
func (s *Server) guard(next func(*recorder, *http.Request)) func(*recorder, *http.Request) {
	return func(w *recorder, r *http.Request) {
		// Errors are ignored because not every ResponseWriter supports deadlines.
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(time.Time{}) // the previous request of the connection left one
		if r.ContentLength != 0 {            // net/http reads part of the body even if the request is refused
			_ = rc.SetReadDeadline(time.Now().Add(s.o.Limits.BodyTime))
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !httpserve.HostAllowed(r, s.o.Access.Hosts) {
			e := apierror.New(errcode.HostRefused, "the Host header names another server")
			e.Hint = "add the name to http.allowed_hosts"
			s.fail(w, r, e)
			return
		}
		if !httpserve.OriginAllowed(r, s.o.Access.Origins) {
			e := apierror.New(errcode.OriginRefused, "web pages of this origin may not send requests")
			e.Hint = "add the origin to http.allowed_origins"
			s.fail(w, r, e)
			return
		}
		limit := s.o.Limits.Body
		if isUpload(r) {
			limit = s.o.Limits.Upload
		}
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		next(w, r)
	}
}

// dispatch passes a request to the mux. Unlike the mux alone, it responds with API errors and never redirects.
func (s *Server) dispatch(mux *http.ServeMux) func(*recorder, *http.Request) {
	return func(w *recorder, r *http.Request) {
		if clean := path.Clean(r.URL.Path); clean != r.URL.Path && clean+"/" != r.URL.Path {
			s.fail(w, r, notFound())
			return
		}
		h, pattern := mux.Handler(r)
		if pattern != "" {
			w.route = pattern
			mux.ServeHTTP(w, r)
			return
		}
		refusal := &headerWriter{header: http.Header{}}
		h.ServeHTTP(refusal, r)
		if refusal.status != http.StatusMethodNotAllowed {
			s.fail(w, r, notFound())
			return
		}
		allow := refusal.header.Get("Allow")
		w.Header().Set("Allow", allow)
		e := apierror.New(errcode.MethodNotAllowed, "this path does not support %s", r.Method)
		e.Hint = "use " + allow
		s.fail(w, r, e)
	}
}

func notFound() error { return apierror.New(errcode.NotFound, "no resource has this path") }

// headerWriter records the status and the header of a response, and drops the body.
type headerWriter struct {
	header http.Header
	status int
}

func (w *headerWriter) Header() http.Header         { return w.header }
func (w *headerWriter) WriteHeader(status int)      { w.status = status }
func (w *headerWriter) Write(b []byte) (int, error) { return len(b), nil }
