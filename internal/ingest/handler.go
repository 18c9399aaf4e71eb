package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
)

// handler responds to a request, or returns an error before it has written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

// endpoint returns the route as the mux expects it: with authentication, and with its errors as responses.
func (s *Server) endpoint(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.serve(rt, w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

func (s *Server) serve(rt route, w http.ResponseWriter, r *http.Request) error {
	if rt.scope == public {
		return rt.handle(w, r)
	}
	id, e := s.authenticate(r)
	if e != nil {
		return e
	}
	if rec, ok := w.(*recorder); ok {
		rec.id = id
	}
	if e := permit(id, rt.scope); e != nil {
		return e
	}
	return rt.handle(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
}

// store returns a handler of the workspace store, whose errors it translates.
func (s *Server) store(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if s.o.Workspaces == nil {
			e := apierror.New(errcode.NoWorkspaces, "this process has no object store")
			e.Hint = "set s3.endpoint and its credentials"
			return e
		}
		return storeError(h(w, r))
	}
}

// fail responds with an error. It logs errors that the caller may not see in full.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := apierror.Of(err)
	if e.Status >= 500 && r.Context().Err() == nil { // otherwise the caller has disconnected
		s.o.Log.WarnContext(r.Context(), "request failed", "code", e.Code, "error", err.Error())
	}
	h := w.Header()
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="codefleet"`)
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	if rec, ok := w.(*recorder); ok {
		rec.code = e.Code
	}
	writeJSON(w, e.Status, e)
}

// writeJSON writes v as the whole response. An error means that the caller has disconnected.
func writeJSON(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// writeList writes an array item by item, so that a long one is not in memory twice.
func writeList[T any](w http.ResponseWriter, items []T) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	separator := "["
	for _, item := range items {
		_, err := w.Write([]byte(separator))
		if errors.Join(err, enc.Encode(item)) != nil {
			return // the caller has disconnected
		}
		separator = ","
	}
	if len(items) == 0 {
		_, _ = w.Write([]byte("["))
	}
	_, _ = w.Write([]byte("]\n"))
}
