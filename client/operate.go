package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/codefleet/codefleet/schemas"
)

// Types of what operators see and set. Package schemas documents their fields.
type (
	// Pause stops workers from starting tasks of a tenant, of a task pool, or of the whole fleet.
	Pause = schemas.Pause
	// Why says what a task waits for.
	Why = schemas.Why
)

// Why returns what a task waits for: the rule that holds it, its position and an estimate.
func (c *Client) Why(ctx context.Context, id string) (Why, error) {
	return get[Why](ctx, c, nil, "v1", "tasks", id, "why")
}

// Pauses returns what is paused. It needs the scope operator, as do Pause and Resume.
func (c *Client) Pauses(ctx context.Context) ([]Pause, error) {
	return get[[]Pause](ctx, c, nil, "v1", "pauses")
}

// Pause stops workers from starting tasks of a target: fleet, pool/NAME or tenant/NAME. Running tasks continue. The
// owners of the tasks that wait can read the reason.
func (c *Client) Pause(ctx context.Context, target, reason string) (Pause, error) {
	return post[Pause](ctx, c, map[string]string{"target": target, "reason": reason}, "v1", "pause")
}

// Resume ends a pause. It reports whether the target was paused.
func (c *Client) Resume(ctx context.Context, target string) (was bool, err error) {
	r, err := post[struct {
		Was bool `json:"was_paused"`
	}](ctx, c, map[string]string{"target": target}, "v1", "resume")
	return r.Was, err
}

// post sends a POST request with a JSON body, which may be repeated, and decodes the response. Over NATS it returns an
// error.
func post[T any](ctx context.Context, c *Client, body any, path ...string) (v T, err error) {
	d, err := c.overHTTP()
	if err != nil {
		return v, err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return v, err
	}
	return request[T](ctx, d, httpRequest{method: http.MethodPost, path: path, header: jsonHeader(), body: data})
}
