// Package executor runs untrusted Python programs in sandboxes.
//
// A [Driver] creates boxes and starts processes in them. Everything else is here, once for all drivers:
// the pool of warm boxes, limits, output caps, tool calls, verdicts, and the host's side of the protocol
// with the runner, the Python process inside each box (package runner). The package knows no queue, no
// workspace store and no tool: its caller passes a directory, a program and functions.
//
// An error means that the fleet could not run the program. A [Verdict] means that the program ran, and how
// it ended.
//
// # Adding a driver
//
// The package of a driver implements Driver, Box and Session, and those of the small interfaces in
// driver.go that apply. Its tests call executortest.TestDriver, and TestRestored if its boxes are
// Snapshotters. Besides, a driver has
//
//   - a name in package drivers, from which the settings check sandbox_type and min_tier,
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
	"net"
	"time"
)

// ErrCancelled is the cause with which the context of Run is cancelled when a caller cancels the task. The
// verdict is then "cancelled"; any other cause makes Run return an error.
var ErrCancelled = errors.New("cancelled")

// ErrSandboxDied is wrapped by the error of Run if the box ended for a reason outside of it: it was killed
// from the host, or its engine failed. The program may be run again.
var ErrSandboxDied = errors.New("the sandbox died")

// Limits bound one execution. A zero field means its default.
type Limits struct {
	Timeout     time.Duration // wall time from sending the program; 300 s
	MemoryMB    int           // address space beyond the interpreter's; 512
	CPUs        float64       // processors, where the driver can limit them; each process may use Timeout × CPUs; 1
	OutputBytes int64         // kept of standard output and of standard error, each; 1 MiB
	WorkspaceMB int64         // of the largest file, and of the workspace where the driver can limit it; 1024
	Processes   int           // processes and threads of the program together; 64
	OpenFiles   int           // open descriptors per process; 1024
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

// Program is what to run.
type Program struct {
	TaskID    string // seeds the program's random numbers
	Code      string // Python source
	Inputs    json.RawMessage
	Limits    Limits
	Catalogue string            // version below the catalogue directory; empty: no catalogue
	Env       map[string]string // added to the program's environment
}

// Hooks are a program's only connections to the outside. Each may be nil. Output, Check and Called are
// called one at a time. Call may be called concurrently and must return soon after its context ends. Run
// returns after all of them have.
type Hooks struct {
	// Check is called with the facts about the program after it is parsed and before it runs. A program
	// that cannot be parsed fails without it. An error ends the task with status blocked: with that
	// error if it is a *Failure, else with its text as the message.
	Check func(Facts) error

	// Output is called with what the program prints to the stream "stdout" or "stderr", as it arrives,
	// truncated at Limits.OutputBytes. It must not keep data.
	Output func(stream string, data []byte)

	// Network serves one connection that the program opened to its proxy (HTTP_PROXY and so on). ctx
	// ends with the execution. Several run at once. If it is nil the program has no network.
	Network func(ctx context.Context, conn net.Conn)

	// Call makes a tool call. Its error becomes a ToolError in the program, with the code of a *CallError.
	Call func(ctx context.Context, call Call) (json.RawMessage, error)

	// Called is called after each call of a tool that runs in the program's process, for the first 1,000.
	// Calls are listed in the order in which they completed, as reported by the program (untrusted).
	Called func(LocalCall)
}

// LocalCall is a tool call inside the program's process, as the program reports it.
type LocalCall struct {
	Server, Tool string
	MS           float64
	OK           bool
}

// CallError is an error of a tool call with a code that programs can tell apart.
type CallError struct {
	Code string
	Err  error
}

func (e *CallError) Error() string { return e.Err.Error() }
func (e *CallError) Unwrap() error { return e.Err }

// Call is a tool call that the program requests. Its fields are untrusted.
type Call struct {
	ID           uint64 // unique within the execution
	Server, Tool string
	Hash         string          // of the definition that the program's module was generated from, or empty
	Args         json.RawMessage // a JSON object
}

// Facts is what a program imports and uses. Each list is truncated at 1,000 entries.
type Facts struct {
	Lines      int      `json:"lines"`
	Imports    []Import `json:"imports"`
	Calls      []Name   `json:"calls"`      // dotted names called, imports resolved: "os.system", "open"
	Attributes []Name   `json:"attributes"` // attributes and names that begin with two underscores
	Truncated  bool     `json:"truncated,omitempty"`
}

// Import is one imported module. Names are those that a from-import imports.
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

// How a program ended.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	Timeout   = "timeout"
	Cancelled = "cancelled"
	Blocked   = "blocked"
)

// Verdict says that the program ran, and how it ended.
type Verdict struct {
	Status       string          // Succeeded | Failed | Timeout | Cancelled | Blocked
	Result       json.RawMessage // valid JSON, at most MaxResultBytes; null if the program has no result
	Output       string          // standard output, valid UTF-8
	Stderr       string
	Truncated    bool     // more was printed than Output and Stderr hold
	Error        *Failure // nil exactly if Status is Succeeded
	CPUMS        float64  // user and system time of all processes of the program
	PeakMemoryMB float64  // resident, of its largest process
	Dirty        bool     // the box must be destroyed: it is broken, or keeps something of the program
}

// Failure is why a program did not succeed. Its codes are those of internal/errcode.
type Failure struct { //nolint:errname // part of a verdict first, and an error only where Check returns it
	Code    string `json:"code"`
	Message string `json:"message"`
	Cause   string `json:"cause,omitempty"` // the traceback from the program's first frame on, if there is one
	Hint    string `json:"hint,omitempty"`
	Line    int    `json:"line,omitempty"` // of the program, from 1; 0: unknown
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Message) }
