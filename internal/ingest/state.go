package ingest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/statedoc"
	"github.com/codefleet/codefleet/internal/text"
)

// stateDoc returns the workspace and the name of the state document that a request is for. The workspace is
// ?workspace=, by default main. The name is the file in the path, by default Options.State.File.
func (s *Server) stateDoc(r *http.Request) (state.Ref, string, error) {
	ref, err := refOf(r, cmp.Or(r.URL.Query().Get("workspace"), "main"))
	if err == nil && s.o.State.Disabled {
		err = apierror.New(errcode.StateDisabled, "the operator has disabled state documents")
	}
	if err != nil {
		return ref, "", err
	}
	name := cmp.Or(r.PathValue("file"), s.o.State.File)
	if err := statedoc.CheckName(name); err != nil {
		e := apierror.New(errcode.BadStateFile, "the name of the state document is invalid")
		e.Cause, e.Path = err.Error(), "file"
		e.Hint = "use NAME.json or NAME.yaml, at the top of the workspace or below state/"
		return ref, name, e
	}
	return ref, name, nil
}

// getState sends a state document. It sends a YAML document as JSON if the request accepts JSON.
func (s *Server) getState(w http.ResponseWriter, r *http.Request) error {
	ref, name, err := s.stateDoc(r)
	if err != nil {
		return err
	}
	f, info, err := history.Open(r.Context(), s.o.Workspaces.Repo(), ref, 0, name)
	if errors.Is(err, history.ErrLink) {
		return damagedState(name, errors.New("it is a link, not a file"))
	}
	if errors.Is(err, state.ErrNotFound) {
		e := apierror.New(errcode.UnknownState, "the workspace %s has no state document %s", ref.Workspace, name)
		e.Hint = "write it with PUT"
		return e
	}
	if err != nil {
		return err
	}
	if info.Bytes > statedoc.MaxSize {
		return stateTooLarge(info.Bytes)
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Codefleet-State-File", name)
	h.Set("ETag", strconv.Quote(info.ETag))
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept") // both forms have the document's ETag, which PUT accepts
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Content-Type", "application/json")
	if r.Header.Get("If-None-Match") == h.Get("ETag") {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if statedoc.IsYAML(name) && !strings.Contains(r.Header.Get("Accept"), "json") {
		h.Set("Content-Type", "application/yaml")
	} else if content, err = statedoc.ToJSON(name, content); err != nil {
		return damagedState(name, err)
	}
	_, _ = w.Write(content) //nolint:gosec // not HTML, and nosniff
	return nil
}

func damagedState(name string, cause error) error {
	e := apierror.New(errcode.BadState, "the state document %s is damaged", name)
	e.Status, e.Cause = http.StatusConflict, cause.Error()
	e.Hint = "a task may have written it (the log of the workspace lists the commits); replace it"
	return e
}

func stateTooLarge(size int64) error {
	e := apierror.New(errcode.TooLarge, "the state document is %d bytes; the limit is %d", size, statedoc.MaxSize)
	e.Hint = "put large data into files of the workspace, and their names into the document"
	return e
}

// savedState is the response to PUT /v1/state.
type savedState struct {
	File       string `json:"file"`
	Workspace  string `json:"workspace"`
	Generation int64  `json:"generation"`
	ETag       string `json:"etag"`
}

// putState replaces a state document. The body is a JSON object; for a YAML document it may be YAML.
func (s *Server) putState(w http.ResponseWriter, r *http.Request) error {
	ref, name, err := s.stateDoc(r)
	if err != nil {
		return err
	}
	e := state.Edit{Path: name, Kind: state.File}
	if err := conditions(r, &e); err != nil {
		return err
	}
	data, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	if len(data) > statedoc.MaxSize {
		return stateTooLarge(int64(len(data)))
	}
	if data, err = decodeState(r.Header.Get("Content-Type"), name, data); err != nil {
		return err
	}
	if len(data) > statedoc.MaxSize { // decodeState indents it
		return stateTooLarge(int64(len(data)))
	}
	e.Content = bytes.NewReader(data)
	o := state.EditOptions{Base: state.Newest, Message: "state " + name}
	result, err := s.o.Workspaces.Edit(r.Context(), ref, o, singleEdit(e))
	if err != nil {
		return s.stateConflict(r, ref, conditionError(err, e), e)
	}
	hash := objects.Sum(data).String() // a document is stored as one blob, whose hash is its ETag
	w.Header().Set("ETag", strconv.Quote(hash))
	return respond(w, savedState{name, ref.Workspace, result.Generation, hash}, nil)
}

// stateConflict replaces the error of an unmet condition with one that names both versions. It returns other errors
// unchanged.
func (s *Server) stateConflict(r *http.Request, ref state.Ref, err error, e state.Edit) error {
	if unmet, ok := errors.AsType[*apierror.Error](err); !ok || unmet.Code != errcode.PreconditionFailed {
		return err
	}
	current := "none, because it does not exist"
	_, info, err := history.Open(r.Context(), s.o.Workspaces.Repo(), ref, 0, e.Path)
	switch {
	case err == nil:
		current = info.ETag
	case errors.Is(err, history.ErrLink):
		current = "a link"
	case !errors.Is(err, state.ErrNotFound):
		return err
	}
	named := "version " + strconv.Quote(text.Truncate(e.IfMatch, 100))
	if e.IfNoneMatch != "" {
		named = "no version: it is to be created"
	}
	c := apierror.New(errcode.StateConflict, "the state document %s has changed", e.Path)
	c.Cause = fmt.Sprintf("the request names %s; the current version is %s", named, current)
	c.Paths, c.Hint = []string{e.Path}, "read the document again, and repeat the change on its current version"
	return c
}

// decodeState returns the content to store for a request body.
func decodeState(contentType, name string, data []byte) ([]byte, error) {
	var err error
	media, _, _ := mime.ParseMediaType(contentType)
	switch {
	case isJSON(contentType):
		data, err = statedoc.FromJSON(name, data)
	case statedoc.IsYAML(name) && strings.Contains(media, "yaml"):
		err = statedoc.CheckYAML(data)
	default:
		return nil, badMediaType(contentType, "send JSON, or YAML if the document's name ends in .yaml or .yml")
	}
	if err != nil {
		e := apierror.New(errcode.BadState, "the content of %s is invalid", name)
		e.Cause = err.Error()
		return nil, e
	}
	return data, nil
}
