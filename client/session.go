package client

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/codefleet/codefleet/schemas"
)

// Session is the log of a session: its tasks, with their code, results and output, and its checkpoint.
type Session = schemas.Session

// Parts of a session's log.
type (
	// SessionTask is a task in the log.
	SessionTask = schemas.SessionTask
	// Checkpoint says how far the work of a session is.
	Checkpoint = schemas.Checkpoint
	// CheckpointInfo identifies a checkpoint.
	CheckpointInfo = schemas.CheckpointInfo
)

// SessionSummary is a session in a list.
type SessionSummary = schemas.SessionSummary

// Sessions lists the tenant's sessions, the one with the latest task first, up to limit. The default limit is 100. A
// session begins with the first task whose Submission names it. Over NATS, Sessions fails with the code "http_only".
func (c *Client) Sessions(ctx context.Context, limit int) ([]SessionSummary, error) {
	var list []SessionSummary
	err := c.session(ctx, http.MethodGet, nil, limit, nil, &list)
	return list, err
}

// Session returns a session's log with its newest tasks, up to limit. The default limit is 100. If no task of the
// session has ended, the error has the code "unknown_session".
func (c *Client) Session(ctx context.Context, name string, limit int) (Session, error) {
	var s Session
	err := c.session(ctx, http.MethodGet, []string{name}, limit, nil, &s)
	return s, err
}

// SaveCheckpoint sets a session's checkpoint: a JSON object that says how far the work is, such as
// {"step": 3, "context": "…"}. It returns the session's log. The request is not retried.
func (c *Client) SaveCheckpoint(ctx context.Context, name string, data json.RawMessage) (Session, error) {
	var s Session
	err := c.session(ctx, http.MethodPost, []string{name, "checkpoints"}, 0, data, &s)
	return s, err
}

// ResumeSession returns a session's log, for tasks that go on with it. Unless checkpoint is 0, ResumeSession first
// makes the checkpoint with this id the session's newest. The request is not retried.
func (c *Client) ResumeSession(ctx context.Context, name string, checkpoint uint64) (Session, error) {
	var s Session
	body, err := json.Marshal(map[string]uint64{"checkpoint": checkpoint})
	if err == nil {
		err = c.session(ctx, http.MethodPost, []string{name, "resume"}, 0, body, &s)
	}
	return s, err
}

// session sends a request below /v1/sessions, a POST of body or a GET with limit, and decodes the response into out.
func (c *Client) session(
	ctx context.Context, method string, path []string, limit int, body json.RawMessage, out any,
) error {
	d, err := c.overHTTP()
	if err != nil {
		return err
	}
	req := httpRequest{method: method, path: append([]string{"v1", "sessions"}, path...), body: body}
	if body != nil {
		req.header = jsonHeader()
		req.once = true
	} else {
		req.query = url.Values{"limit": {strconv.Itoa(cmp.Or(limit, 100))}}
	}
	return d.do(ctx, req, responseTimeout, decoder(out))
}
