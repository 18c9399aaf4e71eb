package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/schemas"
)

// audit writes an audit record of each tool call to the queue, and a line to the log. A mutating call is also recorded
// before it is made, so that no crash can hide it. Package broker calls the methods, and repeats them if they fail.
type audit struct {
	queue *jobs.Client
	log   *slog.Logger
}

func (a audit) Begin(ctx context.Context, e broker.AuditRecord) error {
	if !e.Mutates {
		return nil
	}
	return a.write(ctx, schemas.AuditBegin, e.Started, e)
}

func (a audit) Decided(ctx context.Context, e broker.AuditRecord) error {
	return a.write(ctx, schemas.AuditDecided, time.Now(), e)
}

func (a audit) End(ctx context.Context, e broker.AuditRecord) error {
	a.log.InfoContext(ctx, "tool called", "task_id", e.Task, "tenant", e.Tenant, "session", e.Session,
		"run", e.Run, "server", e.Server, "tool", e.Tool,
		"args_hash", e.ArgsHash, "args_bytes", e.ArgsBytes, "result_bytes", e.ResultBytes,
		"ok", e.OK, "code", e.Code, "replayed", e.Replayed, "ms", e.MS,
		"approval", e.Approval, "approved_by", e.ApprovedBy)
	return a.write(ctx, schemas.AuditEnd, e.Started.Add(time.Duration(e.MS*float64(time.Millisecond))), e)
}

func (a audit) write(ctx context.Context, event string, at time.Time, e broker.AuditRecord) error {
	return a.queue.AppendAudit(ctx, schemas.AuditRecord{
		Time: at.UTC(), Event: event, TaskID: e.Task, Run: e.Run, Tenant: e.Tenant, Session: e.Session,
		Server: e.Server, Tool: e.Tool, ArgsHash: e.ArgsHash, ArgsBytes: e.ArgsBytes,
		ResultBytes: e.ResultBytes, MS: e.MS, OK: e.OK, Code: e.Code, Replayed: e.Replayed,
		Call: e.Call, Approval: string(e.Approval), ApprovedBy: e.ApprovedBy,
	})
}
