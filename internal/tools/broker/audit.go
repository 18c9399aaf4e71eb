package broker

import (
	"context"
	"errors"
	"time"

	"github.com/codefleet/codefleet/internal/tools"
)

// Audit keeps a durable record of calls. An error of Begin stops the call, so that none is made
// that nobody knows of; after an error of End the program gets no answer. End is tried for as long as
// its context lives.
type Audit interface {
	Begin(ctx context.Context, e Entry) error
	End(ctx context.Context, e Entry) error
}

// Entry is what the audit knows of a call. Arguments and answers are not in it, only their sizes
// and the digest of the arguments as the program gave them, that is with tokens.
type Entry struct {
	Task, Tenant, Session string
	Attempt               int
	Server, Tool          string
	Mutates               bool // as far as is known, the call may change something
	ArgsHash              string
	ArgsBytes             int
	Started               time.Time

	MS          float64
	OK          bool
	Code        Code // of the error; empty when OK
	Replayed    bool
	Local       bool // made in the box: the program's own word, in no audit
	ResultBytes int
}

// auditGrace is how long the end of a call is tried to be written after its task was cancelled.
const auditGrace = 10 * time.Second

func audit(cfg Config, e *Execution) func(Caller) Caller {
	return func(next Caller) Caller {
		return func(ctx context.Context, c Call) (Result, error) {
			entry := Entry{
				Task: cfg.Task.ID, Tenant: cfg.Task.Tenant, Session: cfg.Task.Session, Attempt: cfg.Task.Attempt,
				Server: tools.Visible(c.Server), Tool: tools.Visible(c.Tool), ArgsHash: argsHash(c.Args), ArgsBytes: len(c.Args), Started: time.Now(),
			}
			if t, err := cfg.Catalogue.Lookup(c.Server, c.Tool); err == nil {
				entry.Mutates = t.State != tools.Local && t.Annotations.Mutates()
			}
			if err := cfg.Audit.Begin(ctx, entry); err != nil {
				return Result{}, fail(c, Internal, "the call was not made: it could not be put on record")
			}
			r, err := next(ctx, c)
			entry.MS, entry.OK, entry.Replayed, entry.ResultBytes = since(entry.Started), err == nil, r.Replayed, len(r.Value)
			if failure, ok := errors.AsType[*Error](asError(ctx, c, err)); ok && err != nil {
				entry.Code = failure.Code
			}
			e.mu.Lock()
			e.calls = append(e.calls, entry)
			e.mu.Unlock()
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditGrace)
			defer cancel()
			if lost := cfg.Audit.End(late, entry); lost != nil {
				cfg.Log.ErrorContext(ctx, "end of a tool call not on record", "task_id", cfg.Task.ID, "tool", c.ID(), "error", lost)
				if err == nil {
					failed := fail(c, Internal, "the call was made, but could not be put on record")
					failed.Sent = true
					return Result{}, failed
				}
			}
			return r, err
		}
	}
}
