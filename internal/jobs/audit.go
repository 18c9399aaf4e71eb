package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

// AppendAudit appends an entry to its tenant's audit. It is durable when Audit returns; one that is repeated
// after an error may be there twice. Entries are kept for 90 days.
func (c *Client) AppendAudit(ctx context.Context, e schemas.AuditEntry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write to the audit: %w", err)
	}
	msg := nats.NewMsg(auditPrefix + e.Tenant)
	msg.Data = data
	if _, err := c.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("write to the audit: %w", err)
	}
	return nil
}

// AuditOptions narrow AuditTrail.
type AuditOptions struct {
	Task  string // empty: all tasks
	Limit int    // default 100
}

// AuditTrail returns the latest entries of a tenant's audit, newest first.
func (c *Client) AuditTrail(ctx context.Context, tenant string, opts AuditOptions) ([]schemas.AuditEntry, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	if opts.Limit <= 0 {
		opts.Limit = defaultList
	}
	var all []schemas.AuditEntry
	err := c.latest(ctx, streamAudit, auditPrefix+tenant, func(m *nats.Msg) error {
		var e schemas.AuditEntry
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return err
		}
		if opts.Task == "" || e.TaskID == opts.Task {
			all = append(all, e)
		}
		return nil
	}, func() bool { return len(all) >= opts.Limit }, func() { all = nil })
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	all = newest(all, opts.Limit)
	slices.SortStableFunc(all, func(a, b schemas.AuditEntry) int { return b.Time.Compare(a.Time) }) // ends are written side by side
	return all, nil
}
