package ingest

import (
	"context"
	"net/http"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

// getApprovals lists the tool calls of the tenant's tasks that wait for approval.
func (s *Server) getApprovals(w http.ResponseWriter, r *http.Request) error {
	list, err := s.queue.PendingApprovals(r.Context(), identityOf(r.Context()).tenant)
	return respondList(w, list, err)
}

// decisionIn is the body of POST …/approvals: a decision whose field approve is required. An empty call is refused,
// because in a schemas.Decision it means all pending calls.
type decisionIn struct {
	schemas.Decision
	Call    *string `json:"call"` // nil for all pending calls of the task
	Approve *bool   `json:"approve"`
}

// postApproval approves or denies tool calls, and records the token's name as who decided. It responds with the task's
// record.
func (s *Server) postApproval(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readJSONBody(w, r)
	if err != nil {
		return err
	}
	var in decisionIn
	if err := decodeJSON(body, &in); err != nil {
		return err
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
	if in.Call != nil && *in.Call == "" {
		e := apierror.New(errcode.BadData, "the field call is empty")
		e.Path, e.Hint = "/call", "name a call, or leave the field out to decide all pending calls of the task"
		return e
	}
	in.Decision.Approve = *in.Approve
	if in.Call != nil {
		in.Decision.Call = *in.Call
	}
	if !names.IsTaskID(r.PathValue("id")) {
		return jobs.ErrUnknownTask
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	id := identityOf(ctx)
	rec, err := s.queue.AnswerApproval(ctx, id.tenant, r.PathValue("id"), id.name, in.Decision)
	return respond(w, rec, err)
}
