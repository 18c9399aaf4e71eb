package ingest

import (
	"net/http"

	"github.com/codefleet/codefleet/schemas"
)

func (s *Server) postSchedule(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[schemas.ScheduleSpec](s, w, r)
	if err != nil {
		return err
	}
	doc, err := s.automation.AddSchedule(r.Context(), identityOf(r.Context()).tenant, in)
	return respond(w, doc, err)
}

func (s *Server) getSchedules(w http.ResponseWriter, r *http.Request) error {
	list, err := s.automation.Schedules(r.Context(), identityOf(r.Context()).tenant)
	return respondList(w, list, err)
}

func (s *Server) getSchedule(w http.ResponseWriter, r *http.Request) error {
	doc, err := s.automation.Schedule(r.Context(), identityOf(r.Context()).tenant, r.PathValue("name"))
	return respond(w, doc, err)
}

func (s *Server) deleteSchedule(w http.ResponseWriter, r *http.Request) error {
	err := s.automation.RemoveSchedule(r.Context(), identityOf(r.Context()).tenant, r.PathValue("name"))
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// pauseSchedule returns the handler that pauses or resumes a schedule.
func (s *Server) pauseSchedule(paused bool) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		tenant, name := identityOf(r.Context()).tenant, r.PathValue("name")
		doc, err := s.automation.PauseSchedule(r.Context(), tenant, name, paused)
		return respond(w, doc, err)
	}
}

func (s *Server) runSchedule(w http.ResponseWriter, r *http.Request) error {
	rec, err := s.automation.RunSchedule(r.Context(), identityOf(r.Context()).tenant, r.PathValue("name"))
	if err == nil {
		writeAccepted(w, rec)
	}
	return err
}
