package schemas

import (
	"encoding/json"
	"time"
)

// ScheduleSpec is what a schedule does: it submits its task at the times of a cron expression.
type ScheduleSpec struct {
	Name string `json:"name"`
	// Cron has five fields (minute, hour, day of month, month, day of week), or is @hourly, @daily, @weekly, @monthly,
	// @yearly or "@every DURATION".
	Cron string `json:"cron"`
	Zone string `json:"zone,omitempty"` // a zone of the IANA database, such as Europe/Berlin; default UTC
	// Missed says which missed firings still take place: MissedSkip (none), MissedLast (the latest; the default) or
	// MissedAll (the latest 100). A firing is missed if the fleet did not run at its time and in the minute after it.
	Missed string `json:"missed,omitempty"`
	// JitterS delays all firings by a constant time below this many seconds, which depends on the schedule's name, so
	// that many schedules with the same expression do not start at once.
	JitterS int `json:"jitter_s,omitempty"`
	// Task is the task, with workspace, session, priority, replyto and partitionkey, as the body of POST /v1/tasks,
	// without an idempotency key and times.
	Task json.RawMessage `json:"task"`
}

// Schedule is a stored schedule with its state.
type Schedule struct {
	ScheduleSpec
	Paused    bool      `json:"paused"`
	CreatedAt time.Time `json:"created_at"`
	Handled   time.Time `json:"handled"`              // all firings up to this time took place or were skipped
	Next      time.Time `json:"next,omitzero"`        // the next firing; absent if paused
	LastAt    time.Time `json:"last_at,omitzero"`     // the latest firing
	LastTask  string    `json:"last_task,omitempty"`  // the id of its task
	LastError string    `json:"last_error,omitempty"` // why the latest firing submitted no task
}

// Values of ScheduleSpec.Missed.
const (
	MissedSkip = "skip"
	MissedLast = "last"
	MissedAll  = "all"
)

// TriggerSpec is what a trigger does: it submits its task for each event that it matches.
type TriggerSpec struct {
	Name   string `json:"name"`
	Type   string `json:"type"`             // the event's type; a * at the end matches any rest
	Source string `json:"source,omitempty"` // the event's source, with a * as in Type; empty matches any
	// Filter is a condition in CEL over the event's attributes and its data, such as: data.total > 100
	Filter string `json:"filter,omitempty"`
	// Task is as in ScheduleSpec, but without inputs: these are the event's data.
	Task json.RawMessage `json:"task"`
}

// Trigger is a stored trigger.
type Trigger struct {
	TriggerSpec
	CreatedAt time.Time `json:"created_at"`
	// LastError is why the trigger submitted no task for an event that it matched, the last time this happened, or why
	// its filter could not be evaluated for an event: the first time, until another reason replaces it.
	LastError string `json:"last_error,omitempty"`
}

// TriggerTest is what a trigger would do with an event.
type TriggerTest struct {
	Matches bool            `json:"matches"`
	Reason  string          `json:"reason,omitempty"`  // why it does not match, or why its task would be refused
	TaskID  string          `json:"task_id,omitempty"` // the task that the event leads to
	Task    json.RawMessage `json:"task,omitempty"`    // the data of that task
}

// AcceptedEvent is an event that was stored for the tenant's triggers.
type AcceptedEvent struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	Type   string `json:"type"`
}

// WebhookSpec is what a webhook does: it sends the events that it matches to a URL, signed as in Standard Webhooks.
type WebhookSpec struct {
	Name   string `json:"name"`
	URL    string `json:"url"`              // https, or http where the network is trusted
	Type   string `json:"type,omitempty"`   // as in TriggerSpec; default codefleet.task.result.v1, the results of tasks
	Filter string `json:"filter,omitempty"` // as in TriggerSpec
	// NoHandshake skips the handshake of CloudEvents, in which the target permits the fleet to send.
	NoHandshake bool `json:"no_handshake,omitempty"`
}

// Webhook is a stored webhook.
type Webhook struct {
	WebhookSpec
	CreatedAt time.Time `json:"created_at"`
	Secret    string    `json:"secret,omitempty"`     // signs deliveries; only in the response that adds the webhook
	LastError string    `json:"last_error,omitempty"` // of the latest failed delivery, or the first filter error since
	Gone      bool      `json:"gone,omitempty"`       // the target responded with 410: nothing is sent any more
}
