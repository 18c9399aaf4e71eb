package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/codefleet/codefleet/internal/refusal"
	"github.com/codefleet/codefleet/internal/state"
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
				e := refusal.New(http.StatusNotImplemented, "no_workspaces", "this door has no object store behind it")
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
	if err := state.CheckName(name); err != nil {
		e := refusal.New(http.StatusBadRequest, "bad_name", "this is not the name of a workspace")
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
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	pins, err := s.o.Workspaces.Pins(ctx, ref)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(pins, func(p state.Pinned) bool { return p.Name == text })
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
	list, err := s.o.Workspaces.Workspaces(r.Context(), identityOf(r.Context()).tenant)
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
	info, err := s.o.Workspaces.Info(r.Context(), ref)
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
	if err := s.o.Workspaces.Delete(r.Context(), ref); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) getLog(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	log, err := s.o.Workspaces.Log(r.Context(), ref, limit)
	if err != nil {
		return err
	}
	list := make([]commit, len(log))
	for i, c := range log {
		list[i] = commitOf(c)
	}
	writeList(w, list)
	return nil
}

func (s *Server) getDiff(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	q := r.URL.Query()
	if q.Get("from") == "" {
		return badParameter("from", "it is missing")
	}
	from, err1 := s.version(r.Context(), ref, "from", q.Get("from"))
	to, err2 := s.version(r.Context(), ref, "to", q.Get("to"))
	if err := errors.Join(err1, err2); err != nil {
		return cmp.Or(err1, err2)
	}
	list, err := s.o.Workspaces.Diff(r.Context(), ref, from, to)
	if err != nil {
		return err
	}
	writeList(w, list)
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

// generation is a version in a body: a number, or a string that is a number or a pin.
type generation string

func (g *generation) UnmarshalJSON(data []byte) error {
	var n json.Number
	if json.Unmarshal(data, &n) == nil {
		*g = generation(n)
		return nil
	}
	return json.Unmarshal(data, (*string)(g))
}

// change is what a request says that makes one version out of another.
type change struct {
	Generation generation `json:"generation"`
	To         string     `json:"to"`
	Message    string     `json:"message"`
}

const maxMessage = 1000

func checkMessage(m string) error {
	if len(m) > maxMessage {
		return badParameter("message", "it is longer than 1000 bytes")
	}
	return nil
}

func (s *Server) changeOf(w http.ResponseWriter, r *http.Request) (state.Ref, change, int64, error) {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return ref, change{}, 0, err
	}
	c, err := body[change](s, w, r)
	if err != nil {
		return ref, c, 0, err
	}
	if err := checkMessage(c.Message); err != nil {
		return ref, c, 0, err
	}
	g, err := s.version(r.Context(), ref, "generation", string(c.Generation))
	return ref, c, g, err
}

func (s *Server) postRestore(w http.ResponseWriter, r *http.Request) error {
	ref, c, g, err := s.changeOf(w, r)
	if err != nil {
		return err
	}
	if g == 0 {
		return badParameter("generation", "it is missing")
	}
	done, err := s.o.Workspaces.Restore(r.Context(), ref, g, cmp.Or(c.Message, "restore "+strconv.FormatInt(g, 10)))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, commitOf(done))
	return nil
}

func (s *Server) postFork(w http.ResponseWriter, r *http.Request) error {
	ref, c, g, err := s.changeOf(w, r)
	if err != nil {
		return err
	}
	if _, err := refOf(r, c.To); err != nil {
		return err
	}
	done, err := s.o.Workspaces.Fork(r.Context(), ref, g, c.To, cmp.Or(c.Message, "fork of "+ref.Workspace))
	if errors.Is(err, state.ErrConflict) {
		e := refusal.New(http.StatusConflict, "workspace_exists", "there is a workspace %s already", c.To)
		e.Hint = "choose another name, or remove that one"
		return e
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, commitOf(done))
	return nil
}

