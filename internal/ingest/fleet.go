package ingest

import (
	"context"
	"net/http"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

func (s *Server) getFleet(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	workers, err := s.o.Jobs.Workers(ctx)
	if err != nil {
		return err
	}
	backlog, err := s.o.Jobs.Backlog(ctx)
	if err != nil {
		return err
	}
	f := schemas.Fleet{Workers: []schemas.Worker{}, Backlog: []schemas.Backlog{}}
	f.Workers = append(f.Workers, workers...)
	f.Backlog = append(f.Backlog, backlog...)
	writeJSON(w, http.StatusOK, f)
	return nil
}

func (s *Server) getDead(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	dead, err := s.o.Jobs.DeadLetters(ctx, identityOf(ctx).tenant, limit)
	if err != nil {
		return err
	}
	writeList(w, dead)
	return nil
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
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	list, err := s.o.Jobs.AuditTrail(ctx, identityOf(ctx).tenant, jobs.AuditOptions{Task: task, Limit: limit})
	if err != nil {
		return err
	}
	writeList(w, list)
	return nil
}

// whoAmI is the response to GET /v1/whoami.
type whoAmI struct {
	Name   string   `json:"name"`
	Tenant string   `json:"tenant"`
	Scopes []string `json:"scopes"`
}

// getWhoAmI returns the caller, whatever its scopes.
func (s *Server) getWhoAmI(w http.ResponseWriter, r *http.Request) error {
	id := identityOf(r.Context())
	writeJSON(w, http.StatusOK, whoAmI{id.name, id.tenant, id.scopes})
	return nil
}

func (s *Server) getSchema(w http.ResponseWriter, r *http.Request) error {
	text, err := schemas.Text(r.PathValue("name"))
	if err != nil {
		e := apierror.New(errcode.UnknownSchema, "there is no such schema")
		e.Hint = "use " + schemas.TaskV1 + ", " + schemas.RecordV1 + ", " + schemas.ResultV1 + " or " +
			schemas.ProgressV1
		return e
	}
	w.Header().Set("Content-Type", "application/schema+json")
	_, _ = w.Write(text) //nolint:gosec // an embedded file, found by an exact name
	return nil
}

// healthz responds as long as the process does.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// readyz responds with 200 while requests can be served: the queue responds, and the server does not drain.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	if s.stopping.Err() != nil {
		e := apierror.New(errcode.Stopping, "this process is stopping")
		e.RetryAfter = 1
		return e
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if _, err := s.o.Jobs.Workers(ctx); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	return nil
}

func (s *Server) getMetrics(w http.ResponseWriter, r *http.Request) error {
	s.o.Metrics.ServeHTTP(w, r)
	return nil
}

// serveMCP passes a request to the MCP bridge. Its streams last for as long as their clients are connected:
// the bridge sets deadlines of its own for each read and write.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	s.o.MCP.ServeHTTP(w, r)
	return nil
}
