// Package broker passes a program's tool calls to the tools. Every call goes through the same layers in
// the same order. The package knows no protocol and starts no process; its user provides the upstream, the
// journal, the audit and the hooks. The key type is Execution.
//
// These are the layers, from the program to the tool, one file each:
//
//	span       records a span in the task's trace
//	audit      writes audit records before and after the call, or rejects it
//	budget     limits calls, bytes, concurrency and time
//	authorise  checks the allow-lists of the task and its tenant
//	definition checks that the definition is approved, and that the module was generated from it
//	replay     returns the result that an earlier run of the task recorded
//	record     records the result, as the program gets it, in the journal
//	restore    replaces privacy tokens in the arguments with their values, and values in errors with tokens (hooks)
//	arguments  validates the arguments against the tool's schema
//	policy     allows or denies the call, or requires approval (hook)
//	rate       waits for the tenant's rate of calls (hook)
//	intent     records a mutating call in the journal before it is made
//	convert    validates the result, spills its files and large values, tokenises it (hook)
//	upstream   makes the call
//
// Two future layers have a place here. Taint tracking (which server a value came from, and whether it may
// leave through an open-world tool) belongs between restore and policy, with input from convert. A circuit
// breaker belongs between intent and upstream, so that a call that it rejects is recorded as not made.
package broker

import (
	"cmp"
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

// Call is one tool call of a program.
type Call struct {
	Server, Tool string
	Hash         string          // the definition from which the module was generated; empty if unknown
	Args         json.RawMessage // a JSON object
	Progress     func(message string, done, total float64)
	Refused      *Error // why a plugin refused the call; nil if it did not

	def          tools.Tool      // set by definition
	key          Key             // set by replay
	version      uint64          // version of the journal entry; 0 if there is none; set by replay
	originalArgs json.RawMessage // Args with privacy tokens; set by replay
	record       *AuditRecord    // set by audit, completed by policy
}

// ID returns "server/tool".
func (c Call) ID() string { return c.Server + "/" + c.Tool }

// Result is what the program gets.
type Result struct {
	Value    json.RawMessage // any JSON value
	Content  json.RawMessage // a list of what the tool returned besides its structured content; nil if nothing
	Replayed bool            // from the journal

	raw   *tools.Result // set by upstream, for convert
	files []File        // written for this call; for record and size
}

// size returns the bytes of the result, with its files.
func (r Result) size() int {
	n := len(r.Value) + len(r.Content)
	for _, f := range r.files {
		n += len(f.Data)
	}
	return n
}

// handler makes a call.
type handler func(ctx context.Context, c Call) (Result, error)

// layer passes a call to the next handler, or handles it itself.
type layer func(ctx context.Context, c Call, next handler) (Result, error)

// Upstream calls a tool. An example is mcp.Manager.Call.
type Upstream func(ctx context.Context, r tools.Request) (tools.Result, error)

// Hooks let other parts of the fleet act on a call. A nil hook does nothing, but without Approve, calls that need
// approval are rejected, and without Spill, results that would become files are errors. The privacy filter consists of
// Restore, Tokenise, Seal, Open and Excerpt.
type Hooks struct {
	// Restore returns the arguments with values in place of privacy tokens, if the tool may have them.
	Restore func(ctx context.Context, c Call) (json.RawMessage, error)
	// Tokenise returns a result with privacy tokens in place of values.
	Tokenise func(ctx context.Context, c Call, v json.RawMessage) (json.RawMessage, error)
	// Seal finds the privacy tokens in texts that the journal will record, and returns their values encrypted. Open
	// decrypts the values when a later run, perhaps of another worker, replays the entry. If Open is nil or fails,
	// Restore does not know these values.
	Seal func(recorded ...[]byte) ([]byte, error)
	Open func(sealed []byte) error
	// Rate waits until a call of the tool with these names may begin, or returns why it may not.
	Rate    func(ctx context.Context, names []string) error
	Approve Approver // decides about calls for RequireApproval
	Spill   Spill    // stores results that are too large, or not JSON
	// Excerpt returns the arguments or the result of a call with privacy tokens in place of values, for Calls.
	Excerpt func(ctx context.Context, v json.RawMessage) json.RawMessage
}

// Spill writes a file that the program can read, and returns its path in the box. The path depends only
// on the name, because a later run spills the files of a replayed result again.
type Spill func(ctx context.Context, name, mediaType string, data []byte) (path string, err error)

// Task identifies the run of a task that makes the calls.
type Task struct {
	ID, Tenant, Session string
	Run                 int      // from 1; later runs read the journal
	Allow               []string // "server/tool", "server/*" or "*"; nil allows nothing. See Narrow
	Corrected           bool     // the program was corrected after an earlier attempt, so it may make other calls
}

// Config configures an Execution. Task, Catalogue, Upstream, Journal and Audit are required.
type Config struct {
	Task      Task
	Catalogue *tools.Listing // the version that the task keeps
	Upstream  Upstream
	Journal   Journal
	Audit     Audit
	Hooks     Hooks
	Budget    Budget
	Policy    Policy
	Schemas   *Schemas     // shared by executions; the default is a new cache
	SpillAt   int          // results over this many bytes become files; the default is 256 KiB
	Log       *slog.Logger // the default is slog.Default
	Tracer    trace.Tracer // the default records no spans
	// Exit ends when the process exits: writes to the journal and the audit are then abandoned, and the run is lost.
	// The default never ends.
	Exit context.Context //nolint:containedctx // the lifetime of the process
}

// Execution handles the calls of one run of a task. It is safe for concurrent use. Close it when the
// program has ended.
type Execution struct {
	cfg        Config
	handle     handler
	journal    *journalWriter
	opened     time.Time
	audits     *auditQueue
	persister  persister
	overBudget atomic.Bool // a budget is exhausted; set by budget

	mu    sync.Mutex
	calls []AuditRecord
}

// New opens an execution. From the task's second run on, it reads the journal.
func New(ctx context.Context, cfg Config) (*Execution, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("open broker of task %s: %w", cfg.Task.ID, err)
	}
	e := &Execution{
		cfg: cfg, opened: time.Now(), audits: newAuditQueue(),
		journal: &journalWriter{journal: cfg.Journal, log: cfg.Log}, persister: persister{exit: cfg.Exit},
	}
	e.journal.persister = &e.persister
	cfg.Audit = persistentAudit{cfg.Audit, &e.persister}
	past, err := openReplayLog(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open broker of task %s: %w", cfg.Task.ID, err)
	}
	e.handle = chain(upstream(cfg),
		span(cfg), audit(cfg, e), budget(cfg.Budget, &e.overBudget), authorise(cfg), definition(cfg), replay(cfg, past),
		record(cfg, e.journal), restore(cfg.Hooks), arguments(cfg.Schemas), policy(cfg), rate(cfg),
		intent(cfg, e.journal), convert(cfg))
	return e, nil
}

