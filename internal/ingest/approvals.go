package ingest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// getApprovals lists the tool calls of the tenant's tasks that wait for somebody's word.
func (s *Server) getApprovals(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	list, err := s.o.Jobs.PendingApprovals(ctx, identityOf(ctx).tenant)
	if err != nil {
		return err
	}
	writeList(w, list)
	return nil
}

// answerIn is what somebody says of calls: approve has to be said, either way.
type answerIn struct {
	schemas.Answer
	Approve *bool `json:"approve"`
}

// postApproval takes an answer and answers with the task's record. Who gave it is the token's name.
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
	var in answerIn
	if err := json.Unmarshal(body, &in); err != nil {
		return badJSON(body, err)
	}
	if in.Approve == nil {
		e := apierror.New(errcode.BadData, "the answer does not say whether the call is approved")
		e.Path, e.Hint = "/approve", `{"call": "…", "approve": true}`
		return e
	}
	if len(in.Reason) > schemas.MaxReason {
		e := apierror.New(errcode.BadData, "a reason of %d bytes, at most %d are taken", len(in.Reason), schemas.MaxReason)
		e.Path = "/reason"
		return e
	}
	in.Answer.Approve = *in.Approve
	if !taskID(r.PathValue("id")) {
		return jobs.ErrUnknownTask
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	id := identityOf(ctx)
	rec, err := s.o.Jobs.AnswerApproval(ctx, id.tenant, r.PathValue("id"), id.name, in.Answer)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, rec)
	return nil
}
