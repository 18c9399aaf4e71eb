package jobs

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Audit appends a line to a tenant's audit. It is durable when Audit returns; one that is repeated
// after an error may be there twice. Lines are kept for 90 days.
func (c *Client) Audit(ctx context.Context, tenant string, line []byte) error {
	msg := nats.NewMsg(auditPrefix + tenant)
	msg.Data = line
	if _, err := c.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("write to the audit: %w", err)
	}
	return nil
}

// AuditTrail calls read with the lines of a tenant's audit in the order of writing.
func (c *Client) AuditTrail(ctx context.Context, tenant string, read func(line []byte) error) error {
	err := c.from(ctx, streamAudit, auditPrefix+tenant, 1, func(m *nats.Msg) error { return read(m.Data) })
	if err != nil {
		return fmt.Errorf("read the audit of %s: %w", tenant, err)
	}
	return nil
}
