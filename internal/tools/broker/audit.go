package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// Audit keeps a durable record of calls. An error of Begin stops the call, so that none is made
// that nobody knows of. End is tried for as long as its context lives; after an error the program gets
// no answer, or, where it has it already, no further one.
type Audit interface {
	Begin(ctx context.Context, e AuditRecord) error
	// Decided tells who approved or denied a call, before it is made. An error stops it.
	Decided(ctx context.Context, e AuditRecord) error
	End(ctx context.Context, e AuditRecord) error
}

// Entry is what the audit knows of a call. Arguments and answers are not in it, only their sizes
// and the digest of the arguments as the program gave them, that is with tokens.
type AuditRecord struct {
	Task, Tenant, Session string
	Run                   int
	Server, Tool          string
	Mutates               bool // as far as is known, the call may change something
	ArgsHash              string
	ArgsBytes             int
	Started               time.Time

	MS          float64
	OK          bool
	Code        string // of the error; empty when OK
	Replayed    bool
	Local       bool // made in the box: the program's own word, in no audit
	ResultBytes int

	ArgsExcerpt, ResultExcerpt string // in Calls only, of a call that changed something: the beginnings of arguments and answer, with tokens

	Call       string        // of one that somebody was asked about: its name within the task
	Approval   ApprovalState // what they said; empty: nobody was asked
	ApprovedBy string        // who said so
}

// auditGrace is how long the end of a call is tried to be written after its task was cancelled.
const auditGrace = 10 * time.Second

// trail are the ends of calls that are being put on record while the program goes on.
type auditQueue struct {
	slots chan struct{} // as many as may be under way
	mu    sync.Mutex
	last  chan struct{} // closed when all so far are done; nil: there was none
	err   error
}

// unsettled is how many ends may be under way; a program that calls faster waits.
const maxPendingAudits = 16

func newAuditQueue() *auditQueue { return &auditQueue{slots: make(chan struct{}, maxPendingAudits)} }

// later writes without making the caller wait, while there is room.
func (t *auditQueue) enqueue(write func() error) {
	t.slots <- struct{}{}
	t.mu.Lock()
	before, done := t.last, make(chan struct{})
	t.last = done
	t.mu.Unlock()
	go func() { // ends at the latest with auditGrace; Close waits
		err := write()
		if before != nil {
			<-before
		}
		t.mu.Lock()
		t.err = errors.Join(t.err, err)
		t.mu.Unlock()
		close(done)
		<-t.slots
	}()
}

// lost is an error when something could not be put on record.
func (t *auditQueue) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// settled waits until all is on record.
func (t *auditQueue) wait(ctx context.Context) error {
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	if last != nil {
		select {
		case <-last:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return t.failure()
}

// maxExcerpt bounds what Calls keeps of a call's arguments and of its result, in bytes each.
const maxExcerpt = 500

// audit puts calls on record. The end of a call that may change something is there before its answer
// goes to the program; that of another one, before the next call that may change something and before
// Close returns. Of the calls that come after a budget is used up, the first is put on record; no
// further one can be made, however many a program tries.
func audit(cfg Config, e *Execution) func(handler) handler {
	return func(next handler) handler {
		return func(ctx context.Context, c Call) (Result, error) {
			if e.overBudget.Load() {
				return next(ctx, c)
			}
			entry := AuditRecord{
				Task: cfg.Task.ID, Tenant: cfg.Task.Tenant, Session: cfg.Task.Session, Run: cfg.Task.Run,
				Server: text.Printable(c.Server), Tool: text.Printable(c.Tool), ArgsHash: argsHash(c.Args), ArgsBytes: len(c.Args), Started: time.Now(),
			}
			if t, err := cfg.Catalogue.Lookup(c.Server, c.Tool); err == nil {
				entry.Mutates = t.State != tools.Local && t.Annotations.Mutates()
			}
			err := e.audits.failure()
			if entry.Mutates {
				err = e.audits.wait(ctx)
			}
			if err != nil {
				if ctx.Err() != nil {
					return Result{}, err
				}
				return Result{}, fail(c, errcode.Internal, "the call was not made: an earlier one could not be put on record")
			}
			if err := cfg.Audit.Begin(ctx, entry); err != nil {
				return Result{}, fail(c, errcode.Internal, "the call was not made: it could not be put on record")
			}
			c.record = &entry
			r, err := next(ctx, c)
			entry.MS, entry.OK, entry.Replayed, entry.ResultBytes = millisecondsSince(entry.Started), err == nil, r.Replayed, len(r.Value)
			if failure, ok := errors.AsType[*Error](asError(ctx, c, err)); ok && err != nil {
				entry.Code = failure.Code
				e.overBudget.CompareAndSwap(false, failure.Code == errcode.OverBudget)
			}
			told := entry
			if entry.Mutates && entry.OK {
				told.ArgsExcerpt, told.ResultExcerpt = text.Truncate(string(c.Args), maxExcerpt), text.Truncate(string(r.Value), maxExcerpt)
			}
			e.mu.Lock()
			e.calls = append(e.calls, told)
			e.mu.Unlock()
			end := func() error {
				late, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditGrace)
				defer cancel()
				lost := cfg.Audit.End(late, entry)
				if lost != nil {
					cfg.Log.ErrorContext(ctx, "end of a tool call not on record", "task_id", cfg.Task.ID, "tool", c.ID(), "error", lost)
				}
				return lost
			}
			if !entry.Mutates {
				e.audits.enqueue(end)
				return r, err
			}
			if lost := end(); lost != nil && err == nil {
				failed := fail(c, errcode.Internal, "the call was made, but could not be put on record")
				failed.Sent = true
				return Result{}, failed
			}
			return r, err
		}
	}
}