// check validates the configuration and sets the defaults.
func (cfg *Config) check() error {
	switch {
	case cfg.Catalogue == nil || cfg.Upstream == nil || cfg.Journal == nil || cfg.Audit == nil:
		return errors.New("a catalogue, an upstream, a journal and an audit are required")
	case cfg.Task.ID == "" || cfg.Task.Tenant == "" || cfg.Task.Run < 1:
		return errors.New("a task, a tenant and a run are required")
	}
	if err := cfg.Policy.check(); err != nil {
		return err
	}
	cfg.Budget = cfg.Budget.withDefaults()
	cfg.Schemas = cmp.Or(cfg.Schemas, NewSchemas())
	cfg.SpillAt = cmp.Or(cfg.SpillAt, 256<<10)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Exit == nil {
		cfg.Exit = context.Background()
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	return nil
}

// chain wraps inner in the layers; the first is the outermost.
func chain(inner handler, layers ...layer) handler {
	for _, layer := range slices.Backward(layers) {
		next := inner
		inner = func(ctx context.Context, c Call) (Result, error) { return layer(ctx, c, next) }
	}
	return inner
}

// Call makes one call and returns the result for the program. Every error is an *Error or the cause of
// ctx.
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

// AddLocal adds a call of a local tool to Calls, as the program reported it (untrusted). The call ran in
// the box and passed no layer. AddLocal ignores calls of other tools, and limits ms to the time since New.
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
		Server: t.Server, Tool: t.Name, Started: now.Add(-time.Duration(ms * float64(time.Millisecond))),
		MS: ms, OK: ok, Local: true,
	})
}

// Calls returns the audit records of the completed calls, in order of completion.
func (e *Execution) Calls() []AuditRecord {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

// Close waits until all results are in the journal and all calls are audited, or until ctx ends. An error
// means that the run is lost, because a record of a call could not be written. If only the result of a
// read-only call is missing, Close logs that: another run repeats the call. Close may be called again.
func (e *Execution) Close(ctx context.Context) error {
	if err := e.journal.wait(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		e.cfg.Log.WarnContext(ctx, "recording of tool results failed", "task_id", e.cfg.Task.ID, "error", err)
	}
	if err := e.audits.wait(ctx); err != nil {
		return fmt.Errorf("audit the tool calls of task %s: %w", e.cfg.Task.ID, err)
	}
	if err := e.persister.failure(); err != nil {
		return fmt.Errorf("record the tool calls of task %s: %w", e.cfg.Task.ID, err)
	}
	return nil
}

func millisecondsSince(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }
