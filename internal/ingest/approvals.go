package ingest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

// getApprovals lists the tool calls of the tenant's tasks that wait for approval.
func (s *Server) getApprovals(w http.ResponseWriter, r *http.Request) error {
	list, err := s.o.Jobs.PendingApprovals(r.Context(), identityOf(r.Context()).tenant)
	return respondList(w, list, err)
}

// decisionIn is the body of POST …/approvals: a decision whose field approve is required.
type decisionIn struct {
	schemas.Decision
	Approve *bool `json:"approve"`
}

// postApproval approves or denies tool calls, in the name of the token, and responds with the task's record.
func (s *Server) postApproval(w http.ResponseWriter, r *http.Request) error {
	if ct := r.Header.Get("Content-Type"); !isJSON(ct) {
		e := badMediaType(ct, "an answer is JSON")
		e.Hint = "send the header Content-Type: application/json"
		return e
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	var in decisionIn
	if err := json.Unmarshal(body, &in); err != nil {
		return badJSON(body, err)
	}
	if in.Approve == nil {
		e := apierror.New(errcode.BadData, "the field approve is missing")
		e.Path, e.Hint = "/approve", `{"call": "…", "approve": true}`
		return e
	}
	if len(in.Reason) > schemas.MaxReason {
		e := apierror.New(errcode.BadData, "the reason is %d bytes; the limit is %d",
			len(in.Reason), schemas.MaxReason)
		e.Path = "/reason"
		return e
	}
	in.Decision.Approve = *in.Approve
	if !names.IsTaskID(r.PathValue("id")) {
		return jobs.ErrUnknownTask
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	id := identityOf(ctx)
	rec, err := s.o.Jobs.AnswerApproval(ctx, id.tenant, r.PathValue("id"), id.name, in.Decision)
	return respond(w, rec, err)
}
