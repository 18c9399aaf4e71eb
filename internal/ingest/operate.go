package ingest

import (
	"net/http"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

// pauseIn is the body of POST /v1/pause and POST /v1/resume.
type pauseIn struct {
	Target string `json:"target"` // fleet, pool/NAME or tenant/NAME
	Reason string `json:"reason,omitempty"`
}

// resumed is the response of POST /v1/resume.
type resumed struct {
	Target string `json:"target"`
	Was    bool   `json:"was_paused"`
}

func (s *Server) getPauses(w http.ResponseWriter, r *http.Request) error {
	list, err := s.o.Jobs.Pauses(r.Context())
	return respondList(w, list, err)
}

func (s *Server) postPause(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[pauseIn](s, w, r)
	if err != nil {
		return err
	}
	p := schemas.Pause{Target: in.Target, Reason: in.Reason, By: identityOf(r.Context()).name}
	p, err = s.o.Jobs.Pause(r.Context(), p)
	return respond(w, p, err)
}

func (s *Server) postResume(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[pauseIn](s, w, r)
	if err != nil {
		return err
	}
	was, err := s.o.Jobs.Resume(r.Context(), in.Target)
	return respond(w, resumed{Target: in.Target, Was: was}, err)
}

func (s *Server) getAllLimits(w http.ResponseWriter, r *http.Request) error {
	list, err := s.o.Jobs.AllLimits(r.Context())
	return respondList(w, list, err)
}

func (s *Server) getLimits(w http.ResponseWriter, r *http.Request) error {
	info, err := s.o.Jobs.Limits(r.Context(), r.PathValue("tenant"))
	return respond(w, info, err)
}

func (s *Server) putLimits(w http.ResponseWriter, r *http.Request) error {
	set, err := readJSON[schemas.TenantLimits](s, w, r)
	if err != nil {
		return err
	}
	info, err := s.o.Jobs.SetLimits(r.Context(), r.PathValue("tenant"), set)
	return respond(w, info, err)
}

func (s *Server) getWhy(w http.ResponseWriter, r *http.Request) error {
	if !names.IsTaskID(r.PathValue("id")) {
		return jobs.ErrUnknownTask
	}
	why, err := s.o.Jobs.Why(r.Context(), identityOf(r.Context()).tenant, r.PathValue("id"))
	return respond(w, why, err)
}
