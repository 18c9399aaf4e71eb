package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Types of the approval of tool calls; package schemas documents their fields.
type (
	// Approval is a tool call that needs approval, as recorded in its task.
	Approval = schemas.Approval
	// PendingApproval is an Approval that is pending, with its task.
	PendingApproval = schemas.PendingApproval
	// Answer approves or denies pending calls.
	Answer = schemas.Answer
)

// Approvals returns the tool calls of the tenant's tasks that wait for approval, the oldest first.
func (c *Client) Approvals(ctx context.Context) ([]PendingApproval, error) {
	return c.conn.approvals(ctx)
}

// Answer approves or denies a pending tool call of a task, or all of them, and returns the task's record. The
// first answer counts: for a different later one, the error is an *APIError with the code "already_answered";
// after the call has expired, "approval_over"; for a call that does not need approval, "unknown_approval".
// The same answer may be sent again. Over HTTP it needs a token with the scope approve.
func (c *Client) Answer(ctx context.Context, id string, a Answer) (Record, error) {
	return c.conn.answer(ctx, id, a)
}

// SubmitForApproval is SubmitFor that also returns once a tool call of the task waits for approval: see
// Record.Pending.
func (c *Client) SubmitForApproval(ctx context.Context, s Submission, d time.Duration) (Record, error) {
	return c.conn.submit(ctx, c.withSource(s), wait{time: d, approval: true})
}

// WaitForApproval is WaitFor that also returns once a tool call of the task, other than the known ones, waits
// for approval.
func (c *Client) WaitForApproval(ctx context.Context, id string, d time.Duration, known ...string) (Record, error) {
	return c.conn.record(ctx, id, wait{time: d, approval: true, knownCalls: known})
}

// query returns the wait as query parameters, without its duration.
func (w wait) query() url.Values {
	q := url.Values{}
	if w.approval {
		q.Set("until", "approval")
		set(q, "known", strings.Join(w.knownCalls, ","))
	}
	return q
}

func (d *httpConn) approvals(ctx context.Context) ([]PendingApproval, error) {
	var list []PendingApproval
	err := d.json(ctx, &list, call{path: []string{"v1", "approvals"}})
	return list, err
}

func (d *httpConn) answer(ctx context.Context, id string, a Answer) (Record, error) {
	body, err := json.Marshal(a)
	if err != nil {
		return Record{}, fmt.Errorf("encode answer: %w", err)
	}
	var r Record
	return r, d.json(ctx, &r, call{
		method: http.MethodPost, path: []string{"v1", "tasks", id, "approvals"}, header: jsonHeader(), body: body,
	})
}

func (d *natsConn) approvals(ctx context.Context) ([]PendingApproval, error) {
	list, err := d.jobs.PendingApprovals(ctx, d.tenant)
	return list, unmarked(queueError(err))
}

func (d *natsConn) answer(ctx context.Context, id string, a Answer) (Record, error) {
	r, err := d.jobs.AnswerApproval(ctx, d.tenant, id, d.user, a)
	return r, unmarked(queueError(err))
}
