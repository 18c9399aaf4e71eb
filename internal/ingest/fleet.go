package ingest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/schemas"
)

func (s *Server) getFleet(w http.ResponseWriter, r *http.Request) error {
	workers, err := s.queue.Workers(r.Context())
	if err != nil {
		return err
	}
	backlog, err := s.queue.Backlog(r.Context())
	return respond(w, schemas.Fleet{
		Workers: append([]schemas.Worker{}, workers...), Backlog: append([]schemas.Backlog{}, backlog...),
	}, err)
}

// getDemand responds with the demand of one task pool or of all, for autoscalers. A task pool without tasks has zeros.
func (s *Server) getDemand(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	pool := q.Get("pool")
	if pool != "" && schemas.CheckPool(pool) != nil {
		return badParameter("pool", "it must be the name of a task pool")
	}
	var within time.Duration
	if v := q.Get("within"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d < time.Second || d > 24*time.Hour {
			return badParameter("within", "it must be a duration from 1s to 24h, such as 60s")
		}
		within = d
	}
	d, err := s.queue.Demand(r.Context(), pool, within)
	return respond(w, d, err)
}

func (s *Server) getDead(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	dead, err := s.queue.DeadLetters(r.Context(), identityOf(r.Context()).tenant, r.URL.Query().Get("cause"), limit)
	return respondList(w, dead, err)
}

func (s *Server) postRedrive(w http.ResponseWriter, r *http.Request, tenant, id string) error {
	rec, err := s.queue.Redrive(r.Context(), tenant, id)
	return respond(w, rec, err)
}

func (s *Server) postRedriveAll(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	var seq uint64
	if v := r.URL.Query().Get("seq"); v != "" {
		if seq, err = strconv.ParseUint(v, 10, 64); err != nil {
			return badParameter("seq", "it must be the number `next` of an earlier response")
		}
	}
	redriven, err := s.queue.RedriveAll(
		r.Context(), identityOf(r.Context()).tenant, r.URL.Query().Get("cause"), seq, limit)
	return respond(w, redriven, err)
}

func (s *Server) getAudit(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	task := r.URL.Query().Get("task")
	if task != "" && !names.IsTaskID(task) {
		return badParameter("task", "it must be a task id: 26 letters and digits")
	}
	o := jobs.AuditOptions{Task: task, Limit: limit}
	list, err := s.queue.AuditTrail(r.Context(), identityOf(r.Context()).tenant, o)
	return respondList(w, list, err)
}

// getWhoAmI responds with the caller. It requires no scope.
func (s *Server) getWhoAmI(w http.ResponseWriter, r *http.Request) error {
	id := identityOf(r.Context())
	out := schemas.Identity{Name: id.name, Tenant: id.tenant, Scopes: id.scopes}
	if s.o.Access.Privacy != nil && id.tenant != "" {
		out.Privacy = s.o.Access.Privacy(id.tenant)
	}
	return respond(w, out, nil)
}

func (s *Server) getSchema(w http.ResponseWriter, r *http.Request) error {
	text, err := schemas.Text(r.PathValue("name"))
	if err != nil {
		e := apierror.New(errcode.UnknownSchema, "unknown schema")
		e.Hint = "use " + schemas.TaskV1 + ", " + schemas.RecordV1 + ", " + schemas.ResultV1 + " or " +
			schemas.ProgressV1
		return e
	}
	w.Header().Set("Content-Type", "application/schema+json")
	_, _ = w.Write(text) //nolint:gosec // an embedded file, found by an exact name
	return nil
}

// readyPattern is the public route that a starting server refuses.
const readyPattern = "GET /readyz"

// healthz responds with 200 as long as the process responds at all.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	return respond(w, map[string]string{"status": "ok"}, nil)
}

// readyz responds with 200 while requests can be served: the queue and the object store respond, and the server is not
// draining.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	if s.stopping.Err() != nil {
		return apierror.New(errcode.Stopping, "this process is stopping")
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	err := s.queue.Ready(ctx)
	if err == nil && s.o.Workspaces != nil {
		err = storeDown(objects.Responds(ctx, s.o.Workspaces.Repo().Bucket))
	}
	return respond(w, map[string]string{"status": "ready"}, err)
}

// storeDown translates the error of an object store that does not respond.
func storeDown(err error) error {
	if err == nil {
		return nil
	}
	e := apierror.New(errcode.Unavailable, "the object store does not respond")
	e.Hint = "try again"
	return errors.Join(e, err)
}

func (s *Server) getMetrics(w http.ResponseWriter, r *http.Request) error {
	s.o.Telemetry.Metrics.ServeHTTP(w, r)
	return nil
}

// serveMCP passes a request to the MCP bridge. Its streams last for as long as their clients are connected; the
// bridge sets a deadline for reading each body, and for each write.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request) error {
	s.o.Mounted.MCP.ServeHTTP(w, r)
	return nil
}
