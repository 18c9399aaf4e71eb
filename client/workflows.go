package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/schemas"
)

// Types for workflows. Package schemas documents their fields, and docs/workflows.md the format of definitions.
type (
	// WorkflowRequest starts a run. Its Workflow is the definition as JSON.
	WorkflowRequest = schemas.WorkflowRequest
	// WorkflowRun is the record of a run.
	WorkflowRun = schemas.WorkflowRun
	// WorkflowCheck says that a workflow is valid.
	WorkflowCheck = schemas.WorkflowCheck
	// WorkflowAnswer answers a step that asks.
	WorkflowAnswer = schemas.WorkflowAnswer
	// WorkflowRerun starts a run again from a step.
	WorkflowRerun = schemas.WorkflowRerun
)

// RunWorkflow starts a run of a workflow and returns its record. A request with the key of an earlier one returns
// the same run. If the workflow or its inputs are not valid, the error has the code "bad_workflow". Over NATS the
// errors of all methods for workflows have the code "http_only".
func (c *Client) RunWorkflow(ctx context.Context, in WorkflowRequest) (WorkflowRun, error) {
	if in.Key == "" {
		in.Key = rand.Text() // so that the request can be repeated
	}
	return sendJSON[WorkflowRun](ctx, c, http.MethodPost, in, "workflows", "runs")
}

// ValidateWorkflow checks a definition and runs nothing. If it is not valid, the error has the code "bad_workflow" and
// lists everything that is wrong.
func (c *Client) ValidateWorkflow(ctx context.Context, definition json.RawMessage) (WorkflowCheck, error) {
	in := WorkflowRequest{Workflow: definition}
	return sendJSON[WorkflowCheck](ctx, c, http.MethodPost, in, "workflows", "validate")
}

// WorkflowRuns returns at most limit runs, without inputs and results. The run with the latest change comes first.
func (c *Client) WorkflowRuns(ctx context.Context, limit int) ([]WorkflowRun, error) {
	return get[[]WorkflowRun](ctx, c, url.Values{"limit": {strconv.Itoa(limit)}}, "workflows", "runs")
}

// AskingRuns is like WorkflowRuns, but returns only runs with a step that waits for an answer.
func (c *Client) AskingRuns(ctx context.Context, limit int) ([]WorkflowRun, error) {
	query := url.Values{"asking": {"true"}, "limit": {strconv.Itoa(limit)}}
	return get[[]WorkflowRun](ctx, c, query, "workflows", "runs")
}

// WorkflowRun returns a run with its definition, its inputs and the results of its steps. If it does not exist, the
// error has the code "unknown_run".
func (c *Client) WorkflowRun(ctx context.Context, id string) (WorkflowRun, error) {
	return get[WorkflowRun](ctx, c, url.Values{}, "workflows", "runs", id)
}

// WaitWorkflow reads a run until it has ended. After each read it calls goOn, unless it is nil, with the run. If goOn
// returns false, WaitWorkflow returns early.
func (c *Client) WaitWorkflow(ctx context.Context, id string, goOn func(WorkflowRun) bool) (WorkflowRun, error) {
	const first, last = 50 * time.Millisecond, time.Second
	for delay := first; ; delay = min(delay*5/4, last) {
		run, err := c.WorkflowRun(ctx, id)
		if err != nil || goOn != nil && !goOn(run) || run.Status.Ended() {
			return run, err
		}
		if err := clock.Sleep(ctx, delay); err != nil {
			return run, err
		}
	}
}

// CancelWorkflow cancels a run: its running steps are cancelled, and then the steps of `finally` run. A second call
// cancels these, too, so the request is not retried after a lost connection.
func (c *Client) CancelWorkflow(ctx context.Context, id string) (WorkflowRun, error) {
	r := httpRequest{method: http.MethodPost, once: true}
	return sendRequest[WorkflowRun](ctx, c, r, "workflows", "runs", id, "cancel")
}

// AnswerWorkflow answers a step that asks. Only the first answer counts: for a later one, the error has the code
// "not_waiting", so the request is not retried after a lost connection. If the values do not fit the form, the code is
// "bad_answer".
func (c *Client) AnswerWorkflow(ctx context.Context, id string, in WorkflowAnswer) (WorkflowRun, error) {
	return sendJSONOnce[WorkflowRun](ctx, c, in, "workflows", "runs", id, "answer")
}

// RerunWorkflow starts a run again from a step. The new run keeps the results of the steps before, and works on a fork
// of the workspace with the files that the step began with.
func (c *Client) RerunWorkflow(ctx context.Context, id string, in WorkflowRerun) (WorkflowRun, error) {
	if in.Key == "" {
		in.Key = rand.Text()
	}
	return sendJSON[WorkflowRun](ctx, c, http.MethodPost, in, "workflows", "runs", id, "rerun")
}
