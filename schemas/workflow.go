package schemas

import (
	"encoding/json"
	"time"
)

// WorkflowV1 is the name of the schema of workflows.
const WorkflowV1 = "workflow.v1.json"

// Workflow is the definition of a workflow. docs/workflows.md has the meaning of its fields.
type Workflow struct {
	Schema      string                    `json:"$schema,omitempty"`
	Name        string                    `json:"name"`
	Description string                    `json:"description,omitempty"`
	Inputs      map[string]WorkflowInput  `json:"inputs,omitempty"`
	Outputs     map[string]WorkflowOutput `json:"outputs,omitempty"`
	Timeout     string                    `json:"timeout,omitempty"`
	Steps       []Step                    `json:"steps"`
	Finally     []Step                    `json:"finally,omitempty"`
}

// WorkflowInput describes one input. Without a default it is required.
type WorkflowInput struct {
	Type        string            `json:"type,omitempty"`
	Description string            `json:"description,omitempty"`
	Default     json.RawMessage   `json:"default,omitempty"`
	Enum        []json.RawMessage `json:"enum,omitempty"`
}

// WorkflowOutput describes one output.
type WorkflowOutput struct {
	Type        string          `json:"type,omitempty"`
	Description string          `json:"description,omitempty"`
	Value       json.RawMessage `json:"value"`
}

// Step is a step of a workflow. Exactly one of Code, Task, Skill, Tool, Workflow, Wait, Ask and Emit is set.
type Step struct {
	ID       string          `json:"id"`
	Title    string          `json:"title,omitempty"`
	Code     string          `json:"code,omitempty"`
	Task     string          `json:"task,omitempty"` // a task's description in words
	Skill    string          `json:"skill,omitempty"`
	Tool     string          `json:"tool,omitempty"` // "server/tool"
	Workflow *Workflow       `json:"workflow,omitempty"`
	Wait     *StepWait       `json:"wait,omitempty"`
	Ask      *StepAsk        `json:"ask,omitempty"`
	Emit     *StepEmit       `json:"emit,omitempty"`
	With     json.RawMessage `json:"with,omitempty"`
	Needs    *[]string       `json:"needs,omitempty"` // nil means the preceding step
	When     string          `json:"when,omitempty"`
	ForEach  *StepForEach    `json:"for_each,omitempty"`
	Retry    *StepRetry      `json:"retry,omitempty"`
	Timeout  string          `json:"timeout,omitempty"`
	OnError  string          `json:"on_error,omitempty"` // fail (default) | continue
	Options  *Task           `json:"options,omitempty"`  // only the fields that the schema lists
}

// StepWait is what a step waits for: one of a duration, a time and an event.
type StepWait struct {
	For   string     `json:"for,omitempty"`
	Until string     `json:"until,omitempty"`
	Event *StepEvent `json:"event,omitempty"`
}

// StepEvent matches an event, as a trigger does.
type StepEvent struct {
	Type   string `json:"type"`
	Source string `json:"source,omitempty"`
	Filter string `json:"filter,omitempty"`
}

// StepAsk asks people to fill in a form.
type StepAsk struct {
	Message string          `json:"message,omitempty"`
	Form    json.RawMessage `json:"form"`
}

// StepEmit publishes an event.
type StepEmit struct {
	Type    string `json:"type"`
	Subject string `json:"subject,omitempty"`
}

// StepForEach runs a step for each item of a list: a JSON list, or a string with an expression.
type StepForEach struct {
	In       json.RawMessage `json:"in"`
	Max      int             `json:"max,omitempty"`
	Parallel int             `json:"parallel,omitempty"`
}

// StepRetry says how often a step is tried, and with which delays.
type StepRetry struct {
	Attempts int     `json:"attempts"`
	Backoff  string  `json:"backoff,omitempty"`
	Factor   float64 `json:"factor,omitempty"`
}

// Values of Step.OnError.
const (
	OnErrorFail     = "fail"
	OnErrorContinue = "continue"
)

// WorkflowStatus is the state of a workflow run or of a step.
type WorkflowStatus string

// The statuses of runs and steps. A run is waiting while all its active steps wait for time, events or people. Only
// steps are pending or skipped.
const (
	WorkflowPending   WorkflowStatus = "pending"
	WorkflowRunning   WorkflowStatus = "running"
	WorkflowWaiting   WorkflowStatus = "waiting"
	WorkflowSucceeded WorkflowStatus = "succeeded"
	WorkflowFailed    WorkflowStatus = "failed"
	WorkflowSkipped   WorkflowStatus = "skipped"
	WorkflowCancelled WorkflowStatus = "cancelled"
)

// Ended reports whether the status does not change any more.
func (s WorkflowStatus) Ended() bool {
	switch s {
	case WorkflowSucceeded, WorkflowFailed, WorkflowSkipped, WorkflowCancelled:
		return true
	case WorkflowPending, WorkflowRunning, WorkflowWaiting:
	}
	return false
}

