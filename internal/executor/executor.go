// Package executor runs untrusted Python programs in sandboxes.
//
// A [Driver] makes boxes and enters them; everything else is written once, here: the pool of warm
// boxes, limits, output caps, tool calls, verdicts, and the protocol spoken with the runner, the
// Python process inside each box (package runner). The package knows no queue, no workspace store
// and no tool: it is handed a directory, a program and functions.
//
// Two words are kept apart throughout: an error means that the fleet could not run the program, a
// [Verdict] means that it ran, and how that ended.
//
// To add a driver: implement Driver, Box and Session, and what applies of the small interfaces below;
// pass executortest.TestDriver, and TestRestored if its boxes are Checkpointers; add it to the choice of
// sandbox in cmd.
package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// ErrCancelled is the cause with which a context given to Run is cancelled when somebody asked for
// the program to be stopped. It makes the verdict "cancelled"; any other cause makes an error.
var ErrCancelled = errors.New("cancelled")

// ErrSandboxDied is wrapped by the error of a run whose box ended for a reason outside of it: killed
// from the host, or by a defect of the engine. The program may be run again.
var ErrSandboxDied = errors.New("the sandbox died")

// A Driver makes sandboxes. It may also be a [Prober] or an [Inspector], a [Sweeper] and an
// [Interpreter]. Its methods may be called from several goroutines.
type Driver interface {
	// Create makes a box in which nothing runs yet. After an error nothing of the box is left.
	Create(ctx context.Context, spec Spec) (Box, error)
}

// A Box is one sandbox. It may also be a [Limiter], a [StatsReporter], a [OOMReporter], a [Snapshotter] and a
// [GuestReporter].
type Box interface {
	// Exec starts argv in the box, with the environment of the box's Spec. The context bounds the
	// start alone; the process lives until it ends or the box is destroyed.
	Exec(ctx context.Context, argv []string) (Session, error)

	// Destroy kills whatever runs in the box and removes every trace of it but its workspace
	// directory. It may be called more than once and while a session is in use.
	Destroy(ctx context.Context) error
}

// A Session is one process in a box.
type Session interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader // ends when the process has ended or the box is gone
	Stderr() io.Reader

	// Wait returns the exit code, or 128 + the signal that killed the process. It may be called
	// once, after Stdout and Stderr have been read to their ends.
	Wait() (code int, err error)
}

// A Prober is a Driver that can tell, by a real boot, whether it works on this host. The error says
// what to install or to change.
type Prober interface {
	Probe(ctx context.Context) (Info, error)
}

// An Inspector is a Prober that can describe itself without a boot. A pool then takes its first box
// for the probe: it probes only when that cannot be made.
type Inspector interface {
	Prober
	Inspect(ctx context.Context) (Info, error)
}

// A Sweeper is a Driver that can remove what boxes of an earlier process of the same owner left
// behind: processes, mounts, cgroups, directories.
type Sweeper interface {
	Sweep(ctx context.Context, owner string) error
}

// An Interpreter is a Driver whose boxes have a Python of their image's and not the host's. It gets the
// image, however long that takes, and tells what packages for its boxes have to fit.
type Interpreter interface {
	Interpreter(ctx context.Context, image string) (Python, error) // empty: the driver's own image
}

// Python is an interpreter that is not this host's.
type Python struct {
	Version   string   // such as 3.12.1
	Platforms []string // of wheels that it takes, best first, such as manylinux_2_28_x86_64
}

// A Limiter is a Box whose outer walls (memory, CPU share, disk) can be set at lease.
type Limiter interface {
	Limit(ctx context.Context, limits Limits) error
}

// A StatsReporter is a Box that knows what it uses.
type StatsReporter interface {
	Stats(ctx context.Context) (Stats, error)
}

// A OOMReporter is a Box that knows whether it died because its outer memory limit was reached. Without
// it, exit code 137 of the runner is taken as that.
type OOMReporter interface {
	OutOfMemory() bool
}

// A Snapshotter is a Box that can start with the processes of another box in it, as they once were.
type Snapshotter interface {
	// Checkpoint saves what runs in the box into dir, which it makes, and lets it run on. After an error
	// the box is to be destroyed, and dir removed.
	Snapshot(ctx context.Context, dir string) error

	// Restore takes the place of the first Exec, of the same argv: the session is that of the process
	// which was started so in the box that was saved. The Spec of both boxes must be equal, but for
	// Name, Workspace and limits, and so must be the files that they see. What is wrong with dir may
	// show as the end of the session only.
	Restore(ctx context.Context, dir string, argv []string) (Session, error)
}

// A GuestReporter is a Box whose inside differs from [DefaultGuest].
type GuestReporter interface {
	Guest() Guest
}

// Guest says what a program and its runner find inside a box.
type Guest struct {
	Python    string   // the interpreter, 3.9 or newer
	Workspace string   // working directory of the program
	Catalogue string   // directory of catalogue versions
	Scratch   []string // emptied after each task; the first one is the program's TMPDIR
	Stale     bool     // the box may remember files that the host has changed since; the runner has it forget before each program
	OOM       string   // file whose line oom_kill counts what the kernel of the box has killed for want of memory; may be empty
	Counts    bool     // sysinfo(2) in the box counts the runner's threads and those of programs, and no others
	Split     bool     // the runner is uid 0 and the program UID; else both are the runner's user
	UID       int      // user and group of the program; no other process may have it
}

// DefaultGuest is the inside of a box that is no [GuestReporter].
func DefaultGuest() Guest {
	return Guest{
		Python:    "/usr/bin/python3",
		Workspace: "/workspace",
		Catalogue: "/opt/codefleet",
		Scratch:   []string{"/tmp", "/dev/shm"},
		Split:     true,
		UID:       65534,
	}
}

