package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// audit keeps who called what, how large it was and how it ended in the stream AUDIT, and in the log.
// The program gets no answer before the line of its call is on disk. A call that may change something
// has a line more, from before it was made: whatever dies afterwards, it is on record.
type audit struct {
	queue *jobs.Client
	log   *slog.Logger
}

// line is one line of the stream. There are no arguments and no answers in it.
type line struct {
	Time        time.Time   `json:"time"`
	Event       string      `json:"event"` // begin | decided | end
	Task        string      `json:"task_id"`
	Run         int         `json:"run"`
	Tenant      string      `json:"tenant"`
	Session     string      `json:"session,omitempty"`
	Server      string      `json:"server"`
	Tool        string      `json:"tool"`
	ArgsHash    string      `json:"args_hash"`
	ArgsBytes   int         `json:"args_bytes"`
	ResultBytes int         `json:"result_bytes"`
	MS          float64     `json:"ms"`
	OK          bool        `json:"ok"`
	Code        broker.Code `json:"code,omitempty"`
	Replayed    bool        `json:"replayed"`

	Call       string          `json:"call,omitempty"`     // of a call that somebody was asked about: its name within the task
	Approval   broker.Approved `json:"approval,omitempty"` // what they said: approved, denied or expired
	ApprovedBy string          `json:"approved_by,omitempty"`
}

func (a audit) Begin(ctx context.Context, e broker.Entry) error {
	if !e.Mutates {
		return nil
	}
	return a.write(ctx, "begin", e)
}

func (a audit) Decided(ctx context.Context, e broker.Entry) error { return a.write(ctx, "decided", e) }

func (a audit) End(ctx context.Context, e broker.Entry) error {
	a.log.InfoContext(ctx, "tool call", "task_id", e.Task, "tenant", e.Tenant, "session", e.Session, "attempt", e.Attempt,
		"server", e.Server, "tool", e.Tool, "args_hash", e.ArgsHash, "args_bytes", e.ArgsBytes, "result_bytes", e.ResultBytes,
		"ok", e.OK, "code", e.Code, "replayed", e.Replayed, "ms", e.MS, "approval", e.Approval, "approved_by", e.ApprovedBy)
	return a.write(ctx, "end", e)
}

func (a audit) write(ctx context.Context, event string, e broker.Entry) error {
	data, err := json.Marshal(line{
		Time: time.Now().UTC(), Event: event, Task: e.Task, Run: e.Attempt, Tenant: e.Tenant, Session: e.Session,
		Server: e.Server, Tool: e.Tool, ArgsHash: e.ArgsHash, ArgsBytes: e.ArgsBytes,
		ResultBytes: e.ResultBytes, MS: e.MS, OK: e.OK, Code: e.Code, Replayed: e.Replayed,
		Call: e.Call, Approval: e.Approval, ApprovedBy: e.ApprovedBy,
	})
	if err != nil {
		return err
	}
	return a.queue.Audit(ctx, e.Tenant, data)
}
