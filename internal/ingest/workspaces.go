package ingest

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/schemas"
)

// maxPaths is how many changed paths, and how many conflicts, a response lists.
const maxPaths = 100

// commitOf returns a commit as responses contain it.
func commitOf(c state.Commit) schemas.Commit {
	return schemas.Commit{
		Generation: c.Generation, Commit: c.ID, Time: c.Time, TaskID: c.TaskID, Attempt: c.Attempt, Message: c.Message,
		Changed: firstPaths(c.Changed), Total: len(c.Changed), Conflicts: firstPaths(c.Conflicts), NoChange: c.NoChange,
	}
}

func firstPaths(paths []string) []string {
	return append([]string{}, paths[:min(len(paths), maxPaths)]...)
}

const (
	generationHeader = "Codefleet-Generation" // a response's header with the generation
	// Headers that describe an uploaded file.
	modeHeader = "Codefleet-Mode" // permission bits in octal
	timeHeader = "Codefleet-Time" // modification time, RFC 3339
)

// refOf returns the workspace with the given name of the caller's tenant.
func refOf(r *http.Request, name string) (state.Ref, error) {
	if err := checkWorkspace("workspace", name); err != nil {
		return state.Ref{}, err
	}
	return state.Ref{Tenant: identityOf(r.Context()).tenant, Workspace: name}, nil
}

// checkWorkspace checks the name of a workspace. parameter is the name of its parameter, or points to it in the body.
func checkWorkspace(parameter, name string) error {
	err := names.Check("workspace", name)
	if err == nil {
		return nil
	}
	e := apierror.New(errcode.BadName, "the name of the workspace is invalid")
	e.Cause, e.Path = err.Error(), parameter
	e.Hint = "use at most 63 letters, digits, _ and -, as in main"
	return e
}

func unknownFile(ref state.Ref, name string) error {
	e := apierror.New(errcode.UnknownFile, "the workspace %s has no file %q", ref.Workspace, name)
	e.Hint = "list the files of the workspace"
	return e
}

// checkPath returns an error unless name is a valid path of a file in a workspace.
func checkPath(name string) error {
	if why := pathProblem(name); why != "" {
		e := apierror.New(errcode.BadPath, "the path is invalid in a workspace")
		e.Cause, e.Hint, e.Path = why, "use a relative path, as in data/in.csv", "path"
		return e
	}
	return nil
}

// pathProblem returns why a path is invalid, or "" if it is valid.
func pathProblem(name string) string {
	const maxName = 255
	switch {
	case !utf8.ValidString(name):
		return "it is not valid UTF-8"
	case !fs.ValidPath(name) || name == ".":
		return "it is empty or absolute, or contains ., .. or an empty name"
	case strings.IndexFunc(name, hidden) >= 0:
		return "it contains a control character or an invisible character"
	case slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return len(part) > maxName }):
		return "it contains a name of more than 255 bytes"
	}
	return ""
}

// hidden reports whether a character makes one name look like another: control characters, and those that
// change the direction of text or have no width.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' || r == utf8.RuneError
}

// workspaceHandler responds to a request about the workspace in its path.
type workspaceHandler func(w http.ResponseWriter, r *http.Request, ref state.Ref) error

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

// version returns the generation that text names: a number or a pin. It returns 0, the newest, for an empty text.
// name is the name of the parameter, or points to it in the body, for errors.
func (s *Server) version(ctx context.Context, ref state.Ref, name, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case err == nil && n > 0:
		return n, nil
	case err == nil:
		return 0, badParameter(name, "generations begin with 1; omit it for the newest")
	}
	pins, err := history.Pins(ctx, s.o.Workspaces.Repo(), ref)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(pins, func(p history.Pinned) bool { return p.Name == text })
	if i < 0 {
		return 0, unknownPin(name, ref)
	}
	return pins[i].Generation, nil
}

