package ingest

import (
	"net/http"

	"github.com/codefleet/codefleet/schemas"
)

func (s *Server) postTrigger(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[schemas.TriggerSpec](s, w, r)
	if err != nil {
		return err
	}
	doc, err := s.automation.AddTrigger(r.Context(), identityOf(r.Context()).tenant, in)
	return respond(w, doc, err)
}

func (s *Server) getTriggers(w http.ResponseWriter, r *http.Request) error {
	list, err := s.automation.Triggers(r.Context(), identityOf(r.Context()).tenant)
	return respondList(w, list, err)
}

func (s *Server) getTrigger(w http.ResponseWriter, r *http.Request) error {
	doc, err := s.automation.Trigger(r.Context(), identityOf(r.Context()).tenant, r.PathValue("name"))
	return respond(w, doc, err)
}

func (s *Server) deleteTrigger(w http.ResponseWriter, r *http.Request) error {
	err := s.automation.RemoveTrigger(r.Context(), identityOf(r.Context()).tenant, r.PathValue("name"))
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// testTrigger responds with what a trigger would do with the event in the body.
func (s *Server) testTrigger(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	ev, e := decodeStructured(body)
	if e != nil {
		return e
	}
	out, err := s.automation.TestTrigger(r.Context(), identityOf(r.Context()).tenant, r.PathValue("name"), ev)
	return respond(w, out, err)
}
