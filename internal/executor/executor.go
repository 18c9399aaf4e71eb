// Package executor runs untrusted Python programs in sandboxes.
//
// A [Driver] creates boxes and starts processes in them. This package does the rest for all drivers: it has
// the pool of warm boxes, limits, output caps, tool calls, verdicts, and the host's side of the protocol
// with the runner, the Python process inside each box (package runner). It does not know the queue, the
// workspace store or the tools: its caller passes a directory, a program and hooks.
//
// An error means that the fleet could not run the program. A [Verdict] means that the program ran, and says
// how it ended.
//
// # Adding a driver
//
// A driver's package implements Driver, Box and Session, and the optional interfaces in driver.go that
// apply. Its tests call executortest.TestDriver and, if its boxes are Snapshotters,
// executortest.TestRestored. A driver also needs
//
//   - a name in package drivers, against which the settings check sandbox_type and min_tier,
//   - its name in the enum of min_tier in schemas/task.v1.json (internal/assembly/sandbox tests that),
//   - its construction in internal/assembly/sandbox/sandbox.go, which chooses the sandbox, and its state
//     directory in internal/worker/dir.go,
//   - its settings in internal/config/task.go,
//   - its checks in cmd/codefleet/doctor.go,
//   - its row in internal/arch/arch_test.go and its section in docs/security.md.
package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// ErrCancelled is the cause of a cancelled Run context when a caller cancels the task. The verdict's status
// is then Cancelled. With any other cause, Run returns an error.
var ErrCancelled = errors.New("cancelled")

// ErrSandboxDied is wrapped by Run's error if the box ended for an external reason: it was killed from the
// host, or its engine failed. The program may be run again.
var ErrSandboxDied = errors.New("the sandbox died")

// Limits bound one execution. A zero field means the default.
type Limits struct {
	Timeout     time.Duration // wall time, from sending the program; default 300 s
	MemoryMB    int           // address space in addition to the interpreter's; default 512
	CPUs        float64       // processors, if the driver can limit them; also limits processor time; default 1
	OutputBytes int64         // output kept per stream, stdout and stderr; default 1 MiB
	WorkspaceMB int64         // maximum size of each file and, in a pool's box, of the workspace; default 1024
	Processes   int           // processes and threads of the program, in total; default 64
	OpenFiles   int           // open descriptors per process; default 1024
}

// OrDefaults returns the limits with each zero field replaced by its default.
func (l Limits) OrDefaults() Limits {
	return Limits{
		Timeout:     cmp.Or(l.Timeout, 300*time.Second),
		MemoryMB:    cmp.Or(l.MemoryMB, 512),
		CPUs:        cmp.Or(l.CPUs, 1),
		OutputBytes: cmp.Or(l.OutputBytes, 1<<20),
		WorkspaceMB: cmp.Or(l.WorkspaceMB, 1024),
		Processes:   cmp.Or(l.Processes, 64),
		OpenFiles:   cmp.Or(l.OpenFiles, 1024),
	}
}

// Program is a program to run.
type Program struct {
	TaskID    string // seeds the program's random numbers
	Code      string // Python source
	Inputs    json.RawMessage
	Limits    Limits
	Catalogue string            // directory of a catalogue version, in Guest.Catalogue; empty for no tools
	Env       map[string]string // added to the program's environment
	State     *StateDocument    // nil if the program cannot use the variable state
	Session   *TaskSession      // nil if the task has no session
}

// StateDocument is the document that a program finds in the variable state, if it uses that variable.
type StateDocument struct {
	File    string          // path in the workspace
	Content json.RawMessage // the document; nil if the program's process reads the file, which is JSON
	Save    bool            // write the keys that a successful program has changed into the file, as JSON
}

// TaskSession is the session of a program's task.
type TaskSession struct{ Name, File string } // File is the path of its log in the workspace

// MaxCheckpoint is the largest checkpoint, in bytes of JSON. The runner has the same limit.
const MaxCheckpoint = 16 << 10

// Hooks are a program's only connections to the outside. Each may be nil. Output, Check, Facts and Called are
// called one at a time. Network and Call may be called concurrently and must return soon after their context
// ends; a panic of theirs ends the connection or the call only. Run returns after all hooks have returned.
type Hooks struct {
	// Check is called after the program is parsed and before it runs. It is not called for a program that
	// cannot be parsed. If it returns an error, the verdict's status is Blocked, and its Error is the
	// *Failure that Check returned, or one with the error's text as its message.
	Check func(Facts) error

	// Facts is called like Check, but the program does not wait for it. It is not called if Check is set.
	Facts func(Facts)

	// Output is called with what the program prints, as it arrives, up to Limits.OutputBytes per stream.
	// stream is "stdout" or "stderr". Output must not retain data.
	Output func(stream string, data []byte)

	// Network serves one connection that the program opened to its proxy (HTTP_PROXY and so on). ctx ends
	// with the execution. If Network is nil, the program has no network access.
	Network func(ctx context.Context, conn net.Conn)

	// Call makes a tool call. The program sees an error as a ToolError, with the fields of a *CallError.
	Call func(ctx context.Context, call Call) (CallResult, error)

	// Called is called for each of the first 1,000 calls of tools that run in the program's process, in the
	// order in which they completed, as reported by the program (untrusted).
	Called func(LocalCall)

	log *slog.Logger // gets panics of Network and Call; nil if there is no pool
}