// requiredVersion is version for a parameter without a default.
func (s *Server) requiredVersion(ctx context.Context, ref state.Ref, name, text string) (int64, error) {
	if text == "" {
		return 0, badParameter(name, "it is required")
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n < 1 {
		return 0, badParameter(name, "generations begin with 1")
	}
	return s.version(ctx, ref, name, text)
}

func unknownPin(name string, ref state.Ref) error {
	e := apierror.New(errcode.UnknownPin, "the workspace %s has no such pin", ref.Workspace)
	e.Cause, e.Path = "it must be a generation or a pin", name
	return e
}

// generationOf reads ?generation=.
func (s *Server) generationOf(r *http.Request, ref state.Ref) (int64, error) {
	return s.version(r.Context(), ref, "generation", r.URL.Query().Get("generation"))
}

func (s *Server) getWorkspaces(w http.ResponseWriter, r *http.Request) error {
	list, err := history.Workspaces(r.Context(), s.o.Workspaces.Repo(), identityOf(r.Context()).tenant)
	return respondList(w, list, err)
}

func (s *Server) getWorkspace(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	info, err := history.ReadInfo(r.Context(), s.o.Workspaces.Repo(), ref)
	return respond(w, info, err)
}

func (s *Server) deleteWorkspace(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	if err := history.Delete(r.Context(), s.o.Workspaces.Repo(), ref); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readJSON reads a small JSON object, as decodeJSON does. An empty body counts as an empty object.
func readJSON[T any](s *Server, w http.ResponseWriter, r *http.Request) (v T, err error) {
	data, err := s.readJSONBody(w, r)
	if err != nil || len(data) == 0 {
		return v, err
	}
	return v, decodeJSON(data, &v)
}

// readJSONBody returns the body of a request, whose media type must be JSON unless the body is empty.
func (s *Server) readJSONBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	data, err := s.readBody(w, r)
	if ct := r.Header.Get("Content-Type"); err == nil && len(data) > 0 && !isJSON(ct) {
		err = badMediaType(ct, "the body is JSON")
	}
	return data, err
}

// storeError translates an error of the workspace store. The result wraps the original error, for the log.
func storeError(err error) error {
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
		e = apierror.New(errcode.Conflict, "a later commit changed the same files")
		e.Paths, e.Hint = conflict.Paths, "read them again, and repeat the change on the new content"
	case isQuota:
		e = apierror.New(errcode.QuotaExceeded, "the workspace would exceed its quota")
		e.Cause, e.Hint = quota.Error(), "remove files from the workspace, or ask the operator for a larger quota"
	case errors.Is(err, state.ErrQuota):
		e = apierror.New(errcode.QuotaExceeded, "the workspace would exceed a limit")
		e.Cause, e.Hint = err.Error(), "change what the cause names: no quota raises this limit"
	case isEdit:
		e = apierror.New(errcode.BadPath, "%s", edit.Error())
		e.Paths = []string{edit.Path}
	case errors.Is(err, state.ErrNotFound):
		e = apierror.New(errcode.UnknownVersion, "the version does not exist, or garbage collection has deleted it")
		e.Hint = "the log of the workspace lists the versions"
	case errors.Is(err, state.ErrDeleted):
		e = apierror.New(errcode.WorkspaceDeleted, "the workspace was deleted, or has no version with this generation")
		e.Hint = "start from its current version"
	case errors.Is(err, objects.ErrCorrupt):
		e = apierror.New(errcode.Corrupt, "the stored version is damaged")
		e.Cause = err.Error()
		e.Hint = "an operator can check and repair the workspace"
	case errors.Is(err, mirror.ErrNotConfigured):
		e = apierror.New(errcode.NoMirror, "the fleet has no mirror of workspaces")
		e.Hint = "set workspaces.mirror"
	case errors.Is(err, state.ErrKey):
		e = apierror.New(errcode.NoKey, "the workspace is encrypted with a key that the fleet does not have")
		e.Cause, e.Hint = err.Error(), "add its secret to workspaces.encryption, or to the tenant's encryption"
	case errors.Is(err, context.Canceled):
		return err
	default:
		e = apierror.New(errcode.Unavailable, "the object store does not respond")
		e.Hint = "try again"
	}
	return errors.Join(e, err)
}
