package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/mirror"
)

// workspaceRoutes are the files of a tenant's workspaces and their history. A version is named by its
// generation or by a pin: ?generation=12, ?generation=release-1; the newest without.
//
//	GET    /v1/workspaces                            those that there are
//	GET    /v1/workspaces/{w}                        generation, files, bytes
//	DELETE /v1/workspaces/{w}                        removes it with its history
//	GET    /v1/workspaces/{w}/log?limit=             commits, the newest first
//	GET    /v1/workspaces/{w}/diff?from=&to=         paths that differ
//	POST   /v1/workspaces/{w}/restore                {generation, message}
//	POST   /v1/workspaces/{w}/fork                   {to, generation, message}
//	POST   /v1/workspaces/{w}/check                  {read_data, part, of}
//	POST   /v1/workspaces/{w}/repair                 {read_data, dry_run}
//	POST   /v1/workspaces/{w}/mirror
//	GET    /v1/workspaces/{w}/pins                   versions that are kept for good
//	PUT    /v1/workspaces/{w}/pins/{pin}             {generation}; DELETE lets go
//	GET    /v1/workspaces/{w}/files?dir=             paths of a version
//	POST   /v1/workspaces/{w}/files?base=            changes many in one commit: see upload.go
//	GET    /v1/workspaces/{w}/files/{path}           one file; Range, If-None-Match
//	PUT    /v1/workspaces/{w}/files/{path}           If-Match, If-None-Match: *
//	DELETE /v1/workspaces/{w}/files/{path}           If-Match; with all below
//	GET    /v1/workspaces/{w}/archive?format=&dir=   zip or tar; POST {paths, generation}: tar of these
//	GET    /v1/state/{file}?workspace=               a state file: see state.go
//	PUT    /v1/state/{file}?workspace=               If-Match, If-None-Match: *
func (s *Server) workspaceRoutes(mux *http.ServeMux) {
	handle := func(pattern, scope string, h handler) {
		mux.Handle(pattern, s.needs(scope, func(w http.ResponseWriter, r *http.Request) error {
			if s.o.Workspaces == nil {
				e := apierror.New(errcode.NoWorkspaces, "this door has no object store behind it")
				e.Hint = "give it s3.endpoint and its credentials"
				return e
			}
			return explainState(h(w, r))
		}))
	}
	const ws = "/v1/workspaces/{workspace}"
	handle("GET /v1/workspaces", ScopeRead, s.getWorkspaces)
	handle("GET "+ws, ScopeRead, s.getWorkspace)
	handle("DELETE "+ws, ScopeSubmit, s.deleteWorkspace)
	handle("GET "+ws+"/log", ScopeRead, s.getLog)
	handle("GET "+ws+"/diff", ScopeRead, s.getDiff)
	handle("POST "+ws+"/restore", ScopeSubmit, s.postRestore)
	handle("POST "+ws+"/fork", ScopeSubmit, s.postFork)
	handle("POST "+ws+"/check", ScopeRead, s.postCheck)
	handle("POST "+ws+"/repair", ScopeSubmit, s.postRepair)
	handle("POST "+ws+"/mirror", ScopeSubmit, s.postMirror)
	handle("GET "+ws+"/pins", ScopeRead, s.getPins)
	handle("PUT "+ws+"/pins/{pin}", ScopeSubmit, s.putPin)
	handle("DELETE "+ws+"/pins/{pin}", ScopeSubmit, s.deletePin)
	handle("GET "+ws+"/files", ScopeRead, s.getFiles)
	handle("POST "+ws+"/files", ScopeSubmit, s.postFiles)
	handle("GET "+ws+"/files/{path...}", ScopeRead, s.getFile)
	handle("PUT "+ws+"/files/{path...}", ScopeSubmit, s.putFile)
	handle("DELETE "+ws+"/files/{path...}", ScopeSubmit, s.deleteFile)
	handle("GET "+ws+"/archive", ScopeRead, s.getArchive)
	handle("POST "+ws+"/archive", ScopeRead, s.postArchive)
	handle("GET /v1/state", ScopeRead, s.getState)
	handle("PUT /v1/state", ScopeSubmit, s.putState)
	handle("GET /v1/state/{file...}", ScopeRead, s.getState)
	handle("PUT /v1/state/{file...}", ScopeSubmit, s.putState)
}

// commit is a commit as the answers show it.
type commit struct {
	Generation int64     `json:"generation"`
	Commit     string    `json:"commit"`
	Time       time.Time `json:"time"`
	TaskID     string    `json:"task_id,omitempty"` // empty: it was no task
	Attempt    int       `json:"attempt,omitempty"`
	Message    string    `json:"message,omitempty"`
	Changed    []string  `json:"changed"`       // at most shownPaths of them
	Total      int       `json:"changed_total"` // how many paths it changed
	Conflicts  []string  `json:"conflicts"`     // paths that two tasks changed and that are there twice
	NoChange   bool      `json:"no_change"`     // nothing was to be done, and no commit was made
}

const shownPaths = 100

