package bridge

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// This file has the tools that list, control, add and remove automations. Only people add webhooks: the target of a
// webhook may receive all results of the tenant, and a text that an agent reads may tell the agent to add one.

// automatedIn are the arguments for the task of an automation.
type automatedIn struct {
	TaskDescription string `json:"task_description,omitempty" jsonschema:"what to do, in words"`
	Code            string `json:"code,omitempty" jsonschema:"or Python to run"`
	Skill           string `json:"skill,omitempty" jsonschema:"or the name of a skill"`
	Workspace       string `json:"workspace,omitempty" jsonschema:"default main"`
}

func (in automatedIn) submission(inputs json.RawMessage) (client.Submission, error) {
	s, err := taskIn{
		TaskDescription: in.TaskDescription, Code: in.Code, Skill: in.Skill, Workspace: in.Workspace, Inputs: inputs,
	}.submission()
	s.IdempotencyKey = "" // each firing has its own
	return s, err
}

type addScheduleIn struct {
	Name string `json:"name" jsonschema:"letters, digits, - and _"`
	Cron string `json:"cron" jsonschema:"five fields (minute, hour, day, month, weekday), or @daily, @every 10m and so on"`
	Zone string `json:"zone,omitempty" jsonschema:"such as Europe/Berlin; default UTC"`
	automatedIn
	Inputs json.RawMessage `json:"inputs,omitempty" jsonschema:"any JSON value; the program's variable inputs"`
}

type addTriggerIn struct {
	Name   string `json:"name" jsonschema:"letters, digits, - and _"`
	Type   string `json:"type" jsonschema:"of the events, or codefleet.task.result.v1; * at the end matches any rest"`
	Source string `json:"source,omitempty" jsonschema:"of the events, in the same way"`
	Filter string `json:"filter,omitempty" jsonschema:"a condition in CEL, such as data.total > 100"`
	automatedIn
}

type removeAutomationIn struct {
	Kind string `json:"kind" jsonschema:"schedule or trigger"`
	Name string `json:"name"`
}

type removedOut struct {
	Removed bool `json:"removed"`
}

func (ts *toolSet) addAutomations() {
	ts.addAutomationControls()
	stores := mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: new(true), OpenWorldHint: new(true)}
	addTool(ts, tool{
		name: "add_schedule", title: "Add a schedule", scope: scopeSubmit, hints: stores, out: schemaOf[scheduleOut](),
		text: "Run a task at the times of a cron expression, until the schedule is removed. Ask the user first.",
	}, func(ctx context.Context, c *call, in addScheduleIn) (*result, error) {
		task, err := in.submission(in.Inputs)
		if err != nil {
			return nil, err
		}
		s, err := c.fleet.AddSchedule(ctx, client.ScheduleSpec{Name: in.Name, Cron: in.Cron, Zone: in.Zone}, task)
		if err != nil {
			return nil, err
		}
		return &result{out: c.viewSchedule(ctx, s)}, nil
	})
	addTool(ts, tool{
		name: "add_trigger", title: "Add a trigger", scope: scopeSubmit, hints: stores, out: schemaOf[triggerOut](),
		text: "Run a task for each CloudEvent that matches, with the event's data as inputs, until the trigger is " +
			"removed. Ask the user first.",
	}, func(ctx context.Context, c *call, in addTriggerIn) (*result, error) {
		task, err := in.submission(nil)
		if err != nil {
			return nil, err
		}
		t, err := c.fleet.AddTrigger(ctx, client.TriggerSpec{
			Name: in.Name, Type: in.Type, Source: in.Source, Filter: in.Filter,
		}, task)
		if err != nil {
			return nil, err
		}
		return &result{out: c.viewTrigger(ctx, t)}, nil
	})
	addTool(ts, tool{
		name: "remove_automation", title: "Remove an automation", scope: scopeSubmit, out: schemaOf[removedOut](),
		hints: changesFleet,
		text:  "Remove a schedule or a trigger. Tasks that it has submitted continue.",
	}, func(ctx context.Context, c *call, in removeAutomationIn) (*result, error) {
		remove := map[string]func(context.Context, string) error{
			"schedule": c.fleet.RemoveSchedule, "trigger": c.fleet.RemoveTrigger,
		}[in.Kind]
		if remove == nil {
			return nil, badArgument("kind: want schedule or trigger")
		}
		if err := remove(ctx, in.Name); err != nil {
			return nil, err
		}
		return &result{out: removedOut{true}}, nil
	})
}

type scheduleOut struct {
	Name      string    `json:"name"`
	Cron      string    `json:"cron"`
	Zone      string    `json:"zone,omitempty"`
	Paused    bool      `json:"paused"`
	Next      time.Time `json:"next,omitzero"`
	LastTask  string    `json:"last_task,omitempty"`
	LastError string    `json:"last_error,omitempty"`
}

