package broker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// Audit stores audit records durably. The broker repeats a method that fails until the program's time is over. If the
// last try fails, too, the run is lost.
type Audit interface {
	Begin(ctx context.Context, r AuditRecord) error // before a call is made
	// Decided stores who approved or denied a call, before the call is made or refused.
	Decided(ctx context.Context, r AuditRecord) error
	End(ctx context.Context, r AuditRecord) error // after a call has ended
}

// AuditRecord describes one call. It contains neither arguments nor result, only their sizes, and a hash of the
// arguments as the program passed them, with privacy tokens. Only the records that Execution.Calls returns also have
// excerpts of both.
type AuditRecord struct {
	Task, Tenant, Session string
	Run                   int
	Server, Tool          string
	Mutates               bool // the call may change something; false for local and unknown tools
	ArgsHash              string
	ArgsBytes             int
	Started               time.Time

	MS          float64
	OK          bool
	Code        string // the error code; empty if OK, or if the program ended during the call
	Replayed    bool
	Local       bool // made in the box and reported by the program (untrusted); in Calls only
	ResultBytes int

	// The start of the arguments and result of a successful mutating call, with privacy tokens; in Calls only.
	ArgsExcerpt, ResultExcerpt string

	// Set if the call needed approval.
	Call       string // the call's name within its task
	Approval   ApprovalState
	ApprovedBy string // who approved or denied it
}

// maxExcerpt is the maximum size of an excerpt in Calls, in bytes.
const maxExcerpt = 500

// audit writes the audit records of calls. The end of a mutating call is stored before the program gets
// the result. The end of any other call is stored before the next mutating call is made and before Close
// returns. Once a budget is exhausted, only the first rejected call is audited, however many follow.
func audit(cfg Config, e *Execution) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		if e.overBudget.Load() {
			return next(ctx, c)
		}
		record := newAuditRecord(cfg, c)
		err := e.audits.failure()
		if record.Mutates {
			err = e.audits.wait(ctx)
		}
		if err != nil {
			if ctx.Err() != nil {
				return Result{}, err
			}
			return Result{}, fail(c, errcode.Internal,
				"the call was not made, because an earlier call could not be audited")
		}
		if err := cfg.Audit.Begin(ctx, record); err != nil {
			return Result{}, fail(c, errcode.Internal, "the call was not made, because it could not be audited")
		}
		c.record = &record
		r, err := next(ctx, c)
		record.MS, record.OK = millisecondsSince(record.Started), err == nil
		record.Replayed, record.ResultBytes = r.Replayed, r.size()
		if failure, ok := errors.AsType[*Error](asError(ctx, c, err)); ok && err != nil {
			record.Code = failure.Code
		}
		e.addCall(ctx, record, c, r)
		end := func() error { return auditEnd(ctx, cfg, record) }
		if !record.Mutates {
			e.audits.enqueue(end)
			return r, err
		}
		if auditErr := end(); auditErr != nil && err == nil {
			return Result{}, markSent(fail(c, errcode.Internal, "the call was made, but could not be audited"))
		}
		return r, err
	}
}

func newAuditRecord(cfg Config, c Call) AuditRecord {
	record := AuditRecord{
		Task: cfg.Task.ID, Tenant: cfg.Task.Tenant, Session: cfg.Task.Session, Run: cfg.Task.Run,
		ArgsHash: argsHash(c.Args), ArgsBytes: len(c.Args), Started: time.Now(),
	}
	record.Server, record.Tool = knownNames(cfg.Catalogue, c)
	if t, err := cfg.Catalogue.Lookup(c.Server, c.Tool); err == nil {
		record.Mutates = t.State != tools.Local && t.Annotations.Mutates()
	}
	return record
}

// addCall adds a record to what Calls returns. Only the tenant reads these records, so they have the names that the
// program used.
func (e *Execution) addCall(ctx context.Context, record AuditRecord, c Call, r Result) {
	record.Server, record.Tool = text.PrintableLine(c.Server), text.PrintableLine(c.Tool)
	if record.Mutates && record.OK {
		record.ArgsExcerpt, record.ResultExcerpt = e.excerpt(ctx, c.Args), e.excerpt(ctx, r.Value)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, record)
}

// excerpt returns the start of a JSON text, with personal data and secrets replaced. It replaces them before it
// truncates the text, because truncated JSON no longer shows which member a string belongs to.
func (e *Execution) excerpt(ctx context.Context, v json.RawMessage) string {
	if e.cfg.Hooks.Excerpt != nil {
		v = e.cfg.Hooks.Excerpt(ctx, v)
	}
	return text.Truncate(string(v), maxExcerpt)
}

func auditEnd(ctx context.Context, cfg Config, record AuditRecord) error {
	err := cfg.Audit.End(ctx, record)
	if err != nil {
		cfg.Log.ErrorContext(ctx, "audit of tool call failed",
			"task_id", cfg.Task.ID, "tool", record.Server+"/"+record.Tool, "error", err)
	}
	return err
}
