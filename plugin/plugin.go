// Package plugin is how an organisation adds rules of its own to a worker: a plugin is a Go value with
// one or more of the hooks below, and package plugin/workermain runs a worker with it. What runs tools in
// a process of its own needs no plugin: it is an MCP server (mcp_servers of the configuration).
//
// Hooks are called in this order in the life of a task, and the plugins of a worker in the order in
// which they were given, each with what the one before it left:
//
//	select     a description's tools were chosen
//	generate   a description's program was written; once, for it is on record before its first run
//	validate   a program is in its sandbox and begins when all have let it; every program, every run
//	call       the program calls a tool; several calls may be under way
//	result     the program has ended, and nothing of that is on record yet
//
// A hook has Deadline (GenerateDeadline) to answer; then its context ends and nobody waits for it any
// more. A hook that panics or is late is one that returned an error. What an error means is with each
// interface; it never ends the worker. Hooks are called by several goroutines, and run in the worker's
// process: they are trusted code. What they are given belongs to them for the length of the call and
// is, but for Result, to be read only.
package plugin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// How long hooks have.
const (
	Deadline         = 5 * time.Second
	GenerateDeadline = time.Minute
)

// Plugin is a value with at least one of the hooks.
type Plugin interface {
	Name() string // in logs and errors; unique in a worker
}

// Selector changes which tools a description's program is written with.
type Selector interface {
	// Select returns the ids of the tools, best first. What the task may not use is left out, and what
	// is over its maximum. After an error the tools stay as they were, and the worker logs a warning.
	Select(ctx context.Context, t Task, s Selection) ([]string, error)
}

// Generator changes the program that is written for a description.
type Generator interface {
	// Generate returns the program, or "" to leave it as it is. After an error it stays as it was, and
	// the worker logs a warning. A program of a plugin is not repaired when it fails.
	Generate(ctx context.Context, t Task, d Draft) (string, error)
}

// Validator decides whether a program may run.
type Validator interface {
	// Validate returns nil, or a *Refusal: the task ends blocked, with its code and message. Any other
	// error is one of the fleet: the program does not run, and the task is tried again, as often as
	// queue.attempts says.
	Validate(ctx context.Context, t Task, p Program) error
}

// Caller sees the tool calls of programs before the fleet's own checks do, so that what it makes of a
// call is authorised, validated, recorded and replayed as if the program had written it. Tools that run
// inside the sandbox (filesystem, database) are not seen.
//
// When a task is run again, its calls are asked about again, and answered from the journal where they
// are the same: return the same for the same task and call. A plugin that does not makes another call
// of it, and one that may change something then ends in_doubt rather than be made twice.
type Caller interface {
	// Call returns the arguments, a JSON object, or nil to leave them. After any error the call is not
	// made: the program gets a ToolError, with the message of a *Refusal (code "forbidden"), or without
	// what went wrong (code "internal").
	Call(ctx context.Context, t Task, c Call) (json.RawMessage, error)
}

// Resulter redacts and annotates what a program left, before the commit, the record and the caller see
// it. While a worker has one, live output is held back until it has answered.
type Resulter interface {
	// Result changes r. An error is one of the fleet: nothing of the run is committed or recorded, and
	// the task is tried again, as often as queue.attempts says; its tool calls replay.
	Result(ctx context.Context, t Task, r *Result) error
}

// Task is what hooks know of a task. It is the same in every run.
type Task struct {
	ID, Tenant, Workspace, Session string
	Data                           schemas.Task // as submitted
}

// Selection is the fleet's choice of tools.
type Selection struct {
	Available []Tool   // that the task may use
	Selected  []string // ids, best first
}

// Tool is one tool.
type Tool struct {
	Server, Name string
	Signature    string // of its Python function, one line
	Description  string // by its server: untrusted
}

// ID is "server/tool".
func (t Tool) ID() string { return t.Server + "/" + t.Name }

// Draft is a program that was written for a description.
type Draft struct {
	Tools []Tool // the selected ones
	Code  string // empty: neither model nor rules could write it
	By    string // llm | rules | plugin; empty with Code
}

// Program is a program that is about to run. What it is made of was found by Python's own parser in the
// sandbox; each list is cut at 1,000 entries.
type Program struct {
	Code      string
	By        string // caller | llm | rules | plugin
	Imports   []Import
	Calls     []Use // of dotted names, with imports resolved: "os.system", "open"
	Truncated bool  // a list was cut
}

// Import is one imported module. Names are what a from-import takes from it.
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

// Call is a tool call of a program: wishes of untrusted code.
type Call struct {
	Server, Tool string
	Args         json.RawMessage
}

// Result is what a program left, as far as plugins change it. Error stays nil where it is nil, and
// filled where it is not.
type Result struct {
	Status schemas.Status // read only
	Value  json.RawMessage
	Output string
	Stderr string
	Error  *schemas.Error
	Labels map[string]string // beside, and before, those of the task
	Notes  []schemas.Finding // added to the result's guardrails; Level is info (default) or warning
}

// Refusal is the decision of a plugin that something may not be.
type Refusal struct { //nolint:errname // it is a decision first
	Code    string // for programs, as "import_refused"; empty: "refused"
	Message string // what is refused and why
	Hint    string // what to do instead
	Line    int    // of the program; 0: none
}

func (r *Refusal) Error() string { return r.Message }