// LocalCall is a tool call inside the program's process, as reported by the program.
type LocalCall struct {
	Server, Tool string
	MS           float64
	OK           bool
}

// CallResult is the result of a tool call.
type CallResult struct {
	Value   json.RawMessage // any JSON value
	Content json.RawMessage // a list of what the tool returned in addition to Value; may be empty
}

// CallError is a tool call's error, with details that programs can handle.
type CallError struct {
	Code       string
	Err        error
	Structured json.RawMessage // structured content that the tool sent with its error; may be empty
	Content    json.RawMessage // a list of other content that the tool sent with its error; may be empty
}

func (e *CallError) Error() string { return e.Err.Error() }
func (e *CallError) Unwrap() error { return e.Err }

// Call is a tool call that the program requests. Its fields are untrusted.
type Call struct {
	ID           uint64 // unique within the execution
	Server, Tool string
	Hash         string          // identifies the definition from which the tool's module was generated; may be empty
	Args         json.RawMessage // a JSON object
}

// Facts list what a program imports and uses, each list in line order. A list is truncated to 1,000 elements, and
// a name to 200 characters. Names are dotted and resolved by the program's imports: "os.system" even after
// "from os import system as run".
type Facts struct {
	Lines      int      `json:"lines"`
	Imports    []Import `json:"imports"`
	Calls      []Name   `json:"calls"`      // called functions
	Attributes []Name   `json:"attributes"` // names that begin with two underscores, f_globals and f_builtins
	References []Name   `json:"references"` // uses, other than calls, of imported names and of functions that run code
	Paths      []Path   `json:"paths"`      // paths, or constant beginnings of paths, that are passed to file functions
	Signs      []Sign   `json:"signs"`
	Truncated  bool     `json:"truncated,omitempty"` // the lists are incomplete
}

// Path is a path that a program passes to a function.
type Path struct {
	Name  string `json:"name"`  // the function's name, such as "open" or "pathlib.Path.write_text"
	Path  string `json:"path"`  // ends in "/*" if only the directories before it are constant
	Write bool   `json:"write"` // the function changes what the path names
	Line  int    `json:"line"`
}

// Sign is a suspicious construct in a program. Kind is one of the Sign constants.
type Sign struct {
	Kind string `json:"kind"`
	Name string `json:"name"` // for SignComputedAttribute, the dotted name of what has the member; else empty
	Line int    `json:"line"`
}

// Values of Sign.Kind.
const (
	SignComputedAttribute = "computed_attribute" // access to an unknown member of a module, or to sys.modules
	SignComputedImport    = "computed_import"    // import of a module by a name that is not constant
	SignEndlessLoop       = "endless_loop"       // "while True" without break, return, raise, yield, await or exit
	SignHugeRange         = "huge_range"         // a range with an argument ≥ 10⁹, unless its loop may end early
	SignHugeValue         = "huge_value"         // 10⁹ or more bytes or repetitions, or a power of over 10⁷ bits
)

// Import is one imported module. Names lists what a from-import imports from it.
type Import struct {
	Module string   `json:"module"`
	Names  []string `json:"names,omitempty"`
	Line   int      `json:"line"`
}

// Name is a name used on a line of the program.
type Name struct {
	Name string `json:"name"`
	Line int    `json:"line"`
}

// Values of Verdict.Status.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	Timeout   = "timeout"
	Cancelled = "cancelled"
	Blocked   = "blocked"
)

// Verdict says how a program ended.
type Verdict struct {
	Status       string          // Succeeded | Failed | Timeout | Cancelled | Blocked
	Result       json.RawMessage // valid JSON, at most MaxResultBytes; null if the program has no result
	Output       string          // standard output, valid UTF-8
	Stderr       string
	Truncated    bool            // the program printed more than Output and Stderr hold
	Error        *Failure        // nil if and only if Status is Succeeded
	CPUMS        float64         // user and system time of all the program's processes
	PeakMemoryMB float64         // peak resident set size of the program's largest process
	Checkpoint   json.RawMessage // the session's new checkpoint, a JSON object; nil if the program set none
	StateSaved   bool            // the program's process has written the variable state to its document
	Dirty        bool            // the box must be destroyed: it is broken or, if it is a Single, not clean
}

// Failure says why a program did not succeed. Its codes are those of internal/errcode.
type Failure struct { //nolint:errname // primarily a part of a verdict, not an error
	Code    string `json:"code"`
	Message string `json:"message"`
	Cause   string `json:"cause,omitempty"` // such as the traceback, from the program's first frame on
	Hint    string `json:"hint,omitempty"`
	Line    int    `json:"line,omitempty"` // line of the program, counted from 1; 0 if unknown
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Message) }
