package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// serveApprovals responds to the requests of tenants' users until stop is called.
func (c *Client) serveApprovals() (stop func(), err error) {
	sub, err := c.nc.QueueSubscribe(approvalSubject+"*", "approvals", func(m *nats.Msg) {
		response := approvalResponse{Code: errcode.Unavailable, Message: "invalid approval request"}
		tenant := strings.TrimPrefix(m.Subject, approvalSubject)
		var q approvalRequest
		if schemas.CheckName("tenant", tenant) == nil && json.Unmarshal(m.Data, &q) == nil {
			response = c.handleApprovalRequest(tenant, q)
		}
		data, err := json.Marshal(response)
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			c.opts.Log.WarnContext(context.Background(), "approval response not sent", "tenant", tenant, "error", err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("serve approvals: %w", err)
	}
	return func() { _ = sub.Drain() }, nil // fails only on a closed connection
}

func (c *Client) handleApprovalRequest(tenant string, q approvalRequest) (response approvalResponse) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var err error
	if q.Answer == nil {
		response.Pending, err = c.PendingApprovals(ctx, tenant)
	} else {
		var r schemas.Record
		if r, err = c.AnswerApproval(ctx, tenant, q.TaskID, natsUser(q.By), *q.Answer); err == nil {
			response.Record = &r
		}
	}
	if err == nil {
		return response
	}
	if response.Code = AnswerCode(err); response.Code == "" {
		c.opts.Log.WarnContext(ctx, "approval request failed", "tenant", tenant, "error", err)
		return approvalResponse{
			Code:    errcode.Unavailable,
			Message: "the fleet could not process the request: try again",
		}
	}
	response.Message = err.Error()
	return response
}

// natsUser returns the name under which a record mentions a tenant's NATS user. The user chose the name; it is not
// verified.
func natsUser(name string) string {
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, name)
	return "nats/" + validPrefix(name, 64)
}
