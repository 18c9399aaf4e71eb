package ingest

import (
	"context"
	"errors"
	"net/http"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

func (s *Server) postWorkflowCheck(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[schemas.WorkflowRequest](s, w, r)
	if err != nil {
		return err
	}
	plan, err := engine.Compile(in.Workflow)
	if err != nil {
		return err
	}
	d := plan.Definition
	return respond(w, schemas.WorkflowCheck{Name: d.Name, Steps: len(d.Steps) + len(d.Finally)}, nil)
}

func (s *Server) postRun(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[schemas.WorkflowRequest](s, w, r)
	if err != nil {
		return err
	}
	if in.Key, err = keyOf(r, in.Key); err != nil {
		return err
	}
	for what, name := range map[string]string{"workspace": in.Workspace, "session": in.Session} {
		if name == "" {
			continue
		}
		if err := schemas.CheckName(what, name); err != nil {
			e := apierror.New(errcode.BadName, "%s", err)
			e.Path = "/" + what
			return e
		}
	}
	run, err := s.workflows.Start(r.Context(), identityOf(r.Context()).tenant, in)
	return respond(w, run, err)
}

// keyOf returns the idempotency key of a request. inBody is the one of its body, or "".
func keyOf(r *http.Request, inBody string) (string, error) {
	key, e := idempotencyKey(r.Header.Get("Idempotency-Key"), inBody)
	if e != nil {
		return "", e
	}
	return key, nil
}

func (s *Server) getRuns(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	asking, err := flagOf(r, "asking")
	if err != nil {
		return err
	}
	list := s.workflows.List
	if asking {
		list = s.workflows.ListAsking
	}
	runs, err := list(r.Context(), identityOf(r.Context()).tenant, limit)
	return respondList(w, runs, err)
}

func (s *Server) getRun(w http.ResponseWriter, r *http.Request) error {
	run, err := s.workflows.Get(r.Context(), identityOf(r.Context()).tenant, r.PathValue("run"))
	return respond(w, run, err)
}

func (s *Server) cancelRun(w http.ResponseWriter, r *http.Request) error {
	run, err := s.workflows.Cancel(r.Context(), identityOf(r.Context()).tenant, r.PathValue("run"))
	return respond(w, run, err)
}

func (s *Server) answerRun(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[schemas.WorkflowAnswer](s, w, r)
	if err != nil {
		return err
	}
	run, err := s.workflows.Answer(r.Context(), identityOf(r.Context()).tenant, r.PathValue("run"), in)
	return respond(w, run, err)
}

func (s *Server) rerun(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[schemas.WorkflowRerun](s, w, r)
	if err != nil {
		return err
	}
	if in.Key, err = keyOf(r, in.Key); err != nil {
		return err
	}
	run, err := s.workflows.Rerun(r.Context(), identityOf(r.Context()).tenant, r.PathValue("run"), in, s.fork)
	return respond(w, run, err)
}

// fork creates a workspace with the files of a generation of another one, and returns its newest generation. If the
// workspace exists, an earlier call has created it.
func (s *Server) fork(ctx context.Context, tenant, from string, generation int64, to string) (int64, error) {
	if s.o.Workspaces == nil {
		return 0, apierror.New(errcode.NoWorkspaces,
			"this process has no object store, so it cannot fork the run's workspace")
	}
	ref := state.Ref{Tenant: tenant, Workspace: from}
	repo := s.o.Workspaces.Repo()
	c, err := history.Fork(ctx, repo, ref, generation, to, "run a workflow again")
	if errors.Is(err, state.ErrConflict) {
		head, _, err := repo.ReadHead(ctx, state.Ref{Tenant: tenant, Workspace: to}, "")
		return head.Generation, storeError(err)
	}
	return c.Generation, storeError(err)
}
