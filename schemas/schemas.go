// Package schemas is the public contract of a fleet: the JSON Schemas of its events, records and results, and Go
// types for them. The fleet checks the tasks that it receives and the results that it sends with Validate. The
// version is part of a schema's name. A schema may gain optional fields; the meaning of a field never changes.
package schemas

import (
	"embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/names"
)

// Types of the CloudEvents that the fleet accepts and emits.
const (
	TypeTask     = "codefleet.task.v1"
	TypeProgress = "codefleet.task.progress.v1"
	TypeResult   = "codefleet.task.result.v1"
)

// Names of the schemas, for Validate.
const (
	TaskV1     = "task.v1.json"
	RecordV1   = "record.v1.json"
	ResultV1   = "result.v1.json"
	ProgressV1 = "progress.v1.json"
)

//go:embed *.json
var files embed.FS

// CheckName returns an error unless s may name a tenant, workspace or session. kind is the kind of name, such as
// "tenant", for the error.
func CheckName(kind, s string) error { return names.Check(kind, s) }

// CheckPool returns an error unless s may name a task pool.
func CheckPool(s string) error {
	if names.IsSlug(s) {
		return nil
	}
	return fmt.Errorf("pool %q: a name is %s", s, names.SlugRule)
}

// Status is the state of a task.
type Status string

// The statuses of a task. The last seven are terminal, and only they have a result.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	RetryWait Status = "retry_wait"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Blocked   Status = "blocked"
	Timeout   Status = "timeout"
	Cancelled Status = "cancelled"
	Expired   Status = "expired"
	Dead      Status = "dead"
)

// Values of Record.WaitsFor.
const (
	WaitsForSandbox = "sandbox" // all boxes are in use, or a new one is being created
	WaitsForMemory  = "memory"  // other tasks use all memory available to tasks
)

// Terminal reports whether a task with this status has ended.
func (s Status) Terminal() bool {
	switch s {
	case Succeeded, Failed, Blocked, Timeout, Cancelled, Expired, Dead:
		return true
	case Queued, Running, RetryWait:
	}
	return false
}

// Task is the data of a codefleet.task.v1 event. Exactly one of Description, Code, Skill and Workflow is set.
type Task struct {
	Description    string            `json:"description,omitempty"`
	Code           string            `json:"code,omitempty"`
	Skill          string            `json:"skill,omitempty"` // its function run is called with Inputs
	Workflow       json.RawMessage   `json:"workflow,omitempty"`
	Inputs         json.RawMessage   `json:"inputs,omitempty"` // any JSON value; the program's variable `inputs`
	Env            map[string]string `json:"env,omitempty"`    // environment variables of the program
	Files          []File            `json:"files,omitempty"`
	Tools          *ToolChoice       `json:"tools,omitempty"`
	Pool           string            `json:"pool,omitempty"`
	MinTier        string            `json:"min_tier,omitempty"` // gvisor | microsandbox
	Model          string            `json:"model,omitempty"`    // name of a model profile of the fleet
	State          *TaskState        `json:"state,omitempty"`
	Limits         *Limits           `json:"limits,omitempty"`
	Network        *Network          `json:"network,omitempty"`
	Retry          *Retry            `json:"retry,omitempty"`
	NotBefore      *time.Time        `json:"not_before,omitempty"`
	Artifacts      []string          `json:"artifacts,omitempty"` // glob patterns of paths in the workspace
	RepairAttempts *int              `json:"repair_attempts,omitempty"`
	Commit         string            `json:"commit,omitempty"`     // on_success (default) | always | never
	CheckOnly      bool              `json:"check_only,omitempty"` // judge the program, and do not run it
	Labels         map[string]string `json:"labels,omitempty"`
}

// File is a file that is written into the workspace before the program runs. Either Text or Base64 is set.
type File struct {
	Name   string  `json:"name"`
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
}

// ToolChoice restricts the tools that a task may call.
type ToolChoice struct {
	Allow []string `json:"allow,omitzero"` // "server/tool" or "server/*"; nil allows all, an empty list none
	Max   int      `json:"max,omitempty"`
}

// TaskState configures the variable state of the program. A nil or empty field selects the fleet's setting.
type TaskState struct {
	Enabled  *bool  `json:"enabled,omitempty"`
	File     string `json:"file,omitempty"`      // the state document, such as state/plan.json
	AutoSave *bool  `json:"auto_save,omitempty"` // save the keys that a successful program has changed
}

// Limits bound one execution of a program. Zero means the fleet's default.
type Limits struct {
	TimeoutS    float64 `json:"timeout_s,omitempty"`
	MemoryMB    int     `json:"memory_mb,omitempty"`
	CPUs        float64 `json:"cpus,omitempty"`
	OutputBytes int64   `json:"output_bytes,omitempty"`
}

// Network is a request for egress to the named hosts.
type Network struct {
	Allow []string `json:"allow,omitempty"`
}

