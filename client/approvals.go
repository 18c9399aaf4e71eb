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

// Types for the approval of tool calls. Package schemas documents their fields.
type (
	// Approval is a tool call that needs approval, as the task's record lists it.
	Approval = schemas.Approval
	// PendingApproval is a pending Approval with its task.
	PendingApproval = schemas.PendingApproval
	// Decision approves or denies pending calls.
	Decision = schemas.Decision
)

// Approvals returns the tool calls of the tenant's tasks that wait for approval, the oldest first.
func (c *Client) Approvals(ctx context.Context) ([]PendingApproval, error) {
	return c.conn.approvals(ctx)
}

// Decide approves or denies a pending tool call of a task, or all of its pending calls, and returns the task's record.
// Over HTTP the token needs the scope approve. The first decision about a call counts; sending it again is not an
// error. A decision about all pending calls is not retried: other calls may be pending then. The error is an *APIError,
// with the code "already_answered" for a different decision, "approval_over" after the call has expired, and
// "unknown_approval" for a call that does not need approval.
func (c *Client) Decide(ctx context.Context, id string, decision Decision) (Record, error) {
	return c.conn.decide(ctx, id, decision)
}

// SubmitForApproval is like SubmitFor, but also returns once a tool call of the task waits for approval. Record.Pending
// lists such calls.
func (c *Client) SubmitForApproval(ctx context.Context, s Submission, d time.Duration) (Record, error) {
	return c.conn.submit(ctx, c.withSource(s), wait{time: d, approval: true})
}

// WaitForApproval is like WaitFor, but also returns once a tool call of the task waits for approval. It ignores calls
// whose ids are in known.
func (c *Client) WaitForApproval(ctx context.Context, id string, d time.Duration, known ...string) (Record, error) {
	return c.conn.record(ctx, id, wait{time: d, approval: true, knownCalls: known})
}

// query returns the wait as query parameters.
func (w wait) query() url.Values {
	q := url.Values{}
	if w.time > 0 {
		q.Set("wait", w.time.String())
	}
	if w.approval {
		q.Set("until", "approval")
		set(q, "known", strings.Join(w.knownCalls, ","))
	}
	return q
}

func (d *httpConn) approvals(ctx context.Context) ([]PendingApproval, error) {
	return request[[]PendingApproval](ctx, d, httpRequest{path: []string{"v1", "approvals"}})
}

func (d *httpConn) decide(ctx context.Context, id string, decision Decision) (Record, error) {
	body, err := json.Marshal(decision)
	if err != nil {
		return Record{}, fmt.Errorf("encode decision: %w", err)
	}
	return request[Record](ctx, d, httpRequest{
		method: http.MethodPost, path: []string{"v1", "tasks", id, "approvals"}, header: jsonHeader(), body: body,
		once: decision.Call == "",
	})
}

func (d *natsConn) approvals(ctx context.Context) ([]PendingApproval, error) {
	list, err := d.jobs.PendingApprovals(ctx, d.tenant)
	return list, unmarked(queueError(err))
}

func (d *natsConn) decide(ctx context.Context, id string, decision Decision) (Record, error) {
	r, err := d.jobs.AnswerApproval(ctx, d.tenant, id, d.user, decision)
	return r, unmarked(queueError(err))
}