// WorkflowRequest starts a run of a workflow.
type WorkflowRequest struct {
	Workflow  json.RawMessage `json:"workflow"`         // a Workflow
	Inputs    json.RawMessage `json:"inputs,omitempty"` // an object
	Workspace string          `json:"workspace,omitempty"`
	Session   string          `json:"session,omitempty"`
	Priority  string          `json:"priority,omitempty"`
	// Key identifies the run: a second request with the same key is the same run.
	Key string `json:"idempotencykey,omitempty"`
}

// WorkflowRun is the record of a run. It is replaced by compare-and-swap.
type WorkflowRun struct {
	RunID     string         `json:"run_id"`
	Tenant    string         `json:"tenant"`
	Name      string         `json:"name"` // name of the workflow
	Status    WorkflowStatus `json:"status"`
	Workspace string         `json:"workspace"`
	Session   string         `json:"session,omitempty"`
	Priority  string         `json:"priority,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	EndedAt   time.Time      `json:"ended_at,omitzero"`
	Deadline  time.Time      `json:"deadline"`

	Parent  *WorkflowParent `json:"parent,omitempty"`   // set if a step of another run started this run
	RerunOf string          `json:"rerun_of,omitempty"` // the run whose results are kept
	Depth   int             `json:"depth,omitempty"`    // how many triggers led to the run

	// Stopping is why no more steps begin, except those under finally: failed or cancelled.
	Stopping   WorkflowStatus `json:"stopping,omitempty"`
	Finishing  bool           `json:"finishing,omitempty"` // the steps under finally may begin
	Error      *WorkflowError `json:"error,omitempty"`
	Generation int64          `json:"generation,omitempty"` // latest generation of the workspace that a step returned

	Steps   []StepRun       `json:"steps"` // the steps under finally come last
	Outputs json.RawMessage `json:"outputs,omitempty"`

	// Inputs and Workflow are stored apart from the record.
	Inputs   json.RawMessage `json:"inputs,omitempty"`
	Workflow json.RawMessage `json:"workflow,omitempty"`
}

// WorkflowParent is the step that a run belongs to.
type WorkflowParent struct {
	RunID   string `json:"run_id"`
	Step    string `json:"step"`
	Item    int    `json:"item"`
	Attempt int    `json:"attempt"`
}

// WorkflowError is why a run or a step failed.
type WorkflowError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Step    string `json:"step,omitempty"`
}

func (e *WorkflowError) Error() string { return e.Code + ": " + e.Message }

// StepRun is the state of a step of a run, or of one item of it.
type StepRun struct {
	ID        string         `json:"id,omitempty"` // empty for an item
	Status    WorkflowStatus `json:"status"`
	Attempt   int            `json:"attempt,omitempty"`
	StartedAt time.Time      `json:"started_at,omitzero"`
	EndedAt   time.Time      `json:"ended_at,omitzero"`
	Due       time.Time      `json:"due,omitzero"` // when it goes on, or times out
	TaskID    string         `json:"task_id,omitempty"`
	RunID     string         `json:"run_id,omitempty"` // run of the step's workflow
	Cancelled bool           `json:"cancelled,omitempty"`
	Error     *WorkflowError `json:"error,omitempty"`

	Result      json.RawMessage `json:"result,omitempty"`       // absent in a record if it is stored apart
	ResultBytes int             `json:"result_bytes,omitempty"` // size of a result that is stored apart, or too large
	ResultKey   string          `json:"result_key,omitempty"`   // of a result that is stored apart; empty: result.ID
	Kept        bool            `json:"kept,omitempty"`         // the result is that of an earlier run

	Before   int64     `json:"before,omitempty"`    // generation of the workspace that the step began with
	After    int64     `json:"after,omitempty"`     // generation that the step has committed
	Items    []StepRun `json:"items,omitempty"`     // items of for_each
	ItemsKey string    `json:"items_key,omitempty"` // key of the list of for_each; empty: items.ID
	Message  string    `json:"message,omitempty"`   // the question of ask
}

// WorkflowCheck says that a workflow is valid.
type WorkflowCheck struct {
	Name  string `json:"name"`
	Steps int    `json:"steps"`
}

// WorkflowAnswer answers a step that asks.
type WorkflowAnswer struct {
	Step   string          `json:"step"`
	Item   *int            `json:"item,omitempty"` // index of the item of for_each
	Values json.RawMessage `json:"values"`
}

// WorkflowRerun starts a run again from a step.
type WorkflowRerun struct {
	From string                     `json:"from"`
	Set  map[string]json.RawMessage `json:"set,omitempty"`            // new values of inputs
	Key  string                     `json:"idempotencykey,omitempty"` // a second request with the same key is the same run
}
