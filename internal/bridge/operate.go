package bridge

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// This file has the tools for what people see and operate on the web page: tool calls, dead letters, automations, the
// fleet.

// listing is a list that fits into a result.
type listing[T any] struct {
	Items     []T  `json:"items"`
	Truncated bool `json:"truncated,omitempty" jsonschema:"more did not fit"`
}

// listed returns the beginning of a list, as far as it fits.
func listed[T any](c *call, list []T) *result {
	fitting := listPrefix(list, c.b.o.MaxOutput-len(`{"items":,"truncated":true}`))
	return &result{out: listing[T]{Items: append([]T{}, fitting...), Truncated: len(fitting) < len(list)}}
}

// changes are the hints of tools that change something of the fleet, and nothing elsewhere.
var changes = mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(false)}

type toolCallOut struct {
	Tool        string    `json:"tool"`
	Time        time.Time `json:"time"`
	OK          bool      `json:"ok"`
	Code        string    `json:"error_code,omitempty"`
	MS          float64   `json:"ms"`
	ArgsHash    string    `json:"args_hash" jsonschema:"SHA-256"`
	ArgsBytes   int       `json:"args_bytes"`
	ResultBytes int       `json:"result_bytes"`
	Replayed    bool      `json:"replayed,omitempty" jsonschema:"the result is from an earlier run"`
	ApprovedBy  string    `json:"approved_by,omitempty"`
}

type listCallsIn struct {
	TaskID string `json:"task_id"`
}

type listDeadIn struct {
	Limit int `json:"limit,omitempty" jsonschema:"default 20, at most 100"`
}

type deadOut struct {
	TaskID string    `json:"task_id,omitempty"`
	Time   time.Time `json:"time"`
	Cause  string    `json:"cause" jsonschema:"an error code"`
	Error  string    `json:"error"`
}

type redriveIn struct {
	Cause string `json:"cause" jsonschema:"as list_dead_tasks returns it"`
}

type redriveOut struct {
	Redriven int `json:"redriven"`
	Refused  int `json:"refused"`
}

func (ts *toolSet) addOperate() {
	addTool(ts, tool{
		name: "list_tool_calls", title: "List a task's tool calls", scope: scopeRead, hints: readsOnly,
		out: schemaOf[listing[toolCallOut]](), text: "The tool calls of a task's programs, the first one first.",
	}, func(ctx context.Context, c *call, in listCallsIn) (*result, error) { return c.listCalls(ctx, in) })
	addTool(ts, tool{
		name: "list_dead_tasks", title: "List dead letters", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[listing[deadOut]](),
		text: "Tasks that could not be run, the latest first. retry_task runs one again.",
	}, func(ctx context.Context, c *call, in listDeadIn) (*result, error) {
		limit, err := sessionLimit(in.Limit)
		if err != nil {
			return nil, err
		}
		dead, err := c.fleet.Dead(ctx, limit)
		if err != nil {
			return nil, err
		}
		list := make([]deadOut, len(dead))
		for i, d := range dead {
			list[i] = deadOut{d.TaskID, d.Time, d.Error.Code, textStart(d.Error.Message, maxSummary)}
		}
		return listed(c, list), nil
	})
	addTool(ts, tool{
		name: "redrive_tasks", title: "Redrive dead letters", scope: scopeSubmit, out: schemaOf[redriveOut](),
		hints: mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)},
		text:  "Run all dead-lettered tasks with a cause again, once the cause is mended.",
	}, func(ctx context.Context, c *call, in redriveIn) (*result, error) {
		var out redriveOut
		err := c.fleet.RedriveCause(ctx, in.Cause, func(t client.RedrivenTask) error {
			if t.Error != "" {
				out.Refused++
			} else {
				out.Redriven++
			}
			return nil
		})
		return &result{out: out}, err
	})
	ts.addAutomation()
	ts.addFleet()
}

func (c *call) listCalls(ctx context.Context, in listCallsIn) (*result, error) {
	id := strings.TrimSpace(in.TaskID)
	if _, err := c.fleet.Get(ctx, id); err != nil {
		return nil, err
	}
	records, err := c.fleet.Audit(ctx, client.AuditOptions{Task: id, Limit: 1000})
	if err != nil {
		return nil, err
	}
	return listed(c, endedCalls(records)), nil
}

