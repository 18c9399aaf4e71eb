package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// AuditRecord is an audit record of a tool call; package schemas documents its fields.
type AuditRecord = schemas.AuditRecord

// AuditOptions filter Audit.
type AuditOptions struct {
	Task  string // the id of a task; empty: all tasks
	Limit int    // default 100
}

// Audit returns the audit records of the tenant's tool calls, the latest first. They are kept for 90 days.
func (c *Client) Audit(ctx context.Context, o AuditOptions) ([]AuditRecord, error) {
	return c.conn.audit(ctx, o)
}

func (d *httpConn) audit(ctx context.Context, o AuditOptions) ([]AuditRecord, error) {
	q := url.Values{}
	set(q, "task", o.Task)
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	var list []AuditRecord
	err := d.json(ctx, &list, call{path: []string{"v1", "audit"}, query: q})
	return list, err
}

func (d *natsConn) audit(ctx context.Context, o AuditOptions) ([]AuditRecord, error) {
	if !d.all {
		return nil, fleetOnly()
	}
	list, err := d.jobs.AuditTrail(ctx, d.tenant, jobs.AuditOptions(o))
	return list, unmarked(queueError(err))
}