func commitOf(c state.Commit) commit {
	return commit{
		Generation: c.Generation, Commit: c.ID, Time: c.Time, TaskID: c.TaskID, Attempt: c.Attempt, Message: c.Message,
		Changed: atMost(c.Changed), Total: len(c.Changed), Conflicts: atMost(c.Conflicts), NoChange: c.NoChange,
	}
}

func atMost(paths []string) []string {
	return append([]string{}, paths[:min(len(paths), shownPaths)]...)
}

// refOf is the workspace that a request is about: of the caller's tenant, whoever asks.
func refOf(r *http.Request, name string) (state.Ref, error) {
	if err := names.CheckSlug(name); err != nil {
		e := apierror.New(errcode.BadName, "this is not the name of a workspace")
		e.Cause, e.Path = err.Error(), "workspace"
		e.Hint = "lower-case letters, digits and -, at most 63, as in main"
		return state.Ref{}, e
	}
	return state.Ref{Tenant: identityOf(r.Context()).tenant, Workspace: name}, nil
}

// version finds the generation that text names: a number, or a pin. Empty is 0, the newest.
func (s *Server) version(ctx context.Context, ref state.Ref, parameter, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case err == nil && n > 0:
		return n, nil
	case err == nil:
		return 0, badParameter(parameter, "generations count from 1; leave it out for the newest")
	}
	pins, err := history.Pins(ctx, s.o.Workspaces.Repo(), ref)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(pins, func(p history.Pinned) bool { return p.Name == text })
	if i < 0 {
		return 0, badParameter(parameter, "it is the number of a generation, or the name of a pin")
	}
	return pins[i].Generation, nil
}

// at is the workspace and the version that a request names.
func (s *Server) at(r *http.Request) (state.Ref, int64, error) {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return ref, 0, err
	}
	generation, err := s.version(r.Context(), ref, "generation", r.URL.Query().Get("generation"))
	return ref, generation, err
}

func (s *Server) getWorkspaces(w http.ResponseWriter, r *http.Request) error {
	list, err := history.Workspaces(r.Context(), s.o.Workspaces.Repo(), identityOf(r.Context()).tenant)
	if err != nil {
		return err
	}
	writeList(w, list)
	return nil
}

func (s *Server) getWorkspace(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	info, err := history.ReadInfo(r.Context(), s.o.Workspaces.Repo(), ref)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, info)
	return nil
}

func (s *Server) deleteWorkspace(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	if err := history.Delete(r.Context(), s.o.Workspaces.Repo(), ref); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// body reads a small JSON object; an empty body is an empty object.
func body[T any](s *Server, w http.ResponseWriter, r *http.Request) (v T, err error) {
	data, err := s.readBody(w, r)
	if err != nil || len(data) == 0 {
		return v, err
	}
	if ct := r.Header.Get("Content-Type"); !isJSON(ct) {
		return v, badMediaType(ct, "it is JSON here")
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, badJSON(data, err)
	}
	return v, nil
}

// explainState makes refusals of errors of package state.
func explainState(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*apierror.Error](err); ok {
		return err
	}
	var e *apierror.Error
	conflict, isConflict := errors.AsType[*state.ConflictError](err)
	quota, isQuota := errors.AsType[*state.QuotaError](err)
	edit, isEdit := errors.AsType[*state.EditError](err)
	switch {
	case isConflict:
		e = apierror.New(errcode.Conflict, "others have changed the same files meanwhile")
		e.Paths, e.Hint = conflict.Paths, "read them again, and then make the change to what is there now"
	case isQuota:
		e = apierror.New(errcode.QuotaExceeded, "the workspace would be larger than allowed")
		e.Cause, e.Hint = quota.Error(), "remove files from the workspace, or ask for a larger quota"
	case isEdit:
		e = apierror.New(errcode.BadPath, "%s", edit.Error())
		e.Paths = []string{edit.Path}
	case errors.Is(err, state.ErrNotFound):
		e = apierror.New(errcode.UnknownVersion, "the workspace has no such version, or it is no longer kept")
		e.Hint = "the log lists the versions that are kept"
	case errors.Is(err, state.ErrDeleted):
		e = apierror.New(errcode.WorkspaceDeleted, "the workspace was deleted, or begun anew, meanwhile")
		e.Hint = "begin with what is there now"
	case errors.Is(err, objects.ErrCorrupt):
		e = apierror.New(errcode.Corrupt, "the stored version is damaged")
		e.Cause, e.Hint = err.Error(), "codefleet workspace check says what is damaged, codefleet workspace repair makes it readable again"
	case errors.Is(err, mirror.ErrNotConfigured):
		e = apierror.New(errcode.NoMirror, "the fleet keeps no mirror of workspaces")
		e.Hint = "set workspaces.mirror"
	case errors.Is(err, state.ErrKey):
		e = apierror.New(errcode.NoKey, "the workspace is encrypted with a key that the fleet does not have")
		e.Cause, e.Hint = err.Error(), "give its secret in workspaces.encryption, or in the tenant's encryption"
	case errors.Is(err, context.Canceled):
		return err
	default:
		e = apierror.New(errcode.Unavailable, "the object store did not answer")
		e.Hint, e.RetryAfter = "try again", 1
	}
	return errors.Join(e, err) // the log has the whole of it
}