// endedCalls returns the calls that have ended, the first one first.
func endedCalls(latestFirst []client.AuditRecord) (list []toolCallOut) {
	for _, a := range slices.Backward(latestFirst) {
		if a.Event == "end" {
			list = append(list, toolCallOut{
				Tool: a.Server + "/" + a.Tool, Time: a.Time, OK: a.OK, Code: a.Code, MS: a.MS, ArgsHash: a.ArgsHash,
				ArgsBytes: a.ArgsBytes, ResultBytes: a.ResultBytes, Replayed: a.Replayed, ApprovedBy: a.ApprovedBy,
			})
		}
	}
	return list
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

func (ts *toolSet) addAutomation() {
	addTool(ts, tool{
		name: "list_automation", title: "List schedules, triggers and webhooks", scope: scopeRead, hints: readsOnly,
		out: schemaOf[automationOut](), text: "What submits tasks without a request, and which hosts receive events.",
	}, func(ctx context.Context, c *call, _ struct{}) (*result, error) { return c.listAutomation(ctx) })
	addTool(ts, tool{
		name: "control_schedule", title: "Pause, resume or run a schedule", scope: scopeSubmit,
		out: schemaOf[controlScheduleOut](), hints: changes,
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
		out.Schedules = append(out.Schedules, viewSchedule(s))
	}
	for _, t := range triggers {
		out.Triggers = append(out.Triggers, viewTrigger(t))
	}
	for _, w := range webhooks {
		view := webhookOut{Name: w.Name, Type: w.Type, LastError: textStart(w.LastError, maxSummary)}
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

func viewSchedule(s client.Schedule) scheduleOut {
	return scheduleOut{s.Name, s.Cron, s.Zone, s.Paused, s.Next, s.LastTask, textStart(s.LastError, maxSummary)}
}

func viewTrigger(t client.Trigger) triggerOut {
	return triggerOut{t.Name, t.Type, textStart(t.LastError, maxSummary)}
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

type workerOut struct {
	Name  string   `json:"name"`
	State string   `json:"state"`
	Pools []string `json:"pools"`
	Busy  int      `json:"busy"`
	Slots int      `json:"slots"`
}

type fleetOut struct {
	Workers []workerOut      `json:"workers"`
	Backlog []client.Backlog `json:"backlog"`
}

type usageIn struct {
	Since  string `json:"since,omitempty" jsonschema:"a day in UTC, as in 2026-11-23; default 30 days ago"`
	Before string `json:"before,omitempty" jsonschema:"the day after the last one; default tomorrow"`
}

func (ts *toolSet) addFleet() {
	addTool(ts, tool{
		name: "get_fleet", title: "Show the fleet", scope: scopeOperator, hints: readsOnly, out: schemaOf[fleetOut](),
		text: "The workers, and the backlog of each task pool.",
	}, func(ctx context.Context, c *call, _ struct{}) (*result, error) {
		f, err := c.fleet.Fleet(ctx)
		if err != nil {
			return nil, err
		}
		out := fleetOut{Workers: []workerOut{}, Backlog: append([]client.Backlog{}, f.Backlog...)}
		for _, w := range f.Workers {
			pools := append([]string{}, w.Pools...)
			out.Workers = append(out.Workers, workerOut{w.Name, w.State, pools, w.Busy, w.Slots})
		}
		out.Workers = listPrefix(out.Workers, c.b.o.MaxOutput/2)
		out.Backlog = listPrefix(out.Backlog, c.b.o.MaxOutput/2-len(`{"workers":,"backlog":}`))
		return &result{out: out}, nil
	})
	addTool(ts, tool{
		name: "get_usage", title: "Show the usage", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[listing[client.TenantUsage]](),
		text: "What your tenant's tasks used, by day: time, tokens, bytes, waits.",
	}, func(ctx context.Context, c *call, in usageIn) (*result, error) {
		usage, err := c.fleet.Usage(ctx, client.UsageOptions{Since: in.Since, Before: in.Before})
		if err != nil {
			return nil, err
		}
		return listed(c, usage), nil
	})
}

// workspaceOf returns the workspace with the name, or the main one.
func (c *call) workspaceOf(name string) *client.Workspace {
	return c.fleet.Workspace(cmp.Or(name, "main"))
}
