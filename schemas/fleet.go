package schemas

import "time"

// Fleet lists the workers and the backlogs of all task pools, for operators and autoscalers.
type Fleet struct {
	Workers []Worker  `json:"workers"`
	Backlog []Backlog `json:"backlog"`
}

// Worker is the presence that a worker publishes every few seconds.
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
	Sandbox map[string]any `json:"sandbox,omitempty"` // driver, engine_version, tier, limits, environment, multi_tenant
	Boxes   map[string]int `json:"boxes,omitempty"`   // boxes by state, waiting requests, max, and idle memory
	Extra   map[string]any `json:"extra,omitempty"`
	Drains  bool           `json:"drains,omitempty"` // whether it obeys an order to drain
	// ReadsCarried is whether the worker can read HEADs that carry commits.
	ReadsCarried bool `json:"reads_carried,omitempty"`

	Declines []string `json:"declines,omitempty"` // tenants whose tasks need a stronger sandbox than the worker's
	// SettingsOnly is whether the worker declines tenants that were created at run time, because its boxes may serve
	// only one tenant.
	SettingsOnly bool `json:"settings_only,omitempty"`

	Environments []Environment `json:"environments,omitempty"`
}

// Environment is an environment of a worker. A task pool uses the environment with its name, or else the worker's
// first one.
type Environment struct {
	Name     string         `json:"name"`
	What     string         `json:"what,omitempty"`     // a description; empty until the environment is prepared
	Packages []string       `json:"packages,omitempty"` // with versions; Python's own modules are not listed
	Boxes    map[string]int `json:"boxes,omitempty"`    // as in Worker; waiting_memory is a part of waiting
	MadeMS   float64        `json:"made_ms,omitempty"`  // time to create the newest box, in milliseconds
	Restored bool           `json:"restored,omitempty"` // whether that box was restored from a snapshot
	Error    string         `json:"error,omitempty"`    // why boxes cannot be created
	Reason   string         `json:"reason,omitempty"`   // the reason code that belongs to Error
}

// Backlog is the load of one task pool.
type Backlog struct {
	Pool       string  `json:"pool"`
	Queued     int     `json:"queued"`       // waiting for a slot, without delayed tasks
	Running    int     `json:"running"`      // delivered to a worker, including those in a short retry
	OldestAgeS float64 `json:"oldest_age_s"` // age of the oldest queued task in seconds; 0 if there is none
	// SlotSeconds estimates the slot-seconds of all queued tasks together: for each task, the mean of its tenant's
	// tasks since yesterday.
	SlotSeconds float64 `json:"slot_seconds"`
}

// Demand is the load of a task pool, or of all, and the number of slots that it needs, for autoscalers.
type Demand struct {
	Backlog
	WithinS float64 `json:"within_s"` // time in which the queued work is to be done
	// Slots is how many slots the queued work needs in that time, plus those of the running tasks; at most one per
	// task.
	Slots int `json:"slots"`
}

// DeadTask is a dead-lettered task, or an event that could not be accepted, with the reason.
type DeadTask struct {
	Seq     uint64            `json:"seq"` // sequence number in the dead-letter queue
	Time    time.Time         `json:"time"`
	Tenant  string            `json:"tenant"`
	TaskID  string            `json:"task_id,omitempty"` // empty if the event had none
	Subject string            `json:"subject"`           // subject on which the event arrived
	Error   Error             `json:"error"`
	Event   map[string]string `json:"event,omitempty"` // attributes of the event, without its data
}

// DeadLetter is a dead-lettered task with its record.
type DeadLetter struct {
	DeadTask
	Record *Record `json:"record,omitempty"` // absent if it is no longer kept
}

// Redriven reports which dead-lettered tasks a request has redriven.
type Redriven struct {
	Tasks []RedrivenTask `json:"tasks"`
	Next  uint64         `json:"next,omitempty"` // where the next request continues; 0 if no dead letter is left
}

// RedrivenTask is a dead-lettered task that was redriven, or the reason why it was not.
type RedrivenTask struct {
	Seq    uint64 `json:"seq"` // sequence number in the dead-letter queue
	TaskID string `json:"task_id"`
	Status Status `json:"status,omitempty"` // empty if it was not redriven
	Error  string `json:"error,omitempty"`
}