// Retry controls how often, after which outcomes, and with which delay a task is retried. Attempts includes the first
// attempt. While there are attempts left, a task is retried after a lost worker and after each error of the fleet that
// is not permanent, but after an outcome of the program only if On contains it ("failed", "timeout").
type Retry struct {
	Attempts int      `json:"attempts,omitempty"`
	BackoffS float64  `json:"backoff_s,omitempty"`
	On       []string `json:"on,omitempty"`
}

// Attempt is one run of a task, also one that does not count against the limit of attempts.
type Attempt struct {
	Run       int       `json:"run"`
	Worker    string    `json:"worker"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	Outcome   string    `json:"outcome,omitempty"` // a terminal status, lost, error, drained or unavailable
	Error     string    `json:"error,omitempty"`
	Redriven  bool      `json:"redriven,omitempty"` // the task was redriven later, so the run no longer counts
}

// Record is the current state of a task. Every transition replaces it by compare-and-swap.
type Record struct {
	TaskID          string     `json:"task_id"`
	Tenant          string     `json:"tenant"`
	Workspace       string     `json:"workspace"`
	Session         string     `json:"session,omitempty"`
	Pool            string     `json:"pool"`
	Priority        string     `json:"priority"`
	Status          Status     `json:"status"`
	Run             int        `json:"run"`              // runs begun so far
	Worker          string     `json:"worker,omitempty"` // the latest run's worker
	LeaseUntil      time.Time  `json:"lease_until,omitzero"`
	WaitsFor        string     `json:"waits_for,omitempty"` // WaitsForSandbox, WaitsForMemory or empty
	QueueSeq        uint64     `json:"queue_seq,omitempty"` // the message of TASKS that carries the task
	CancelRequested bool       `json:"cancel_requested,omitempty"`
	ExpiresAt       time.Time  `json:"expires_at,omitzero"`
	SubmittedAt     time.Time  `json:"submitted_at"`
	NotBefore       time.Time  `json:"not_before,omitzero"` // the task does not run earlier
	StartedAt       time.Time  `json:"started_at,omitzero"` // start of the first run
	EndedAt         time.Time  `json:"ended_at,omitzero"`
	Description     string     `json:"description,omitempty"` // the beginning of Task.Summary
	Code            string     `json:"code,omitempty"`        // the program, once known; later runs execute the same
	GeneratedBy     string     `json:"generated_by,omitempty"`
	Catalogue       string     `json:"catalogue,omitempty"` // the catalogue version; later runs use the same
	Source          string     `json:"source"`
	EventID         string     `json:"event_id"`
	TraceID         string     `json:"trace_id,omitempty"`
	Attempts        []Attempt  `json:"attempts,omitempty"`
	Approvals       []Approval `json:"approvals,omitempty"` // tool calls that needed approval
	Result          *Result    `json:"result,omitempty"`
}

// Result is the outcome of a task, the same at every interface. The statuses failed and timeout mean that the program
// did not succeed; an error of the fleet is never reported as one of the program.
type Result struct {
	TaskID    string            `json:"task_id"`
	Tenant    string            `json:"tenant"`
	Session   string            `json:"session,omitempty"`
	Status    Status            `json:"status"`
	Attempt   int               `json:"attempt"` // the run that ended it; 0 if it never ran
	Source    string            `json:"source"`
	EventID   string            `json:"event_id"`
	TraceID   string            `json:"trace_id,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Result    json.RawMessage   `json:"result"` // any JSON value; null if the program has none
	Output    string            `json:"output"`
	Stderr    string            `json:"stderr"`
	Truncated bool              `json:"output_truncated"`
	Error     *Error            `json:"error"` // null on success
	Artifacts []Artifact        `json:"artifacts"`
	// Checkpoint is the checkpoint that the program has set for its session, a JSON object.
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	ResultRef  string          `json:"result_ref,omitempty"` // where the whole result is, if it is too large for the record

	Code        string          `json:"code,omitempty"`
	GeneratedBy string          `json:"generated_by,omitempty"` // caller | llm | rules | skill | plugin
	Repairs     int             `json:"repairs"`
	Guardrails  []Finding       `json:"guardrails,omitempty"`
	Tools       ToolsUsed       `json:"tools"`
	Usage       *Usage          `json:"usage,omitempty"`
	Workspace   WorkspaceChange `json:"workspace"`
	Sandbox     Sandbox         `json:"sandbox"`
	Resources   Resources       `json:"resources"`
	Egress      []EgressAttempt `json:"egress,omitempty"`
	TimingMS    Timing          `json:"timing_ms"`
	Worker      string          `json:"worker,omitempty"`
	SubmittedAt time.Time       `json:"submitted_at"`
	StartedAt   time.Time       `json:"started_at,omitzero"`
	EndedAt     time.Time       `json:"ended_at"`
}

