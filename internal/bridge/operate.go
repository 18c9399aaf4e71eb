package bridge

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// This file has the tools for what people see and operate on the web page: tool calls, dead letters, the fleet.

// fittingList is a list that fits into a result.
type fittingList[T any] struct {
	Items     []T  `json:"items"`
	Truncated bool `json:"truncated,omitempty" jsonschema:"more did not fit"`
}

// fitList returns the beginning of a list, as far as it fits.
func fitList[T any](c *call, list []T) fittingList[T] {
	fitting := listPrefix(list, c.b.o.MaxOutput-len(`{"items":,"truncated":true}`))
	return fittingList[T]{Items: append([]T{}, fitting...), Truncated: len(fitting) < len(list)}
}

func listed[T any](c *call, list []T) *result { return &result{out: fitList(c, list)} }

// changesFleet are the hints of tools that change something in the fleet, and nothing elsewhere.
var changesFleet = mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(false)}

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
		out: schemaOf[fittingList[toolCallOut]](), text: "The tool calls of a task's programs, the first one first.",
	}, func(ctx context.Context, c *call, in listCallsIn) (*result, error) { return c.listCalls(ctx, in) })
	addTool(ts, tool{
		name: "list_dead_tasks", title: "List dead letters", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[fittingList[deadOut]](),
		text: "Tasks that could not be run, the latest first. retry_task runs one again.",
	}, func(ctx context.Context, c *call, in listDeadIn) (*result, error) {
		limit, err := listLimit(in.Limit)
		if err != nil {
			return nil, err
		}
		dead, err := c.fleet.Dead(ctx, limit)
		if err != nil {
			return nil, err
		}
		list := make([]deadOut, len(dead))
		for i, d := range dead {
			list[i] = deadOut{d.TaskID, d.Time, d.Error.Code, c.beginning(ctx, d.Error.Message)}
		}
		return listed(c, list), nil
	})
	addTool(ts, tool{
		name: "redrive_tasks", title: "Redrive dead letters", scope: scopeSubmit, out: schemaOf[redriveOut](),
		hints: mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)},
		text:  "Run all dead-lettered tasks with a cause again, once the cause is fixed.",
	}, func(ctx context.Context, c *call, in redriveIn) (*result, error) {
		if in.Cause == "" {
			return nil, badArgument("cause is empty; list_dead_tasks returns the causes")
		}
		var out redriveOut
		err := c.fleet.RedriveWithCause(ctx, in.Cause, func(t client.RedrivenTask) error {
			if t.Error != "" {
				out.Refused++
			} else {
				out.Redriven++
			}
			return nil
		})
		return &result{out: out}, err
	})
	ts.addFleet()
}

func (c *call) listCalls(ctx context.Context, in listCallsIn) (*result, error) {
	id := strings.TrimSpace(in.TaskID)
	if _, err := c.fleet.Get(ctx, id); err != nil {
		return nil, err
	}
	records, err := c.fleet.Audit(ctx, client.AuditOptions{Task: id, Limit: maxRecords})
	if err != nil {
		return nil, err
	}
	servers, _ := c.catalogue(ctx) // the fleet may have no catalogue
	out := fitList(c, endedCalls(records, servers))
	out.Truncated = out.Truncated || len(records) == maxRecords // there may be earlier calls
	return &result{out: out}, nil
}

// maxRecords is how many audit records of a task list_tool_calls reads, the latest.
const maxRecords = 1000

// endedCalls returns the calls that have ended, the first one first. A tool that the catalogue no longer has keeps the
// name of the MCP server's tool.
func endedCalls(latestFirst []client.AuditRecord, servers []server) (list []toolCallOut) {
	imported := map[string]string{}
	for _, s := range servers {
		for i, id := range s.ids {
			imported[id] = s.pkg + "/" + s.tools[i]
		}
	}
	for _, a := range slices.Backward(latestFirst) {
		if a.Event == "end" {
			id := a.Server + "/" + a.Tool
			list = append(list, toolCallOut{
				Tool: cmp.Or(imported[id], id), Time: a.Time, OK: a.OK, Code: a.Code, MS: a.MS, ArgsHash: a.ArgsHash,
				ArgsBytes: a.ArgsBytes, ResultBytes: a.ResultBytes, Replayed: a.Replayed, ApprovedBy: a.ApprovedBy,
			})
		}
	}
	return list
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
	// Truncated says that fitFleet has shortened a list.
	Truncated bool `json:"truncated,omitempty" jsonschema:"more did not fit"`
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
		return &result{out: fitFleet(out, c.b.o.MaxOutput)}, nil
	})
	addTool(ts, tool{
		name: "get_usage", title: "Show the usage", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[fittingList[client.TenantUsage]](),
		text: "What your tenant's tasks used, by day: time, tokens, bytes, waits.",
	}, func(ctx context.Context, c *call, in usageIn) (*result, error) {
		usage, err := c.fleet.Usage(ctx, client.UsageOptions{Since: in.Since, Before: in.Before})
		if err != nil {
			return nil, err
		}
		return listed(c, usage), nil
	})
}

// fitFleet returns the fleet in at most limit bytes of JSON.
func fitFleet(out fleetOut, limit int) fleetOut {
	all := len(out.Workers) + len(out.Backlog)
	out.Workers = listPrefix(out.Workers, limit/2)
	out.Backlog = listPrefix(out.Backlog, limit/2-len(`{"workers":,"backlog":,"truncated":true}`))
	out.Truncated = len(out.Workers)+len(out.Backlog) < all
	return out
}

// workspaceOf returns the workspace with the name, or the main one.
func (c *call) workspaceOf(name string) *client.Workspace {
	return c.fleet.Workspace(cmp.Or(name, "main"))
}
