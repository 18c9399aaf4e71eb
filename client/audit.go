package client

import (
	"context"
	"net/url"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// AuditRecord is an audit record of a tool call. Package schemas documents its fields.
type AuditRecord = schemas.AuditRecord

// AuditOptions select the records that Audit returns.
type AuditOptions struct {
	Task  string // only calls of the task with this id; empty selects all tasks
	Limit int    // maximum number of records; the default is 100
}

// Audit returns the audit records of the tenant's tool calls, the latest first. Records are kept for 90 days.
func (c *Client) Audit(ctx context.Context, o AuditOptions) ([]AuditRecord, error) {
	return c.conn.audit(ctx, o)
}

func (d *httpConn) audit(ctx context.Context, o AuditOptions) ([]AuditRecord, error) {
	q := url.Values{}
	set(q, "task", o.Task)
	setLimit(q, o.Limit)
	return request[[]AuditRecord](ctx, d, httpRequest{path: []string{"v1", "audit"}, query: q})
}

func (d *natsConn) audit(ctx context.Context, o AuditOptions) ([]AuditRecord, error) {
	return fleetRequest(d, func() ([]AuditRecord, error) {
		return d.jobs.AuditTrail(ctx, d.tenant, jobs.AuditOptions(o))
	})
}
