// Package plugin adds an operator's rules to a worker. A plugin is a Go value with one or more of the hooks below.
// Package plugin/workermain runs a worker with plugins. To add tools, use an MCP server (mcp_servers in the settings)
// or register tools with package client instead of a plugin.
//
// For each task, a worker invokes the hooks in this order:
//
//	select     after tools were selected for a description; in every run
//	generate   after a program was written for a description, or could not be written; once per task, because the
//	           program is recorded
//	validate   after a sandbox has parsed a program, before the program runs; for every program and every run, unless
//	           strict guardrails refuse the program or the task is check_only
//	call       when the program calls a tool; possibly for several calls at once
//	result     after the program has ended, before anything of the run is recorded
//
// If several plugins have a hook, the worker invokes them in their given order, each with what the previous one
// returned.
//
// The time limit of a hook is Deadline or, for generate, GenerateDeadline. When it is exceeded, the hook's context ends
// and the worker continues. A panic or an exceeded limit counts as an error of the hook. Each interface documents what
// an error does; no error ends the worker. Hooks are trusted code that runs in the worker's process. They must be safe
// for concurrent use. They must not change their arguments, except Result, and must not use them after they return.
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
	Name() string // for logs and errors; unique in a worker
}

// Selector changes the tools with which a description's program is written.
type Selector interface {
	// Select returns the ids of the tools, best first. The worker drops tools that the task may not use, and the last
	// tools if there are more than the task's tools.max. After an error the selection is unchanged, and the worker logs
	// a warning.
	Select(ctx context.Context, t Task, s Selection) ([]string, error)
}

// Generator changes the program that is written for a description.
type Generator interface {
	// Generate returns the program, or "" to keep the draft. After an error the worker keeps the draft and logs a
	// warning. If a plugin's program fails, it is not repaired.
	Generate(ctx context.Context, t Task, d Draft) (string, error)
}

// Validator decides whether a program may run.
type Validator interface {
	// Validate returns nil to run the program. After a *Refusal, the task ends blocked with the refusal's code and
	// message. After any other error the program does not run, and the task is retried, up to its retry.attempts or
	// else queue.attempts.
	Validate(ctx context.Context, t Task, p Program) error
}

// Caller reviews tool calls before the fleet's own checks. The fleet authorises, validates, records and replays the
// call with the returned arguments as if the program had made it. Tools that run inside the sandbox (filesystem,
// database) are not reviewed.
//
// When a task runs again, its calls are reviewed again, and calls with equal arguments are replayed from the journal.
// Therefore Call must return the same arguments for the same task and call. Otherwise the call counts as a different
// call, and a call with effects fails as in_doubt, because making it could repeat the effects.
type Caller interface {
	// Call returns the new arguments, a JSON object, or nil to keep the arguments. After an error the call is not made,
	// and the program gets a ToolError: for a *Refusal with its message and the code "forbidden", otherwise without
	// details and with the code "internal".
	Call(ctx context.Context, t Task, c Call) (json.RawMessage, error)
}

// Resulter redacts and annotates the outcome of a program before it is committed and recorded. A worker with a Resulter
// does not publish output until the hook has returned.
type Resulter interface {
	// Result changes r. After an error nothing of the run is committed or recorded, and the task is retried as under
	// Validate, with its tool calls replayed.
	Result(ctx context.Context, t Task, r *Result) error
}

// Task describes a task. It is the same in every run.
type Task struct {
	ID, Tenant, Workspace, Session string
	Data                           schemas.Task // as submitted
}

// Selection describes the tools that the fleet selected.
type Selection struct {
	Available []Tool   // the tools that the task may use
	Selected  []string // ids of the selected tools, best first
}

// Tool is one tool.
type Tool struct {
	Server, Name string
	Signature    string // signature of its Python function, one line
	Description  string // written by its server, so untrusted
}

// ID returns "server/tool".
func (t Tool) ID() string { return t.Server + "/" + t.Name }

// Draft is the program that was written for a description.
type Draft struct {
	Tools []Tool // the selected tools
	Code  string // empty if neither the model nor the rules wrote a program
	By    string // llm | rules | plugin; empty if Code is empty
}

// Program is a program that is about to run. Python's parser in the sandbox has found its imports and calls.
type Program struct {
	Code      string
	By        string // caller | llm | rules | plugin | skill
	Imports   []Import
	Calls     []Use // calls by dotted name, with imports resolved: "os.system", "open"
	Truncated bool  // whether Imports or Calls was truncated at 1,000 elements
}

// Import is an import statement.
type Import struct {
	Module string
	Names  []string // the imported names of a from-import
	Line   int
}

// Use is a name used on a line of a program.
type Use struct {
	Name string
	Line int
}

// Call is a tool call by a program. Its fields are untrusted.
type Call struct {
	Server, Tool string
	Args         json.RawMessage
}

// Result is the part of a program's outcome that plugins may change. A plugin must not add an Error or a Checkpoint if
// it is nil, nor remove an Error. The code of an Error begins with a lower-case letter; lower-case letters, digits and
// underscores follow.
type Result struct {
	Status     schemas.Status // read only
	Value      json.RawMessage
	Checkpoint json.RawMessage // what the program has set for its session, a JSON object; nil sets none
	Output     string
	Stderr     string
	Error      *schemas.Error
	Labels     map[string]string // added to the task's labels; they override labels of the same name
	Notes      []schemas.Finding // added to the result's guardrails; Level is info (the default) or warning
}

// Refusal is a plugin's decision to refuse a program or a call. From another hook it is an ordinary error.
type Refusal struct { //nolint:errname // it is a decision first
	Code    string // error code of a refused program, such as "import_refused"; "refused" if empty or invalid
	Message string // what is refused and why
	Hint    string // what to do instead
	Line    int    // line of the program; 0 if unknown
}

func (r *Refusal) Error() string { return r.Message }
