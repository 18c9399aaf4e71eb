package ingest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

func (s *Server) getDeadLetter(w http.ResponseWriter, r *http.Request, tenant, id string) error {
	d, err := s.queue.DeadLetter(r.Context(), tenant, id)
	return respond(w, d, err)
}

func (s *Server) postRetry(w http.ResponseWriter, r *http.Request, tenant, id string) error {
	rec, err := s.queue.Retry(r.Context(), tenant, id)
	if err != nil {
		return err
	}
	writeAccepted(w, rec)
	return nil
}

// getSubmission responds with the body of a POST /v1/tasks that submits the same task again.
func (s *Server) getSubmission(w http.ResponseWriter, r *http.Request, tenant, id string) error {
	rec, ev, err := s.queue.Submitted(r.Context(), tenant, id)
	if err != nil {
		return err
	}
	fields := map[string]any{}
	task := map[string]json.RawMessage{}
	if err := json.Unmarshal(ev.Data(), &task); err != nil {
		return fmt.Errorf("read the data of task %s: %w", rec.TaskID, err)
	}
	for name, value := range task {
		fields[name] = value
	}
	delete(fields, "not_before")
	fields["workspace"], fields["pool"], fields["priority"] = rec.Workspace, rec.Pool, rec.Priority
	if rec.Session != "" {
		fields["session"] = rec.Session
	}
	if key, ok := ev.Extensions()["partitionkey"]; ok {
		fields["partitionkey"] = key
	}
	return respond(w, fields, nil)
}
