package schemas

import (
	"fmt"
	"strings"
	"time"
)

// Pause stops workers from starting tasks of a tenant, of a task pool, or of the whole fleet. Running tasks continue,
// and tasks are still accepted.
type Pause struct {
	Target string    `json:"target"` // see CheckTarget
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`     // the name of the token that paused it
	Reason string    `json:"reason,omitempty"` // shown to the owners of the tasks that wait
}

// PauseFleet is the target of a pause of the whole fleet.
const PauseFleet = "fleet"

// CheckTarget returns an error unless s is the target of a pause: fleet, pool/NAME or tenant/NAME.
func CheckTarget(s string) error {
	kind, name, named := strings.Cut(s, "/")
	switch {
	case s == PauseFleet:
		return nil
	case named && (kind == "pool" || kind == "tenant"):
		return CheckName(kind, name)
	}
	return fmt.Errorf("target %q: want fleet, pool/NAME or tenant/NAME", s)
}

// Why says what a task waits for.
type Why struct {
	TaskID  string `json:"task_id"`
	Status  Status `json:"status"`
	Rule    string `json:"rule"` // one of the constants
	Message string `json:"message"`
	// Ahead is how many queued tasks of the same tenant, task pool and priority start first. It is absent unless the
	// task is queued.
	Ahead *int `json:"ahead,omitempty"`
	// Until is when the rule ends by itself, if that is known.
	Until time.Time `json:"until,omitzero"`
	// EstimateS is in how many seconds the task will start, estimated from the tenant's recent tasks and its share of
	// the slots. It is absent while that cannot be told.
	EstimateS *float64 `json:"estimate_s,omitempty"`
}

// Rules that hold a task.
const (
	WhyEnded    = "ended"       // it does not wait: it has ended
	WhyRunning  = "running"     // it does not wait: it runs
	WhyApproval = "approval"    // it runs, and a tool call waits for a person's approval
	WhySandbox  = "sandbox"     // it has a worker, which has no free box
	WhyMemory   = "memory"      // it has a worker, which has no memory for its box
	WhyAt       = "at"          // the caller asked for a later start
	WhyRetry    = "retry"       // a run failed, and the next one is delayed
	WhyNoKey    = "no_key"      // workers do not have the key of its workspace
	WhyPaused   = "paused"      // an operator has paused its tenant, its task pool or the fleet
	WhyNoWorker = "no_worker"   // no worker serves its task pool and tenant
	WhyRate     = "rate"        // its tenant has started as many tasks as it may in this period
	WhyCap      = "max_running" // its tenant runs as many tasks as it may
	WhyTurn     = "turn"        // other tasks have their turn first
)
