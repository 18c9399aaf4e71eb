package client

import (
	"context"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Identity is how the fleet identifies the caller. Package schemas documents its fields.
type Identity = schemas.Identity

// WhoAmI returns the caller's identity. For an unknown token the error is an *APIError with the code "unauthorized".
// Over NATS it makes no request, because the credentials determine the identity.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) { return c.conn.whoami(ctx) }

// SubmitFor submits a task and returns its record once the task has ended, or after d. Another call with the same
// IdempotencyKey continues to wait for the same task.
func (c *Client) SubmitFor(ctx context.Context, s Submission, d time.Duration) (Record, error) {
	return c.conn.submit(ctx, c.withSource(s), wait{time: d})
}

// WaitFor returns the record of a task once the task has ended, or after d. It may return earlier, before the task has
// ended, if the process that serves the request stops.
func (c *Client) WaitFor(ctx context.Context, id string, d time.Duration) (Record, error) {
	return c.conn.record(ctx, id, wait{time: d})
}

func (d *httpConn) whoami(ctx context.Context) (Identity, error) {
	return request[Identity](ctx, d, httpRequest{path: []string{"v1", "whoami"}})
}

func (d *natsConn) whoami(context.Context) (Identity, error) {
	id := Identity{Name: "nats", Tenant: d.tenant, Scopes: []string{"submit", "read", "approve"}}
	if d.fleetCredentials {
		id.Scopes = append(id.Scopes, "operator")
	}
	return id, nil
}
