package client

import (
	"context"
	"net/http"
	"time"
)

// Identity is the caller, as the fleet identifies it.
type Identity struct {
	Name   string   `json:"name"`   // of the token, as in the fleet's logs
	Tenant string   `json:"tenant"` // empty for an operator without a tenant
	Scopes []string `json:"scopes"` // read, submit, approve, operator
}

// WhoAmI returns the identity of the caller. For an unknown token the error is an *APIError with the code
// "unauthorized". Over NATS it makes no request: the credentials determine the identity.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) { return c.conn.whoami(ctx) }

// SubmitFor submits a task and returns its record once the task has ended, or after d. Calling it again with
// the same IdempotencyKey waits on for the same task.
func (c *Client) SubmitFor(ctx context.Context, s Submission, d time.Duration) (Record, error) {
	return c.conn.submit(ctx, c.withSource(s), wait{time: d})
}

// WaitFor returns the record of a task once the task has ended, or after d. It may return earlier with a task
// that has not ended, if the process that serves the request stops.
func (c *Client) WaitFor(ctx context.Context, id string, d time.Duration) (Record, error) {
	return c.conn.record(ctx, id, wait{time: d})
}

func (d *httpConn) whoami(ctx context.Context) (Identity, error) {
	var id Identity
	err := d.json(ctx, &id, call{method: http.MethodGet, path: []string{"v1", "whoami"}})
	return id, err
}

func (d *natsConn) whoami(context.Context) (Identity, error) {
	id := Identity{Name: "nats", Tenant: d.tenant, Scopes: []string{"submit", "read", "approve"}}
	if d.all {
		id.Scopes = append(id.Scopes, "operator")
	}
	return id, nil
}
