package client

import (
	"context"

	"github.com/codefleet/codefleet/schemas"
)

// Identity is how the fleet identifies the caller. Package schemas documents its fields.
type Identity = schemas.Identity

// WhoAmI returns the caller's identity. For an unknown token the error is an *APIError with the code "unauthorized".
// Over NATS it makes no request, because the credentials determine the identity.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) { return c.conn.whoami(ctx) }

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
