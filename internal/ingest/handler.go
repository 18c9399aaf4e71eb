package ingest

import (
	"context"
	"net/http"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
)

// endpoint returns the route as an http.Handler that authenticates requests and responds with errors.
func (s *Server) endpoint(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.serve(rt, w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// serve authenticates a request, checks it, and passes it to the route's handler.
func (s *Server) serve(rt route, w http.ResponseWriter, r *http.Request) error {
	if rt.scope != public || rt.pattern == readyPattern {
		if err := s.checkJoined(); err != nil {
			return err
		}
	}
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
	if err := rt.refuseUnread(w, r); err != nil {
		return err
	}
	ctx := context.WithValue(r.Context(), identityKey{}, id)
	if id.life != nil { // streams end with the token
		bound, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(id.life, cancel)()
		ctx = bound
	}
	return rt.handle(w, r.WithContext(ctx))
}

// taskHandler responds to a request about one task.
type taskHandler func(w http.ResponseWriter, r *http.Request, tenant, id string) error

// task returns a handler of requests about the task whose id is in the path. They end after QueueTime.
func (s *Server) task(h taskHandler) handler {
	return s.withQueueTime(func(w http.ResponseWriter, r *http.Request) error {
		id := r.PathValue("id")
		if !names.IsTaskID(id) {
			return jobs.ErrUnknownTask
		}
		return h(w, r, identityOf(r.Context()).tenant, id)
	})
}

// withQueueTime returns a handler whose requests end after QueueTime.
func (s *Server) withQueueTime(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
		defer cancel()
		return h(w, r.WithContext(ctx))
	}
}
