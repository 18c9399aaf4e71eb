package schemas

import "time"

// Fleet is what an operator, or an autoscaler, wants to know.
type Fleet struct {
	Workers []Worker  `json:"workers"`
	Backlog []Backlog `json:"backlog"`
}

// Worker is what a worker says about itself, every few seconds.
type Worker struct {
	Name    string         `json:"name"`
	Host    string         `json:"host"`
	Version string         `json:"version,omitempty"`
	Started time.Time      `json:"started"`
	Seen    time.Time      `json:"seen"`
	Pools   []string       `json:"pools"`
	Slots   int            `json:"slots"`
	Busy    int            `json:"busy"`
	State   string         `json:"state"`             // running | draining
	Sandbox map[string]any `json:"sandbox,omitempty"` // driver, engine_version, tier, limits
	Boxes   map[string]int `json:"boxes,omitempty"`   // warming, ready, bound, acquired, max
	Extra   map[string]any `json:"extra,omitempty"`

	Environments []Environment `json:"environments,omitempty"`
}

// Environment is what programs of a worker's pools can import: each pool has the one of its name, or
// the worker's first.
type Environment struct {
	Name     string         `json:"name"`
	What     string         `json:"what,omitempty"`     // empty until it was prepared
	Packages []string       `json:"packages,omitempty"` // with versions, beside Python's own modules
	Boxes    map[string]int `json:"boxes,omitempty"`    // warming, ready, bound, acquired, waiting, waiting_memory (those of them for which there is no memory)
	MadeMS   float64        `json:"made_ms,omitempty"`  // what it took to make the last box
	Restored bool           `json:"restored,omitempty"` // that box was restored from the state of an earlier one, not booted
	Error    string         `json:"error,omitempty"`    // why it has no boxes
	Reason   string         `json:"reason,omitempty"`   // the same in a word
}

// Backlog is the load of one pool.
type Backlog struct {
	Pool       string  `json:"pool"`
	Queued     int     `json:"queued"`       // waiting for a slot; delayed ones are not among them
	Running    int     `json:"running"`      // handed to a worker; short retries are among them
	OldestAgeS float64 `json:"oldest_age_s"` // of the oldest queued task; 0 when none is queued
}

// DeadTask is a task that the fleet gave up, or an event that could not become one, and why.
type DeadTask struct {
	Seq     uint64            `json:"seq"` // its place in the dead letter queue
	Time    time.Time         `json:"time"`
	Tenant  string            `json:"tenant"`
	TaskID  string            `json:"task_id,omitempty"` // empty when the event told none
	Subject string            `json:"subject"`           // on which it came
	Error   Error             `json:"error"`
	Event   map[string]string `json:"event,omitempty"` // attributes of the event, without its data
}