func (s *Server) getPins(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	pins, err := s.o.Workspaces.Pins(r.Context(), ref)
	if err != nil {
		return err
	}
	writeList(w, pins)
	return nil
}

func (s *Server) pinOf(w http.ResponseWriter, r *http.Request) (state.Ref, string, int64, error) {
	name := r.PathValue("pin")
	if _, err := strconv.Atoi(name); err == nil || state.CheckName(name) != nil {
		return state.Ref{}, "", 0, badParameter("pin", "a pin's name has lower-case letters, digits and -, and is no number")
	}
	ref, _, g, err := s.changeOf(w, r)
	return ref, name, g, err
}

func (s *Server) putPin(w http.ResponseWriter, r *http.Request) error {
	ref, name, g, err := s.pinOf(w, r)
	if err != nil {
		return err
	}
	if g == 0 { // named, so that the answer is true
		info, err := s.o.Workspaces.Info(r.Context(), ref)
		if err != nil {
			return err
		}
		g = info.Generation
	}
	if err := s.o.Workspaces.Pin(r.Context(), ref, name, g); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, state.Pinned{Name: name, Generation: g})
	return nil
}

func (s *Server) deletePin(w http.ResponseWriter, r *http.Request) error {
	ref, name, _, err := s.pinOf(w, r)
	if err != nil {
		return err
	}
	if err := s.o.Workspaces.Unpin(r.Context(), ref, name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// explainState makes refusals of errors of package state.
func explainState(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*refusal.Error](err); ok {
		return err
	}
	var e *refusal.Error
	conflict, isConflict := errors.AsType[*state.ConflictError](err)
	quota, isQuota := errors.AsType[*state.QuotaError](err)
	edit, isEdit := errors.AsType[*state.EditError](err)
	switch {
	case isConflict:
		e = refusal.New(http.StatusConflict, "conflict", "others have changed the same files meanwhile")
		e.Paths, e.Hint = conflict.Paths, "read them again, and then make the change to what is there now"
	case isQuota:
		e = refusal.New(http.StatusRequestEntityTooLarge, "quota_exceeded", "the workspace would be larger than allowed")
		e.Cause, e.Hint = quota.Error(), "remove files from the workspace, or ask for a larger quota"
	case isEdit:
		e = refusal.New(http.StatusBadRequest, "bad_path", "%s", edit.Error())
		e.Paths = []string{edit.Path}
	case errors.Is(err, state.ErrNotFound):
		e = refusal.New(http.StatusNotFound, "unknown_version", "the workspace has no such version, or it is no longer kept")
		e.Hint = "the log lists the versions that are kept"
	case errors.Is(err, state.ErrDeleted):
		e = refusal.New(http.StatusConflict, "workspace_deleted", "the workspace was deleted, or begun anew, meanwhile")
		e.Hint = "begin with what is there now"
	case errors.Is(err, state.ErrCorrupt):
		e = refusal.New(http.StatusInternalServerError, "corrupt", "the stored version is damaged")
		e.Cause, e.Hint = err.Error(), "codefleet workspace check says what is damaged, codefleet workspace repair makes it readable again"
	case errors.Is(err, state.ErrNoMirror):
		e = refusal.New(http.StatusNotFound, "no_mirror", "the fleet keeps no mirror of workspaces")
		e.Hint = "set workspaces.mirror"
	case errors.Is(err, state.ErrKey):
		e = refusal.New(http.StatusInternalServerError, "no_key", "the workspace is encrypted with a key that the fleet does not have")
		e.Cause, e.Hint = err.Error(), "give its secret in workspaces.encryption, or in the tenant's encryption"
	case errors.Is(err, context.Canceled):
		return err
	default:
		e = refusal.New(http.StatusServiceUnavailable, "unavailable", "the object store did not answer")
		e.Hint, e.RetryAfter = "try again", 1
	}
	return errors.Join(e, err) // the log has the whole of it
}