type triggerOut struct {
	Name      string `json:"name"`
	Type      string `json:"type" jsonschema:"of the events"`
	LastError string `json:"last_error,omitempty"`
}

type webhookOut struct {
	Name      string `json:"name"`
	Host      string `json:"host" jsonschema:"of the target"`
	Type      string `json:"type"`
	LastError string `json:"last_error,omitempty"`
}

type automationOut struct {
	Schedules []scheduleOut `json:"schedules"`
	Triggers  []triggerOut  `json:"triggers"`
	Webhooks  []webhookOut  `json:"webhooks"`
	Truncated bool          `json:"truncated,omitempty" jsonschema:"more did not fit"`
}

type controlScheduleIn struct {
	Name   string `json:"name"`
	Action string `json:"action" jsonschema:"pause, resume, or run: submit its task now"`
}

type controlScheduleOut struct {
	Name   string `json:"name"`
	Paused *bool  `json:"paused,omitempty"`
	TaskID string `json:"task_id,omitempty" jsonschema:"that run submitted"`
}

func (ts *toolSet) addAutomationControls() {
	addTool(ts, tool{
		name: "list_automation", title: "List schedules, triggers and webhooks", scope: scopeRead, hints: readsOnly,
		out: schemaOf[automationOut](), text: "What submits tasks without a request, and which hosts receive events.",
	}, func(ctx context.Context, c *call, _ struct{}) (*result, error) { return c.listAutomation(ctx) })
	addTool(ts, tool{
		name: "control_schedule", title: "Pause, resume or run a schedule", scope: scopeSubmit,
		out: schemaOf[controlScheduleOut](), hints: changesFleet,
		text: "Pause or resume a schedule, or submit its task now.",
	}, func(ctx context.Context, c *call, in controlScheduleIn) (*result, error) {
		return c.controlSchedule(ctx, in)
	})
}

func (c *call) listAutomation(ctx context.Context) (*result, error) {
	schedules, err := c.fleet.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	triggers, err := c.fleet.Triggers(ctx)
	if err != nil {
		return nil, err
	}
	webhooks, err := c.fleet.Webhooks(ctx)
	if err != nil {
		return nil, err
	}
	out := automationOut{Schedules: []scheduleOut{}, Triggers: []triggerOut{}, Webhooks: []webhookOut{}}
	for _, s := range schedules {
		out.Schedules = append(out.Schedules, c.viewSchedule(ctx, s))
	}
	for _, t := range triggers {
		out.Triggers = append(out.Triggers, c.viewTrigger(ctx, t))
	}
	for _, w := range webhooks {
		view := webhookOut{Name: w.Name, Type: w.Type, LastError: c.beginning(ctx, w.LastError)}
		if u, err := url.Parse(w.URL); err == nil { // the rest of the URL may be a secret
			view.Host = u.Host
		}
		out.Webhooks = append(out.Webhooks, view)
	}
	third := c.b.o.MaxOutput/3 - len(`{"schedules":"truncated":true}`)
	all := len(out.Schedules) + len(out.Triggers) + len(out.Webhooks)
	out.Schedules, out.Triggers = listPrefix(out.Schedules, third), listPrefix(out.Triggers, third)
	out.Webhooks = listPrefix(out.Webhooks, third)
	out.Truncated = len(out.Schedules)+len(out.Triggers)+len(out.Webhooks) < all
	return &result{out: out}, nil
}

func (c *call) viewSchedule(ctx context.Context, s client.Schedule) scheduleOut {
	return scheduleOut{s.Name, s.Cron, s.Zone, s.Paused, s.Next, s.LastTask, c.beginning(ctx, s.LastError)}
}

func (c *call) viewTrigger(ctx context.Context, t client.Trigger) triggerOut {
	return triggerOut{t.Name, t.Type, c.beginning(ctx, t.LastError)}
}

func (c *call) controlSchedule(ctx context.Context, in controlScheduleIn) (*result, error) {
	var s client.Schedule
	var err error
	switch in.Action {
	case "pause":
		s, err = c.fleet.PauseSchedule(ctx, in.Name)
	case "resume":
		s, err = c.fleet.ResumeSchedule(ctx, in.Name)
	case "run":
		r, err := c.fleet.RunSchedule(ctx, in.Name)
		return &result{out: controlScheduleOut{Name: in.Name, TaskID: r.TaskID}}, err
	default:
		return nil, badArgument("action %q: want pause, resume or run", in.Action)
	}
	return &result{out: controlScheduleOut{Name: in.Name, Paused: &s.Paused}}, err
}
