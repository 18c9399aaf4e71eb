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

// The shapes of tool calls that wait for somebody's word; package schemas documents their fields.
type (
	// Approval is a tool call that waits for somebody's word, or had it, as a task's record has it.
	Approval = schemas.Approval
	// PendingApproval is an Approval that is pending, and whose it is.
	PendingApproval = schemas.PendingApproval
	// Answer is what somebody says of calls that wait.
	Answer = schemas.Answer
)

// Approvals returns the tool calls of the tenant's tasks that wait for somebody's word (the policy
// approve of the fleet's settings), the oldest first.
func (c *Client) Approvals(ctx context.Context) ([]PendingApproval, error) {
	return c.door.approvals(ctx)
}

// Answer says yes or no to a tool call of a task that waits, or to all that wait, and returns the task's
// record after. The first answer counts: a later one is an *APIError with the code "already_answered";
// one that comes too late, "approval_over"; for a call that nobody asked about, "unknown_approval". The
// same answer may be sent again. Over HTTP it needs a token with the scope approve.
func (c *Client) Answer(ctx context.Context, id string, a Answer) (Record, error) {
	return c.door.answer(ctx, id, a)
}

// SubmitForApproval is SubmitFor that also returns as soon as a tool call of the task waits for
// somebody's word: see Record.Pending.
func (c *Client) SubmitForApproval(ctx context.Context, s Submission, d time.Duration) (Record, error) {
	return c.door.submit(ctx, c.from(s), wait{time: d, approval: true})
}

// WaitForApproval is WaitFor that also returns as soon as a tool call of the task waits for somebody's
// word, other than the known ones.
func (c *Client) WaitForApproval(ctx context.Context, id string, d time.Duration, known ...string) (Record, error) {
	return c.door.record(ctx, id, wait{time: d, approval: true, known: known})
}

// query is the wait as HTTP has it, but for its time.
func (w wait) query() url.Values {
	q := url.Values{}
	if w.approval {
		q.Set("until", "approval")
		set(q, "known", strings.Join(w.known, ","))
	}
	return q
}

func (d *httpDoor) approvals(ctx context.Context) ([]PendingApproval, error) {
	var list []PendingApproval
	return list, d.json(ctx, &list, call{path: []string{"v1", "approvals"}})
}

func (d *httpDoor) answer(ctx context.Context, id string, a Answer) (Record, error) {
	body, err := json.Marshal(a)
	if err != nil {
		return Record{}, fmt.Errorf("encode answer: %w", err)
	}
	var r Record
	return r, d.json(ctx, &r, call{
		method: http.MethodPost, path: []string{"v1", "tasks", id, "approvals"}, header: http.Header{"Content-Type": {"application/json"}}, body: body,
	})
}

func (d *natsDoor) approvals(ctx context.Context) ([]PendingApproval, error) {
	list, err := d.jobs.PendingApprovals(ctx, d.tenant)
	return list, final(answer(err))
}

func (d *natsDoor) answer(ctx context.Context, id string, a Answer) (Record, error) {
	r, err := d.jobs.AnswerApproval(ctx, d.tenant, id, d.user, a)
	return r, final(answer(err))
}