// PackagesDir is where a box may have a directory of Python packages, which come before its own.
const PackagesDir = "/opt/packages"

// Info describes a driver on this host.
type Info struct {
	Driver        string // gvisor, microsandbox, host
	EngineVersion string
	Tier          string // gvisor | microsandbox; what a task's min_tier is compared with
	Limits        string // cgroup: memory and CPU have an outer wall; rlimit: they have none
	Environment   string // what the root file system is: a digest, or "host /usr"
	MultiTenant   bool   // false: boxes of two tenants must not run on this host

	// ImageMultiTenant is MultiTenant of boxes with a root file system of their own (Spec.Image).
	ImageMultiTenant bool
}

// tiers are the kinds of isolation, weakest first.
var tiers = []string{"gvisor", "microsandbox"}

// TierSatisfies reports whether a host of tier have may run what asks for at least want; "" asks for
// nothing. A tier that nobody knows satisfies no wish, and no tier satisfies an unknown wish.
func TierSatisfies(have, want string) bool {
	wanted := slices.Index(tiers, want)
	return want == "" || wanted >= 0 && slices.Index(tiers, have) >= wanted
}

// Spec is what a box is made from.
type Spec struct {
	Name      string // unique among the boxes of Owner
	Owner     string // who sweeps it when it is left behind
	Image     string // root file system, as the driver takes it; empty: the driver's own. A directory, or for microsandbox also an OCI archive or reference
	Workspace string // directory of the host that the box sees as /workspace, writable
	Mounts    []Mount
	Env       []string // "NAME=value"; the whole environment of what is started in the box
	MemoryMB  int      // outer wall, where the driver has one; 0 is the driver's default
	CPUs      float64
}

// Mount shows a directory of the host inside a box.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Stats is what a box uses as a whole.
type Stats struct {
	MemoryMB float64
	CPUMS    float64
}

// Limits bound one run of a program. A zero field means its default.
type Limits struct {
	Timeout     time.Duration // wall time, from the moment the program is sent; 300 s
	MemoryMB    int           // address space that the program may add to its interpreter's; 512
	CPUs        float64       // processors, where the driver limits them; Timeout × CPUs is what each process may use up; 1
	OutputBytes int64         // kept of standard output, and as many of standard error; 1 MiB
	WorkspaceMB int64         // largest file, and the workspace as a whole where the driver limits it; 1024
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

// Hooks are the program's only ways to the outside. Each may be nil. Output and Check are called
// one at a time; Call may be called while others are under way, and returns soon after its context
// ends. Run does not return before all of them have.
type Hooks struct {
	// Check sees what the program is made of, after it was parsed and before it runs; a program
	// that cannot be parsed fails without it. An error ends the task: status blocked, with the error's text as message, or the error itself when it
	// is a *Failure.
	Check func(Facts) error

	// Output is handed what the program prints ("stdout" or "stderr"), as it arrives, in order per
	// stream, cut at Limits.OutputBytes. It must not keep data.
	Output func(stream string, data []byte)

	// Network answers one connection that the program made to the proxy its environment names
	// (HTTP_PROXY and so on), until either side ends it; ctx ends with the run. Several go on at
	// once. Where it is nil there is no proxy: the program has no network.
	Network func(ctx context.Context, conn net.Conn)

	// Call makes a tool call. Its error becomes a ToolError in the program, with the code of a *CallError.
	Call func(ctx context.Context, call Call) (json.RawMessage, error)

	// Called hears of calls of tools that run in the program's own process, after they have ended:
	// of the first 1,000, in the order of their ends, and as far as the program lets on. Called one
	// at a time.
	Called func(LocalCall)
}

// LocalCall is a call that the program says it made by itself.
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

// Call is a tool call of the program: unchecked wishes of untrusted code.
type Call struct {
	ID           uint64 // unique within the run
	Server, Tool string
	Hash         string          // definition hash that the program's module was generated from, or empty
	Args         json.RawMessage // a JSON object
}

// Facts is what a program is made of. Each list is cut at 1,000 entries.
type Facts struct {
	Lines      int      `json:"lines"`
	Imports    []Import `json:"imports"`
	Calls      []Name   `json:"calls"`      // dotted names called, imports resolved: "os.system", "open"
	Attributes []Name   `json:"attributes"` // attributes and names that begin with two underscores
	Truncated  bool     `json:"truncated,omitempty"`
}

// Import is one imported module. Names are what a from-import takes from it.
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

// Verdict says that the program ran, and how that ended.
type Verdict struct {
	Status       string          // Succeeded | Failed | Timeout | Cancelled | Blocked
	Result       json.RawMessage // valid JSON, at most MaxResultBytes; null when the program left none
	Output       string          // standard output, valid UTF-8
	Stderr       string
	Truncated    bool     // more was printed than Output and Stderr hold
	Error        *Failure // nil exactly when Status is Succeeded
	CPUMS        float64  // user and system time of all processes of the program
	PeakMemoryMB float64  // resident, of its largest process
	Dirty        bool     // the box must be destroyed
}

// Failure says why a program did not succeed. Cause is the traceback from the program's first frame
// on, where there is one. Line counts the lines of the program from 1; 0 is unknown.
type Failure struct { //nolint:errname // it is part of a verdict first, and an error where guardrails return it
	Code    string `json:"code"`
	Message string `json:"message"`
	Cause   string `json:"cause,omitempty"`
	Hint    string `json:"hint,omitempty"`
	Line    int    `json:"line,omitempty"`
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Message) }