// MarshalJSON writes required lists that are nil as empty lists, because the schema does not allow null.
func (r Result) MarshalJSON() ([]byte, error) {
	type fields Result
	orEmpty(&r.Artifacts)
	orEmpty(&r.Tools.Selected)
	orEmpty(&r.Tools.Calls)
	orEmpty(&r.Workspace.Changed)
	orEmpty(&r.Workspace.Conflicts)
	return json.Marshal(fields(r))
}

func orEmpty[T any](s *[]T) {
	if *s == nil {
		*s = []T{}
	}
}

// Error describes what happened, why, and what to do next. Code is stable (docs/errors.md). Line is a line of the
// program, from 1, or 0 if it is unknown.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Cause   string `json:"cause,omitempty"`
	Hint    string `json:"hint,omitempty"`
	Line    int    `json:"line,omitempty"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Artifact is a file that a task returns.
type Artifact struct {
	Path      string `json:"path"` // relative to the workspace
	Bytes     int64  `json:"bytes"`
	MediaType string `json:"media_type"`
	URL       string `json:"url,omitempty"`
}

// Finding is what a guardrail, a plugin or the fleet itself (as in rule "result") says about a task.
type Finding struct {
	Rule    string `json:"rule"`
	Line    int    `json:"line,omitempty"`
	Level   string `json:"level"` // info | warning | refused
	Message string `json:"message"`
}

// ToolsUsed lists the tools that were selected for the task, and its tool calls.
type ToolsUsed struct {
	Available int        `json:"available"`
	Selected  []string   `json:"selected"` // "server/tool"
	Share     float64    `json:"share"`    // selected ÷ available; 0 without tools
	Calls     []ToolCall `json:"calls"`
	Degraded  string     `json:"degraded,omitempty"` // why the selection could not use the configured embeddings
}

// ToolCall is one call of a tool.
type ToolCall struct {
	Server   string  `json:"server"`
	Tool     string  `json:"tool"`
	MS       float64 `json:"ms"`
	OK       bool    `json:"ok"`
	Replayed bool    `json:"replayed"`
}

// Usage counts the task's model tokens. DirectToolTokens is how many tokens the definitions of all available tools
// would add to a prompt.
type Usage struct {
	Model            string `json:"model,omitempty"`
	PromptTokens     int    `json:"prompt_tokens"`
	CompletionTokens int    `json:"completion_tokens"`
	DirectToolTokens int    `json:"direct_tool_tokens"`
}

// WorkspaceChange describes the task's commit. If the task committed nothing, Generation is Base.
type WorkspaceChange struct {
	Name       string   `json:"name"`
	Base       int64    `json:"base,omitempty"` // the generation that the program found; 0 if the workspace had no commits
	Generation int64    `json:"generation"`
	Changed    []string `json:"changed"`
	Conflicts  []string `json:"conflicts"`
}

// Sandbox describes the box that ran the program.
type Sandbox struct {
	Driver        string `json:"driver,omitempty"`
	EngineVersion string `json:"engine_version,omitempty"`
	Tier          string `json:"tier,omitempty"`
	Limits        string `json:"limits,omitempty"` // cgroup | rlimit
	Boot          string `json:"boot,omitempty"`   // warm | cold
	Environment   string `json:"environment,omitempty"`
}

// Resources are the resources that the program used.
type Resources struct {
	CPUMS        float64 `json:"cpu_ms"`
	PeakMemoryMB float64 `json:"peak_memory_mb"`
}

// EgressAttempt describes the program's attempts to connect to a host and port that had the same verdict.
type EgressAttempt struct {
	Host    string `json:"host"`
	Port    int    `json:"port"`
	Verdict string `json:"verdict"` // allowed, or why it was refused, failed or was cut: docs/network.md
	Bytes   int64  `json:"bytes"`   // bytes of all these attempts together
}

// Timing contains the duration of each stage in milliseconds. Total is the time from the submission to the end.
type Timing struct {
	Queued      float64 `json:"queued"`
	Select      float64 `json:"select"`
	Generate    float64 `json:"generate"`
	Checkout    float64 `json:"checkout"`
	SandboxWait float64 `json:"sandbox_wait"`
	Run         float64 `json:"run"`
	Tools       float64 `json:"tools"`
	Commit      float64 `json:"commit"`
	Total       float64 `json:"total"`
}

// Progress reports a stage of a running task, or a piece of its output if Stream is set.
type Progress struct {
	TaskID string    `json:"task_id"`
	Run    int       `json:"run"`
	Time   time.Time `json:"time"`
	Stage  string    `json:"stage,omitempty"`  // select, generate, waiting, run, tool, …, or the terminal status
	Stream string    `json:"stream,omitempty"` // stdout | stderr
	Text   string    `json:"text,omitempty"`   // details of the stage, or output with invalid UTF-8 replaced
}
