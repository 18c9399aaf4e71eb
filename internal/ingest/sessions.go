package ingest

import (
	"errors"
	"net/http"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/schemas"
)

// getSessions lists the tenant's sessions.
func (s *Server) getSessions(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	list, err := s.queue.Sessions(r.Context(), identityOf(r.Context()).tenant, limit)
	return respondList(w, list, err)
}

// sessionName returns the session in the path.
func sessionName(r *http.Request) (string, error) {
	name := r.PathValue("session")
	if err := schemas.CheckName("session", name); err != nil {
		e := apierror.New(errcode.BadName, "the name of the session is invalid")
		e.Cause, e.Path = err.Error(), "session"
		return "", e
	}
	return name, nil
}

// getSession sends a session's log.
func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	name, err := sessionName(r)
	if err != nil {
		return err
	}
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	log, err := s.queue.Session(r.Context(), identityOf(r.Context()).tenant, name, limit)
	return respond(w, log, sessionError(name, err))
}

// postCheckpoint sets a session's checkpoint.
func (s *Server) postCheckpoint(w http.ResponseWriter, r *http.Request) error {
	name, data, err := s.sessionBody(w, r)
	if err != nil {
		return err
	}
	if err := strictjson.Check(data); err != nil {
		return badJSON(data, err)
	}
	log, err := s.queue.SaveCheckpoint(r.Context(), identityOf(r.Context()).tenant, name, data, s.o.SessionText)
	return respond(w, log, sessionError(name, err))
}

// resumption is the body of POST …/resume.
type resumption struct {
	Checkpoint uint64 `json:"checkpoint,omitempty"` // the id of a checkpoint; it becomes the newest one
}

// resumeSession sends a session's log. If the body names an earlier checkpoint, it first makes that the newest one.
func (s *Server) resumeSession(w http.ResponseWriter, r *http.Request) error {
	name, data, err := s.sessionBody(w, r)
	if err != nil {
		return err
	}
	var in resumption
	if err := decodeJSON(data, &in); err != nil {
		return err
	}
	log, err := s.queue.ResumeSession(r.Context(), identityOf(r.Context()).tenant, name, in.Checkpoint)
	return respond(w, log, sessionError(name, err))
}

// sessionBody returns the session in the path, and the JSON body.
func (s *Server) sessionBody(w http.ResponseWriter, r *http.Request) (string, []byte, error) {
	name, err := sessionName(r)
	if err != nil {
		return "", nil, err
	}
	if ct := r.Header.Get("Content-Type"); !isJSON(ct) {
		return "", nil, badMediaType(ct, "send JSON")
	}
	data, err := s.readBody(w, r)
	return name, data, err
}

func sessionError(name string, err error) error {
	switch {
	case errors.Is(err, jobs.ErrUnknownSession):
		e := apierror.New(errcode.UnknownSession, "the session %s is not known", name)
		e.Cause = "no task that named it has ended, or its log is older than 90 days"
		e.Hint = "GET /v1/sessions lists sessions; the session is known once a task that names it has ended"
		return e
	case errors.Is(err, jobs.ErrUnknownCheckpoint):
		e := apierror.New(errcode.UnknownCheckpoint, "the session %s has no such checkpoint", name)
		e.Hint = "GET /v1/sessions/" + name + " lists its newest checkpoints"
		return e
	}
	return err
}
