package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// A tenant's own user may not touch records: it asks on approvals.<tenant>, and any worker answers. The
// tenant is the subject's, which its permissions guard.

// approvalAsk is what a tenant's user sends.
type approvalAsk struct {
	TaskID string          `json:"task_id,omitempty"` // empty: list what waits
	By     string          `json:"by,omitempty"`      // in its own words
	Answer *schemas.Answer `json:"answer,omitempty"`
}

// approvalReply is what it gets.
type approvalReply struct {
	Waiting []schemas.PendingApproval `json:"waiting,omitempty"`
	Record  *schemas.Record           `json:"record,omitempty"`
	Code    string                    `json:"code,omitempty"` // of answerCodes, unknown_task, or unavailable
	Message string                    `json:"message,omitempty"`
}

// answerCodes are the names of errors on the wire.
var answerCodes = map[string]error{
	errcode.UnknownTask: ErrUnknownTask, errcode.UnknownApproval: ErrApprovalNotFound,
	errcode.AlreadyAnswered: ErrAlreadyAnswered, errcode.ApprovalOver: ErrNotPending,
}

// AnswerCode is the stable name of an error of Answer; empty for any other.
func AnswerCode(err error) string {
	for code, known := range answerCodes {
		if errors.Is(err, known) {
			return code
		}
	}
	return ""
}

// serveApprovals answers tenants' users until stop is called.
func (c *Client) serveApprovals() (stop func(), err error) {
	sub, err := c.nc.QueueSubscribe("approvals.*", "approvals", func(m *nats.Msg) {
		reply := approvalReply{Code: errcode.Unavailable, Message: "not a question that this fleet knows"}
		_, tenant, _ := strings.Cut(m.Subject, ".")
		var q approvalAsk
		if schemas.CheckName("tenant", tenant) == nil && json.Unmarshal(m.Data, &q) == nil {
			reply = c.answerTenant(tenant, q)
		}
		data, err := json.Marshal(reply)
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			c.opts.Log.WarnContext(context.Background(), "answer about approvals not sent", "tenant", tenant, "error", err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("serve approvals: %w", err)
	}
	return func() { _ = sub.Drain() }, nil // of a closed connection, it has ended already
}

func (c *Client) answerTenant(tenant string, q approvalAsk) (reply approvalReply) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var err error
	if q.Answer == nil {
		reply.Waiting, err = c.PendingApprovals(ctx, tenant)
	} else {
		var rec schemas.Record
		if rec, err = c.AnswerApproval(ctx, tenant, q.TaskID, natsUser(q.By), *q.Answer); err == nil {
			reply.Record = &rec
		}
	}
	if err == nil {
		return reply
	}
	if reply.Code = AnswerCode(err); reply.Code == "" {
		c.opts.Log.WarnContext(ctx, "approvals of a tenant", "tenant", tenant, "error", err)
		return approvalReply{Code: errcode.Unavailable, Message: "the fleet could not do it: try again"}
	}
	reply.Message = err.Error()
	return reply
}

// natsUser is how a tenant's user is called in records: what it says of itself is its own word.
func natsUser(said string) string {
	said = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, said)
	return "nats/" + cutText(said, 64)
}

func (c *Client) askFleet(ctx context.Context, tenant string, q approvalAsk) (reply approvalReply, err error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return reply, ErrUnknownTask
	}
	data, err := json.Marshal(q)
	if err != nil {
		return reply, err
	}
	m, err := c.request(ctx, "approvals."+tenant, data)
	if err == nil {
		err = json.Unmarshal(m.Data, &reply)
	}
	if err != nil {
		return reply, fmt.Errorf("ask the fleet about approvals: %w", err)
	}
	if known := answerCodes[reply.Code]; known != nil && !errors.Is(known, ErrUnknownTask) {
		return reply, &AnswerError{reply.Message, known}
	} else if known != nil {
		return reply, known
	} else if reply.Code != "" {
		return reply, fmt.Errorf("ask the fleet about approvals: %s", reply.Message)
	}
	return reply, nil
}

func (c *Client) remoteWaiting(ctx context.Context, tenant string) ([]schemas.PendingApproval, error) {
	reply, err := c.askFleet(ctx, tenant, approvalAsk{})
	return reply.Waiting, err
}

func (c *Client) remoteAnswer(ctx context.Context, tenant, id, by string, a schemas.Answer) (schemas.Record, error) {
	reply, err := c.askFleet(ctx, tenant, approvalAsk{TaskID: id, By: by, Answer: &a})
	if err != nil || reply.Record == nil {
		return schemas.Record{}, err
	}
	return *reply.Record, nil
}
