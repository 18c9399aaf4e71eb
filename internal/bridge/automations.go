package bridge

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// This file has the tools that add and remove automations. Only people add webhooks: the target of a webhook receives
// all results of the tenant, and text that an agent reads may ask it to add one.

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
	Type   string `json:"type" jsonschema:"of the events; * at the end matches any rest; codefleet.result.v1 is a result"`
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
		return &result{out: viewSchedule(s)}, nil
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
		return &result{out: viewTrigger(t)}, nil
	})
	addTool(ts, tool{
		name: "remove_automation", title: "Remove an automation", scope: scopeSubmit, out: schemaOf[removedOut](),
		hints: changes,
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
