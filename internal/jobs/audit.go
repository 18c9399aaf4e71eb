package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// auditMargin extends the time in which auditOf looks for a task's audit records: the clocks of the queue and of the
// other hosts may differ, and a worker may write a record after the task has ended.
const auditMargin = 10 * time.Minute

// AuditTrail returns the latest audit records of a tenant, newest first.
func (c *Client) AuditTrail(ctx context.Context, tenant string, opts AuditOptions) ([]schemas.AuditRecord, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	all, err := c.auditRecords(ctx, tenant, opts)
	if err != nil {
		return nil, fmt.Errorf("read audit records: %w", err)
	}
	// Concurrent calls may be stored in another order than that of their times.
	slices.SortStableFunc(all, func(a, b schemas.AuditRecord) int { return b.Time.Compare(a.Time) })
	return all, nil
}

func (c *Client) auditRecords(ctx context.Context, tenant string, opts AuditOptions) ([]schemas.AuditRecord, error) {
	if opts.Task != "" {
		switch r, err := c.find(ctx, tenant, opts.Task); {
		case err == nil:
			return c.auditOf(ctx, r.Record, opts.Limit)
		case !errors.Is(err, ErrUnknownTask):
			return nil, err
		} // without the record, search all: audit records are kept longer
	}
	parse := func(m *nats.Msg) (e schemas.AuditRecord, ok bool, err error) {
		err = json.Unmarshal(m.Data, &e)
		return e, opts.Task == "" || e.TaskID == opts.Task, err
	}
	return latest(ctx, c, streamAudit, auditPrefix+tenant, opts.Limit, parse)
}

// auditOf returns the latest audit records of a task. It reads only the time from the task's submission to its end,
// with margins, because the tenant's other tasks may have made many calls.
func (c *Client) auditOf(ctx context.Context, r schemas.Record, limit int) (all []schemas.AuditRecord, err error) {
	over := errors.New("the task has ended")
	err = c.readSince(ctx, streamAudit, auditPrefix+r.Tenant, r.SubmittedAt.Add(-auditMargin), func(m *nats.Msg) error {
		written, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
		if err != nil {
			return fmt.Errorf("time of an audit record: %w", err)
		}
		if !r.EndedAt.IsZero() && written.After(r.EndedAt.Add(auditMargin)) {
			return over
		}
		var e schemas.AuditRecord
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return err
		}
		if e.TaskID == r.TaskID {
			all = append(all, e)
		}
		return nil
	})
	if errors.Is(err, over) {
		err = nil
	}
	slices.Reverse(all)
	return all[:min(len(all), cmp.Or(max(0, limit), defaultList))], err
}
