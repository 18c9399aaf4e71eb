package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

// AppendAudit stores an audit record for 90 days. The record is durable when AppendAudit returns. Repeating the
// call after an error may store the record twice.
func (c *Client) AppendAudit(ctx context.Context, e schemas.AuditRecord) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write audit record: %w", err)
	}
	msg := nats.NewMsg(auditPrefix + e.Tenant)
	msg.Data = data
	if _, err := c.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("write audit record: %w", err)
	}
	return nil
}

// AuditOptions narrow AuditTrail.
type AuditOptions struct {
	Task  string // empty for all tasks
	Limit int    // default 100
}

// AuditTrail returns the latest audit records of a tenant, newest first.
func (c *Client) AuditTrail(ctx context.Context, tenant string, opts AuditOptions) ([]schemas.AuditRecord, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	parse := func(m *nats.Msg) (e schemas.AuditRecord, ok bool, err error) {
		err = json.Unmarshal(m.Data, &e)
		return e, opts.Task == "" || e.TaskID == opts.Task, err
	}
	all, err := latest(ctx, c, streamAudit, auditPrefix+tenant, opts.Limit, parse)
	if err != nil {
		return nil, fmt.Errorf("read audit records: %w", err)
	}
	// Calls that end at the same time are written concurrently.
	slices.SortStableFunc(all, func(a, b schemas.AuditRecord) int { return b.Time.Compare(a.Time) })
	return all, nil
}
