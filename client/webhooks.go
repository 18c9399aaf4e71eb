package client

import (
	"context"
	"net/url"

	"github.com/codefleet/codefleet/schemas"
)

// Types for webhooks. Package schemas documents their fields.
type (
	// WebhookSpec is what a webhook does: it sends the events that it matches to a URL, signed.
	WebhookSpec = schemas.WebhookSpec
	// Webhook is a stored webhook.
	Webhook = schemas.Webhook
)

// AddWebhook stores a webhook, after a handshake with its target, and returns it with the secret that signs its
// deliveries. No other method returns the secret. The request is not retried. If a webhook has the name, the error has
// the code "automation_exists". Over NATS the errors of all methods for webhooks have the code "http_only".
func (c *Client) AddWebhook(ctx context.Context, w WebhookSpec) (Webhook, error) {
	return sendJSONOnce[Webhook](ctx, c, w, "webhooks")
}

// Webhooks returns the tenant's webhooks, sorted by name, without their secrets.
func (c *Client) Webhooks(ctx context.Context) ([]Webhook, error) {
	return get[[]Webhook](ctx, c, url.Values{}, "webhooks")
}

// RemoveWebhook deletes a webhook. Deliveries that wait are dropped. The request is not retried.
func (c *Client) RemoveWebhook(ctx context.Context, name string) error {
	return c.remove(ctx, "webhooks", name)
}
