// Package broker stands between a program in its box and the tools: every call goes through the
// same layers, in the same order, and there is no other way. It knows no protocol and starts no
// process; it is given the call of an upstream, a journal, and hooks. The key type is Execution.
//
// The layers, from the program to the tool and back, one file each:
//
//	span       one in the task's trace
//	audit      one entry before anything else and one at the end, and no call without them
//	budget     how many calls, bytes, at once, and for how long
//	authorise  the tools that the task and its tenant may use
//	definition the module's definition is the catalogue's, and somebody has approved it
//	replay     what an earlier attempt of the task recorded is the answer
//	record     the answer, as the program gets it, goes into the journal
//	restore    privacy tokens in the arguments become values again (hook)
//	arguments  the arguments fit the tool's schema
//	policy     destructive tools: allow, deny, or ask (hook)
//	intent     a mutating call is in the journal before it is made
//	answer     the tool's answer: validated, its files and large values spilled, tokenised (hook)
//	upstream   the call
//
// Not here yet, and where it would go: taint tracking (what server a value came from, and whether it
// may leave through an open-world tool) is a layer between restore and policy, fed by answer; a
// circuit breaker is a layer between intent and upstream, so that a call it refuses is known not to
// have been made.
package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/internal/tools"
)

// Call is one tool call on its way.
type Call struct {
	Server, Tool string
	Hash         string          // the definition that the program's module was made from; empty: not said
	Args         json.RawMessage // a JSON object
	Progress     func(message string, done, total float64)
	Refused      *Error // somebody before the broker refuses it: authorise does; nil: nobody

	def          tools.Tool      // set by definition
	key          Key             // set by replay
	originalArgs json.RawMessage // Args as the program gave them; set by replay
	record       *AuditRecord    // what the audit will know of it; set by audit, filled in by policy
}

// ID is "server/tool".
func (c Call) ID() string { return c.Server + "/" + c.Tool }

// Result is what the program gets.
type Result struct {
	Value    json.RawMessage // any JSON value
	Replayed bool            // from the journal

	raw   *tools.Result // set by upstream, for answer
	files []File        // spilled by answer, for record
}

// Caller makes a call, or hands it on.
type handler func(ctx context.Context, c Call) (Result, error)

// Upstream makes the call of an MCP server; mcp.Manager's method Call is one.
type Upstream func(ctx context.Context, r tools.Request) (tools.Result, error)

// Hooks are what other parts of the fleet do with a call. Nil ones do nothing.
type Hooks struct {
	Restore  func(ctx context.Context, c Call) (json.RawMessage, error)                    // tokens in the arguments become values
	Tokenise func(ctx context.Context, c Call, v json.RawMessage) (json.RawMessage, error) // values in the answer become tokens
	Approve  Approver                                                                      // under Ask
	Spill    Spill                                                                         // keeps what is too large, or no JSON, for a frame
}

// Spill writes a file that the program can read, and returns its path as the program sees it: the
// same for the same name, in a later attempt too, when a replayed answer's files are spilled again.
type Spill func(ctx context.Context, name, mediaType string, data []byte) (path string, err error)

// Task is the execution that calls belong to.
type Task struct {
	ID, Tenant, Session string
	Run                 int      // from 1; from the second on, the journal is read
	Allow               []string // "server/tool", "server/*" or "*"; nil: nothing. See Narrow
	RepeatInDoubt       bool     // the task's author has said that unsure mutating calls may be made again
}

// Config is what an execution needs.
type Config struct {
	Task      Task
	Catalogue *tools.Listing // of the version that the task pins
	Upstream  Upstream
	Journal   Journal
	Audit     Audit
	Hooks     Hooks
	Budget    Budget
	Policy    Policy
	Schemas   *Schemas // compiled schemas, shared by executions; nil: its own
	SpillAt   int      // bytes of an answer above which it becomes a file; 0: 256 KiB
	Log       *slog.Logger
	Tracer    trace.Tracer // nil: no spans
}

