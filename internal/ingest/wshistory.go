package ingest

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/schemas"
)

func (s *Server) getLog(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	log, err := history.Log(r.Context(), s.o.Workspaces.Repo(), ref, limit)
	if err != nil {
		return err
	}
	list := make([]schemas.Commit, len(log))
	for i, c := range log {
		list[i] = commitOf(c)
	}
	return respondList(w, list, nil)
}

func (s *Server) getDiff(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	q := r.URL.Query()
	from, err1 := s.requiredVersion(r.Context(), ref, "from", q.Get("from"))
	to, err2 := s.version(r.Context(), ref, "to", q.Get("to"))
	if err := cmp.Or(err1, err2); err != nil {
		return err
	}
	list, err := history.Diff(r.Context(), s.o.Workspaces.Repo(), ref, from, to)
	return respondList(w, list, err)
}

// versionName names a version in a request body: a number, or a string with a number or a pin.
type versionName string

func (v *versionName) UnmarshalJSON(data []byte) error {
	var n json.Number
	if json.Unmarshal(data, &n) == nil {
		*v = versionName(n)
		return nil
	}
	return json.Unmarshal(data, (*string)(v))
}

// restoreIn is the body of POST …/restore.
type restoreIn struct {
	Generation versionName `json:"generation"`
	Message    string      `json:"message,omitempty"` // the commit's message
}

// forkIn is the body of POST …/fork.
type forkIn struct {
	Generation versionName `json:"generation,omitempty"`
	To         string      `json:"to"`                // the workspace to create
	Message    string      `json:"message,omitempty"` // the commit's message
}

// pinIn is the body of PUT …/pins/{pin}.
type pinIn struct {
	Generation versionName `json:"generation,omitempty"`
}

const maxMessage = 1000

// checkMessage checks the message of a commit. name is the name of its parameter, or points to it in the body.
func checkMessage(name, m string) error {
	if len(m) > maxMessage {
		return badParameter(name, "it is longer than 1000 bytes")
	}
	return nil
}

func (s *Server) postRestore(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	c, err := readJSON[restoreIn](s, w, r)
	if err == nil {
		err = checkMessage("/message", c.Message)
	}
	if err != nil {
		return err
	}
	g, err := s.requiredVersion(r.Context(), ref, "/generation", string(c.Generation))
	if err != nil {
		return err
	}
	result, err := history.Restore(r.Context(), s.o.Workspaces.Repo(), ref, g,
		cmp.Or(c.Message, "restore "+strconv.FormatInt(g, 10)))
	return respond(w, commitOf(result), err)
}

func (s *Server) postFork(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	c, err := readJSON[forkIn](s, w, r)
	if err == nil {
		err = checkMessage("/message", c.Message)
	}
	if err != nil {
		return err
	}
	g, err := s.version(r.Context(), ref, "/generation", string(c.Generation))
	if err != nil {
		return err
	}
	if err := checkWorkspace("/to", c.To); err != nil {
		return err
	}
	result, err := history.Fork(r.Context(), s.o.Workspaces.Repo(), ref, g, c.To,
		cmp.Or(c.Message, "fork of "+ref.Workspace))
	if errors.Is(err, state.ErrConflict) {
		e := apierror.New(errcode.WorkspaceExists, "the workspace %s already exists", c.To)
		e.Hint = "choose another name, or delete that workspace"
		return e
	}
	return respond(w, commitOf(result), err)
}

func (s *Server) getPins(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	pins, err := history.Pins(r.Context(), s.o.Workspaces.Repo(), ref)
	return respondList(w, pins, err)
}

// pinOf returns the pin in the path.
func pinOf(r *http.Request) (string, error) {
	name := r.PathValue("pin")
	if _, err := strconv.Atoi(name); err == nil || !names.IsSlug(name) {
		return "", badParameter("pin",
			"the name of a pin consists of lower-case letters, digits and -, and is not a number")
	}
	return name, nil
}

func (s *Server) putPin(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	name, err := pinOf(r)
	if err != nil {
		return err
	}
	in, err := readJSON[pinIn](s, w, r)
	if err != nil {
		return err
	}
	g, err := s.version(r.Context(), ref, "/generation", string(in.Generation))
	if err != nil {
		return err
	}
	if g == 0 { // the response names the pinned generation, and the newest one may change before Pin
		info, err := history.ReadInfo(r.Context(), s.o.Workspaces.Repo(), ref)
		if err != nil {
			return err
		}
		g = info.Generation
	}
	err = history.Pin(r.Context(), s.o.Workspaces.Repo(), ref, name, g)
	return respond(w, history.Pinned{Name: name, Generation: g}, err)
}

func (s *Server) deletePin(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	name, err := pinOf(r)
	if err != nil {
		return err
	}
	if err := history.Unpin(r.Context(), s.o.Workspaces.Repo(), ref, name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
