// Package plugin adds an organisation's own rules to a worker. A plugin is a Go value with one or more of
// the hooks below; package plugin/workermain runs a worker with it. Tools in a process of their own need no
// plugin: they are an MCP server (mcp_servers of the configuration).
//
// A worker invokes the hooks in this order in the life of a task, and the plugins in the order in which
// they were given, each with what the previous one returned:
//
//	select     after tools were selected for a description
//	generate   after a program was written for a description; once, because the program is recorded
//	validate   before a program begins, in its sandbox; for every program and every run
//	call       when the program calls a tool; possibly several calls at once
//	result     after the program has ended, before any of it is recorded
//
// A hook has a time limit, Deadline or GenerateDeadline; then its context ends and the worker continues
// without it. A hook that panics or exceeds its limit counts as one that returned an error. Each interface
// says what an error means; it never ends the worker. Hooks are trusted code: several goroutines invoke
// them, in the worker's process. They may keep their arguments until they return, and must not change
// them, except for Result.
package plugin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Time limits of hooks.
const (
	Deadline         = 5 * time.Second
	GenerateDeadline = time.Minute
)

// Plugin is a value with at least one of the hooks.
type Plugin interface {
	Name() string // in logs and errors; unique in a worker
}

// Selector changes the tools with which a description's program is written.
type Selector interface {
	// Select returns the ids of the tools, best first. The worker drops tools that the task may not use, and
	// those above its maximum. After an error the selection is unchanged, and the worker logs a warning.
	Select(ctx context.Context, t Task, s Selection) ([]string, error)
}

// Generator changes the program that is written for a description.
type Generator interface {
	// Generate returns the program, or "" to keep the draft. After an error the draft is kept, and the worker
	// logs a warning. A plugin's program is not repaired when it fails.
	Generate(ctx context.Context, t Task, d Draft) (string, error)
}

// Validator decides whether a program may run.
type Validator interface {
	// Validate returns nil, or a *Refusal: the task ends blocked, with its code and message. After any other
	// error the program does not run, and the task is retried, up to queue.attempts.
	Validate(ctx context.Context, t Task, p Program) error
}

// Caller reviews tool calls before the fleet's own checks. The call that it returns is authorised,
// validated, recorded and replayed as if the program had made it. Tools that run inside the sandbox
// (filesystem, database) are not reviewed.
//
// When a task runs again, its calls are reviewed again, and equal calls are replayed from the journal. So
// return the same for the same task and call. Otherwise the call counts as another one, and a mutating
// call ends in_doubt instead of being made twice.
type Caller interface {
	// Call returns the arguments, a JSON object, or nil to keep them. After any error the call is not made
	// and the program gets a ToolError: with the message of a *Refusal (code "forbidden"), or without details
	// (code "internal").
	Call(ctx context.Context, t Task, c Call) (json.RawMessage, error)
}

// Resulter redacts and annotates the outcome of a program, before the commit and the record. A worker with
// a Resulter holds back live output until the hook has returned.
type Resulter interface {
	// Result changes r. After an error nothing of the run is committed or recorded, and the task is retried,
	// up to queue.attempts; its tool calls are replayed.
	Result(ctx context.Context, t Task, r *Result) error
}

// Task describes a task. It is the same in every run.
type Task struct {
	ID, Tenant, Workspace, Session string
	Data                           schemas.Task // as submitted
}

// Selection is the tools that the fleet selected.
type Selection struct {
	Available []Tool   // that the task may use
	Selected  []string // ids, best first
}

// Tool is one tool.
type Tool struct {
	Server, Name string
	Signature    string // of its Python function, one line
	Description  string // from its server: untrusted
}

// ID is "server/tool".
func (t Tool) ID() string { return t.Server + "/" + t.Name }

// Draft is the program that was written for a description.
type Draft struct {
	Tools []Tool // the selected ones
	Code  string // empty: neither model nor rules could write it
	By    string // llm | rules | plugin; empty with Code
}

// Program is a program that is about to run. Its imports and calls come from Python's parser in the
// sandbox; each list has at most 1,000 entries.
type Program struct {
	Code      string
	By        string // caller | llm | rules | plugin
	Imports   []Import
	Calls     []Use // of dotted names, with imports resolved: "os.system", "open"
	Truncated bool  // a list had more entries
}

// Import is an imported module. Names are those of a from-import.
type Import struct {
	Module string
	Names  []string
	Line   int
}

// Use is a name used on a line of a program.
type Use struct {
	Name string
	Line int
}

// Call is a tool call of a program, which is untrusted.
type Call struct {
	Server, Tool string
	Args         json.RawMessage
}

// Result is the outcome of a program, as far as plugins may change it. Error must stay nil if it is nil,
// and set if it is set.
type Result struct {
	Status schemas.Status // read only
	Value  json.RawMessage
	Output string
	Stderr string
	Error  *schemas.Error
	Labels map[string]string // added to those of the task, which they override
	Notes  []schemas.Finding // added to the result's guardrails; Level is info (default) or warning
}

// Refusal is the decision of a plugin to refuse a program or a call.
type Refusal struct { //nolint:errname // it is a decision first
	Code    string // for programs, as "import_refused"; empty: "refused"
	Message string // what is refused and why
	Hint    string // what to do instead
	Line    int    // of the program; 0: unknown
}

func (r *Refusal) Error() string { return r.Message }
