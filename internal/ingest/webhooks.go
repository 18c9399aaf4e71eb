package ingest

import (
	"net/http"

	"github.com/codefleet/codefleet/schemas"
)

func (s *Server) postWebhook(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[schemas.WebhookSpec](s, w, r)
	if err != nil {
		return err
	}
	doc, err := s.automation.AddWebhook(r.Context(), identityOf(r.Context()).tenant, in)
	return respond(w, doc, err)
}

func (s *Server) getWebhooks(w http.ResponseWriter, r *http.Request) error {
	list, err := s.automation.Webhooks(r.Context(), identityOf(r.Context()).tenant)
	return respondList(w, list, err)
}

func (s *Server) deleteWebhook(w http.ResponseWriter, r *http.Request) error {
	err := s.automation.RemoveWebhook(r.Context(), identityOf(r.Context()).tenant, r.PathValue("name"))
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