// Execution brokers the calls of one attempt of one task. It is safe for concurrent use; Close it
// when the program has ended.
type Execution struct {
	cfg        Config
	handle     handler
	journal    *journalWriter
	opened     time.Time
	audits     *auditQueue
	overBudget atomic.Bool // a budget is used up

	mu    sync.Mutex
	calls []AuditRecord
}

// New opens an execution. It reads the journal when an earlier attempt may have written to it.
func New(ctx context.Context, cfg Config) (*Execution, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("broker of task %s: %w", cfg.Task.ID, err)
	}
	e := &Execution{cfg: cfg, opened: time.Now(), audits: newAuditQueue(), journal: &journalWriter{journal: cfg.Journal, log: cfg.Log}}
	past, err := openReplayLog(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("broker of task %s: %w", cfg.Task.ID, err)
	}
	e.handle = chain(upstream(cfg),
		span(cfg), audit(cfg, e), budget(cfg.Budget), authorise(cfg), definition(cfg), replay(cfg, past), record(cfg, e.journal),
		restore(cfg.Hooks), arguments(cfg.Schemas), policy(cfg), intent(cfg, e.journal), answer(cfg))
	return e, nil
}

func (cfg *Config) check() error {
	switch {
	case cfg.Catalogue == nil || cfg.Upstream == nil || cfg.Journal == nil || cfg.Audit == nil:
		return errors.New("it needs a catalogue, an upstream, a journal and an audit")
	case cfg.Task.ID == "" || cfg.Task.Tenant == "" || cfg.Task.Run < 1:
		return errors.New("it needs a task, a tenant and an attempt")
	}
	if err := cfg.Policy.check(); err != nil {
		return err
	}
	cfg.Budget = cfg.Budget.withDefaults()
	if cfg.Schemas == nil {
		cfg.Schemas = NewSchemas()
	}
	if cfg.SpillAt == 0 {
		cfg.SpillAt = 256 << 10
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	return nil
}

// chain returns the call as the first layer sees it.
func chain(inner handler, layers ...func(handler) handler) handler {
	for _, layer := range slices.Backward(layers) {
		inner = layer(inner)
	}
	return inner
}

// Call makes one call and returns the JSON value that the program gets. Every error is an *Error, or
// that of ctx.
func (e *Execution) Call(ctx context.Context, c Call) (Result, error) {
	if len(c.Args) == 0 {
		c.Args = json.RawMessage("{}")
	}
	r, err := e.handle(ctx, c)
	if err == nil {
		return r, nil
	}
	return Result{}, asError(ctx, c, err)
}

// Local lists a call that the program says it made, in its box, of a tool that runs there. It went
// through no layer, and is nothing but the program's word: what names no such tool is left out.
func (e *Execution) AddLocal(server, tool string, ms float64, ok bool) {
	t, err := e.cfg.Catalogue.Lookup(server, tool)
	if err != nil || t.State != tools.Local {
		return
	}
	now := time.Now()
	ms = max(0, min(ms, float64(now.Sub(e.opened).Microseconds())/1000))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, AuditRecord{
		Task: e.cfg.Task.ID, Tenant: e.cfg.Task.Tenant, Session: e.cfg.Task.Session, Run: e.cfg.Task.Run,
		Server: t.Server, Tool: t.Name, Started: now.Add(-time.Duration(ms * float64(time.Millisecond))), MS: ms, OK: ok, Local: true,
	})
}

// Calls returns the entries of the calls that have ended, in that order.
func (e *Execution) Calls() []AuditRecord {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]AuditRecord(nil), e.calls...)
}

// Close waits until everything recorded is in the journal and every call is on record, or ctx ends. An
// error means that the audit lacks a call. (What the journal lacks is made again by another run.) It
// may be called again.
func (e *Execution) Close(ctx context.Context) error {
	if err := e.journal.wait(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		e.cfg.Log.WarnContext(ctx, "answers of tools not in the journal", "task_id", e.cfg.Task.ID, "error", err)
	}
	if err := e.audits.wait(ctx); err != nil {
		return fmt.Errorf("put the tool calls of task %s on record: %w", e.cfg.Task.ID, err)
	}
	return nil
}

// since returns the milliseconds since t.
func millisecondsSince(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }
