package bridge

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

type getIn struct {
	TaskID       string `json:"task_id"`
	WaitMS       *int   `json:"wait_ms,omitempty" jsonschema:"milliseconds to wait for the end; default {get}, at most {max}; 0 does not wait"`
	OutputOffset int    `json:"output_offset,omitempty" jsonschema:"byte of the output to begin at"`
	Part         string `json:"part,omitempty" jsonschema:"after the task has ended, return this part as the output: result, stderr, error, code, artifacts, changes"`
	Verbose      bool   `json:"verbose,omitempty"`
}

// compactGetIn are the arguments of get_task in the compact profile.
type compactGetIn struct {
	TaskID       string `json:"task_id"`
	WaitMS       *int   `json:"wait_ms,omitempty" jsonschema:"default {get}"`
	OutputOffset int    `json:"output_offset,omitempty"`
	Part         string `json:"part,omitempty" jsonschema:"result, stderr, error, code"`
}

// getWait is how long get_task and the tools that wait for workflow runs wait by default, unless MaxWait is less.
const getWait = 20 * time.Second

func (ts *toolSet) addTaskTools() {
	t := tool{
		name: "get_task", title: "Get a task", scope: scopeRead, compact: true, hints: readsOnly,
		out: schemaOf[taskOut](),
		text: "Wait for a task and return its status, its output so far and, once it has ended, its result and " +
			"error. May be called repeatedly.",
	}
	if ts.profile == Compact {
		t.text = "Wait for a task; returns its status, output so far, finally the result."
		addTool(ts, t, func(ctx context.Context, c *call, in compactGetIn) (*result, error) {
			return c.get(ctx, getIn{TaskID: in.TaskID, WaitMS: in.WaitMS, OutputOffset: in.OutputOffset, Part: in.Part})
		})
		return
	}
	addTool(ts, t, func(ctx context.Context, c *call, in getIn) (*result, error) { return c.get(ctx, in) })
	addTool(ts, tool{
		name: "why_task", title: "Why a task waits", scope: scopeRead, hints: readsOnly, out: schemaOf[whyOut](),
		text: "What a task that has not started waits for, how many tasks start first, and when it will start.",
	}, func(ctx context.Context, c *call, in whyIn) (*result, error) { return c.why(ctx, in) })
	addTool(ts, tool{
		name: "cancel_task", title: "Cancel a task", scope: scopeSubmit, out: schemaOf[cancelOut](),
		hints: mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: new(true), OpenWorldHint: new(false)},
		text:  "Stop a task: a queued one at once, a running one soon. A task that has ended does not change.",
	}, func(ctx context.Context, c *call, in cancelIn) (*result, error) { return c.cancel(ctx, in) })
	addTool(ts, tool{
		name: "retry_task", title: "Retry a task", scope: scopeSubmit, out: schemaOf[retryOut](),
		hints: mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: new(true), OpenWorldHint: new(true)},
		text: "Run a task again that ended without success. Returns the task that runs, which may be a new one: " +
			"get_task waits for it.",
	}, func(ctx context.Context, c *call, in retryIn) (*result, error) { return c.retry(ctx, in) })
	addTool(ts, tool{
		name: "list_tasks", title: "List tasks", scope: scopeRead, hints: readsOnly, out: schemaOf[listOut](),
		text: "The tasks that changed last, newest submission first.",
	}, func(ctx context.Context, c *call, in listIn) (*result, error) { return c.list(ctx, in) })
}

func (c *call) get(ctx context.Context, in getIn) (*result, error) {
	wait, err := c.wait(in.WaitMS, getWait)
	if err != nil {
		return nil, err
	}
	if in.OutputOffset < 0 {
		return nil, badArgument("output_offset is negative")
	}
	if !knownPart(in.Part) {
		return nil, unknownPart(in.Part)
	}
	var got partial
	id, end := strings.TrimSpace(in.TaskID), c.begun.Add(wait)
	o := viewOptions{verbose: in.Verbose, part: in.Part, offset: in.OutputOffset}
	if c.req.Params.RequestState != "" {
		return c.continueTask(ctx, id, &got, end, o)
	}
	var skip []string
	if !c.canAsk() { // keep waiting despite pending calls, which this client cannot decide
		rec, err := c.fleet.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, q := range pendingExcept(rec, nil) {
			skip = append(skip, q.Call)
		}
	}
	rec, err := c.follow(ctx, id, wait, &got, skip...)
	if err != nil {
		return nil, err
	}
	return c.askThenView(ctx, rec, &got, end, o, skip)
}

type whyIn struct {
	TaskID string `json:"task_id"`
}

type whyOut struct {
	TaskID    string    `json:"task_id"`
	Status    string    `json:"status"`
	Rule      string    `json:"rule" jsonschema:"what holds it: running, approval, sandbox, memory, at, retry, no_key, paused, no_worker, rate, max_running, turn, or ended"`
	Message   string    `json:"message"`
	Ahead     *int      `json:"ahead,omitempty" jsonschema:"how many tasks of the same kind start first"`
	Until     time.Time `json:"until,omitzero" jsonschema:"when the rule ends by itself"`
	EstimateS *float64  `json:"estimate_s,omitempty" jsonschema:"in how many seconds it will start"`
}

