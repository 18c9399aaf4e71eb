package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

const maxListed = 500 // tasks whose records PendingApprovals reads at most

// indexApproval adds a task to the stream ASKED, where it stays for d. PendingApprovals reads the records of the tasks
// in that stream.
func (c *Client) indexApproval(ctx context.Context, tenant, id string, d time.Duration) error {
	msg := nats.NewMsg(approvalIndex(tenant) + id)
	msg.Header.Set(jetstream.MsgTTLHeader, ttl(d+time.Second))
	_, err := c.js.PublishMsg(ctx, msg)
	return err
}

func approvalIndex(tenant string) string { return "asked." + tenant + "." }

// PendingApprovals returns the calls of a tenant's tasks that wait for approval, the oldest first. It reads only the
// maxListed tasks that asked last.
func (c *Client) PendingApprovals(ctx context.Context, tenant string) ([]schemas.PendingApproval, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	if c.opts.Producer {
		response, err := c.requestApproval(ctx, tenant, approvalRequest{})
		return response.Pending, err
	}
	var ids []string
	err := c.readFrom(ctx, streamAsked, approvalIndex(tenant)+"*", 1, func(m *nats.Msg) error {
		if _, id, _ := cutLast(m.Header.Get(jetstream.SubjectHeader)); names.IsTaskID(id) {
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list calls that wait for approval: %w", err)
	}
	var all []schemas.PendingApproval
	now := time.Now()
	for _, id := range ids[max(0, len(ids)-maxListed):] {
		r, err := c.find(ctx, tenant, id)
		if errors.Is(err, ErrUnknownTask) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list calls that wait for approval: %w", err)
		}
		for _, a := range r.Pending(now) {
			all = append(all, schemas.PendingApproval{
				TaskID: r.TaskID, Workspace: r.Workspace, Session: r.Session, Approval: a,
			})
		}
	}
	slices.SortStableFunc(all, func(a, b schemas.PendingApproval) int { return a.AskedAt.Compare(b.AskedAt) })
	return all, nil
}

// cutLast cuts the last token off a subject.
func cutLast(subject string) (before, last string, found bool) {
	i := strings.LastIndexByte(subject, '.')
	if i < 0 {
		return subject, "", false
	}
	return subject[:i], subject[i+1:], true
}

// AnswerApproval approves or denies one pending call of a task, or all of them. by is the name of the person who
// answers. AnswerApproval returns the task's record after the change. The first answer counts; the same person may
// repeat the same answer to one call. The error is ErrUnknownTask if there is no such task, and an *ApprovalError if
// the answer is refused.
func (c *Client) AnswerApproval(
	ctx context.Context, tenant, id, by string, a schemas.Decision,
) (schemas.Record, error) {
	if c.opts.Producer {
		return c.remoteAnswerApproval(ctx, tenant, id, by, a)
	}
	now := time.Now().UTC() // the same in all tries, so that answerApproval recognises what an earlier try stored
	_, r, err := c.change(ctx, tenant, id, func(r *storedRecord) (bool, error) {
		return answerApproval(&r.Record, a, by, now)
	})
	if err != nil {
		return schemas.Record{}, err
	}
	return c.whole(ctx, r)
}
