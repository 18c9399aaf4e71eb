package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// The NATS user of a tenant may not change records. It sends requests on approvals.<tenant>, and any worker
// responds. The server's permissions ensure that a user can send only on its own tenant's subject.

const approvalSubject = "approvals."

type approvalRequest struct {
	TaskID string            `json:"task_id,omitempty"`
	By     string            `json:"by,omitempty"`     // a name that the user chose
	Answer *schemas.Decision `json:"answer,omitempty"` // nil to list pending calls
}

type approvalResponse struct {
	Pending []schemas.PendingApproval `json:"waiting,omitempty"`
	Record  *schemas.Record           `json:"record,omitempty"`
	Code    string                    `json:"code,omitempty"` // a key of answerCodes, or unavailable
	Message string                    `json:"message,omitempty"`
}

// answerCodes has the errors of AnswerApproval, by error code.
var answerCodes = map[string]error{
	errcode.UnknownTask: ErrUnknownTask, errcode.UnknownApproval: ErrApprovalNotFound,
	errcode.AlreadyAnswered: ErrAlreadyAnswered, errcode.ApprovalOver: ErrNotPending,
}

// AnswerCode returns the error code of an error of AnswerApproval, or "" for any other error.
func AnswerCode(err error) string {
	for code, sentinel := range answerCodes {
		if errors.Is(err, sentinel) {
			return code
		}
	}
	return ""
}

// requestApproval sends a request to any worker and returns its response. If the response has a code, requestApproval
// returns the error that belongs to the code.
func (c *Client) requestApproval(
	ctx context.Context, tenant string, q approvalRequest,
) (response approvalResponse, err error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return response, ErrUnknownTask
	}
	data, err := json.Marshal(q)
	if err != nil {
		return response, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := c.nc.RequestWithContext(ctx, approvalSubject+tenant, data)
	if err == nil {
		err = json.Unmarshal(m.Data, &response)
	}
	sentinel := answerCodes[response.Code]
	switch {
	case err != nil:
		return response, fmt.Errorf("request approvals from the fleet: %w", err)
	case response.Code == "":
		return response, nil
	case sentinel == nil:
		return response, fmt.Errorf("request approvals from the fleet: %s", response.Message)
	case errors.Is(sentinel, ErrUnknownTask):
		return response, sentinel
	default:
		return response, &ApprovalError{response.Message, sentinel}
	}
}

func (c *Client) remoteAnswerApproval(
	ctx context.Context, tenant, id, by string, a schemas.Decision,
) (schemas.Record, error) {
	response, err := c.requestApproval(ctx, tenant, approvalRequest{TaskID: id, By: by, Answer: &a})
	if err != nil || response.Record == nil {
		return schemas.Record{}, err
	}
	return *response.Record, nil
}
