package client

import (
	"context"
	"net/http"
	"time"
)

// Identity is who the fleet takes the caller for.
type Identity struct {
	Name   string   `json:"name"`   // of the token, as the fleet's logs call it
	Tenant string   `json:"tenant"` // empty for an operator who is no tenant
	Scopes []string `json:"scopes"` // read, submit, approve, operator
}

// WhoAmI asks the fleet whom it takes the caller for. A token that it does not know is an *APIError
// with the code "unauthorized". Over NATS, where the credentials say it all, nobody is asked.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) { return c.door.whoami(ctx) }

// SubmitFor submits a task and returns its record once the task has ended, or as it is after d. It
// may be repeated as Submit may: with the same IdempotencyKey it goes on waiting for the same task.
func (c *Client) SubmitFor(ctx context.Context, s Submission, d time.Duration) (Record, error) {
	return c.door.submit(ctx, c.from(s), wait{time: d})
}

// WaitFor returns the record of a task once the task has ended, or as it is after d. The fleet may
// answer sooner, with a task that has not ended: when the process that was asked is stopping.
func (c *Client) WaitFor(ctx context.Context, id string, d time.Duration) (Record, error) {
	return c.door.record(ctx, id, wait{time: d})
}

func (d *httpDoor) whoami(ctx context.Context) (Identity, error) {
	var id Identity
	return id, d.json(ctx, &id, call{method: http.MethodGet, path: []string{"v1", "whoami"}})
}

func (d *natsDoor) whoami(context.Context) (Identity, error) {
	id := Identity{Name: "nats", Tenant: d.tenant, Scopes: []string{"submit", "read", "approve"}}
	if d.all {
		id.Scopes = append(id.Scopes, "operator")
	}
	return id, nil
}
