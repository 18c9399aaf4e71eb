package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/state"
)

// handler responds to a request, or returns an error before it has written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

// workspaceHandler responds to a request about the workspace in its path.
type workspaceHandler func(w http.ResponseWriter, r *http.Request, ref state.Ref) error

// endpoint returns the route as an http.Handler that authenticates requests and responds with errors.
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

// queue returns a handler whose requests end after QueueTime.
func (s *Server) queue(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
		defer cancel()
		return h(w, r.WithContext(ctx))
	}
}

// store returns a handler that uses the workspace store. It translates the store's errors.
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

// workspace returns a handler of requests about one workspace.
func (s *Server) workspace(h workspaceHandler) handler {
	return s.store(func(w http.ResponseWriter, r *http.Request) error {
		ref, err := refOf(r, r.PathValue("workspace"))
		if err != nil {
			return err
		}
		return h(w, r, ref)
	})
}

// fail responds with an error. It logs server errors, whose details the caller may not see.
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

// respond writes v as the whole response, unless err is not nil.
func respond(w http.ResponseWriter, v any, err error) error {
	if err == nil {
		writeJSON(w, http.StatusOK, v)
	}
	return err
}

// writeJSON writes v as the whole response. It ignores errors of writing: the caller has disconnected.
func writeJSON(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// respondList writes a JSON array as the whole response, unless err is not nil. It writes item by item, so that a
// long list is not in memory twice.
func respondList[T any](w http.ResponseWriter, items []T, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	separator := "["
	for _, item := range items {
		_, err := w.Write([]byte(separator))
		if errors.Join(err, enc.Encode(item)) != nil {
			return nil // the caller has disconnected
		}
		separator = ","
	}
	if len(items) == 0 {
		_, _ = w.Write([]byte("["))
	}
	_, _ = w.Write([]byte("]\n"))
	return nil
}