func (c *call) why(ctx context.Context, in whyIn) (*result, error) {
	why, err := c.fleet.Why(ctx, strings.TrimSpace(in.TaskID))
	if err != nil {
		return nil, err
	}
	return &result{out: whyOut{
		TaskID: why.TaskID, Status: string(why.Status), Rule: why.Rule, Message: why.Message, Ahead: why.Ahead,
		Until: why.Until, EstimateS: why.EstimateS,
	}}, nil
}

type retryIn struct {
	TaskID string `json:"task_id"`
}

type retryOut struct {
	TaskID  string `json:"task_id" jsonschema:"the task that runs"`
	Status  string `json:"status"`
	RetryOf string `json:"retry_of" jsonschema:"the task that ended"`
}

func (c *call) retry(ctx context.Context, in retryIn) (*result, error) {
	id := strings.TrimSpace(in.TaskID)
	rec, err := c.fleet.Retry(ctx, id)
	if err != nil {
		return nil, err
	}
	return &result{out: retryOut{TaskID: rec.TaskID, Status: string(rec.Status), RetryOf: id}}, nil
}

type cancelIn struct {
	TaskID string `json:"task_id"`
}

type cancelOut struct {
	Success   bool   `json:"success"`
	TaskID    string `json:"task_id"`
	Status    string `json:"status" jsonschema:"current status; a running task becomes cancelled soon"`
	Cancelled bool   `json:"cancelled" jsonschema:"it is cancelled or soon will be; false if it had ended before"`
}

func (c *call) cancel(ctx context.Context, in cancelIn) (*result, error) {
	rec, err := c.fleet.Cancel(ctx, strings.TrimSpace(in.TaskID))
	if err != nil {
		return nil, err
	}
	return &result{out: cancelOut{
		Success: true, TaskID: rec.TaskID, Status: string(rec.Status),
		Cancelled: rec.Status == client.Cancelled || !rec.Status.Terminal(),
	}}, nil
}

type listIn struct {
	Status []string `json:"status,omitempty" jsonschema:"only tasks with one of these statuses"`
	Limit  int      `json:"limit,omitempty" jsonschema:"default 20, at most 100"`
}

type listOut struct {
	Tasks     []listedTask `json:"tasks"`
	Truncated bool         `json:"truncated,omitempty" jsonschema:"older tasks did not fit: filter by status"`
}

type listedTask struct {
	TaskID      string    `json:"task_id"`
	Status      string    `json:"status"`
	Summary     string    `json:"what,omitempty" jsonschema:"the beginning of its description, or a line of its program"`
	Error       string    `json:"error,omitempty" jsonschema:"the beginning of why it did not succeed"`
	Session     string    `json:"session,omitempty"`
	SubmittedAt time.Time `json:"submitted_at"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
}

func (c *call) list(ctx context.Context, in listIn) (*result, error) {
	limit, err := listLimit(in.Limit)
	if err != nil {
		return nil, err
	}
	o := client.ListOptions{Limit: limit}
	statuses := []client.Status{
		client.Queued, client.Running, client.RetryWait, client.Succeeded, client.Failed, client.Blocked,
		client.Timeout, client.Cancelled, client.Expired, client.Dead,
	}
	for _, s := range in.Status {
		if !slices.Contains(statuses, client.Status(s)) {
			return nil, badArgument("unknown status %q: want one of %v", s, statuses)
		}
		o.Status = append(o.Status, client.Status(s))
	}
	recs, err := c.fleet.List(ctx, o)
	if err != nil {
		return nil, err
	}
	out, size := listOut{Tasks: []listedTask{}}, len(`{"tasks":[],"truncated":true}`)
	for _, r := range recs {
		t := listedTask{
			TaskID: r.TaskID, Status: string(r.Status), Summary: c.beginning(ctx, r.Summary()),
			Error: c.beginning(ctx, errorOf(r)), Session: r.Session,
			SubmittedAt: r.SubmittedAt, EndedAt: r.EndedAt,
		}
		if size += jsonSize(t) + len(","); size > c.b.o.MaxOutput {
			out.Truncated = true
			break
		}
		out.Tasks = append(out.Tasks, t)
	}
	return &result{out: out}, nil
}

// maxSummary bounds a text in the list of tasks, in bytes.
const maxSummary = 100

// beginning returns the beginning of a text, without private values.
func (c *call) beginning(ctx context.Context, s string) string {
	return text.OneLine(c.start(ctx, s, maxSummary))
}

// start returns the first bytes of a text, without private values.
func (c *call) start(ctx context.Context, s string, limit int) string {
	return text.Truncate(c.hidden(ctx, s), limit)
}

// errorOf returns why a task did not succeed.
func errorOf(r client.Record) string {
	if r.Result == nil || r.Result.Error == nil {
		return ""
	}
	return r.Result.Error.Message
}
