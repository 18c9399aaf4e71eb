package bridge

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

type getIn struct {
	TaskID       string `json:"task_id"`
	WaitMS       *int   `json:"wait_ms,omitempty" jsonschema:"milliseconds to wait for the end; default 20000, at most 45000; 0 looks only"`
	OutputOffset int    `json:"output_offset,omitempty" jsonschema:"byte of the output to begin at"`
	Verbose      bool   `json:"verbose,omitempty"`
}

// compactGetIn is what the compact profile shows of getIn.
type compactGetIn struct {
	TaskID       string `json:"task_id"`
	WaitMS       *int   `json:"wait_ms,omitempty" jsonschema:"default 20000"`
	OutputOffset int    `json:"output_offset,omitempty"`
}

// getWait is how long get_task waits unless it is told.
const getWait = 20 * time.Second

func (p *principal) addTaskTools(s *mcp.Server, profile string) {
	p.addExecute(s, profile)
	looks := mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)}
	t := tool{
		name: "get_task", title: "Get a task", scope: scopeRead, compact: true, hints: looks, out: schemaOf[taskOut](),
		text: "Wait for a task and return what came of it, or how far it is: status, output so far, at last result and error. May be called again and again.",
	}
	if profile == Compact {
		t.text = "Wait for a task; its status, output so far, at last the result."
		addTool(p, s, profile, t, func(ctx context.Context, c *call, in compactGetIn) (*answer, error) {
			return c.get(ctx, getIn{TaskID: in.TaskID, WaitMS: in.WaitMS, OutputOffset: in.OutputOffset})
		})
		return
	}
	addTool(p, s, profile, t, func(ctx context.Context, c *call, in getIn) (*answer, error) { return c.get(ctx, in) })
	addTool(p, s, profile, tool{
		name: "cancel_task", title: "Cancel a task", scope: scopeSubmit, out: schemaOf[cancelOut](),
		hints: mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: new(true), OpenWorldHint: new(false)},
		text:  "Stop a task: a queued one at once, a running one soon. One that has ended stays as it is.",
	}, func(ctx context.Context, c *call, in cancelIn) (*answer, error) { return c.cancel(ctx, in) })
	addTool(p, s, profile, tool{
		name: "list_tasks", title: "List tasks", scope: scopeRead, hints: looks, out: schemaOf[listOut](),
		text: "The latest tasks, newest first.",
	}, func(ctx context.Context, c *call, in listIn) (*answer, error) { return c.list(ctx, in) })
}

func (c *call) get(ctx context.Context, in getIn) (*answer, error) {
	wait, err := c.wait(in.WaitMS, getWait)
	if err != nil {
		return nil, err
	}
	if in.OutputOffset < 0 {
		return nil, badArgument("output_offset is negative")
	}
	var seen seen
	id, end, o := strings.TrimSpace(in.TaskID), c.begun.Add(wait), viewOptions{verbose: in.Verbose, offset: in.OutputOffset}
	if c.req.Params.RequestState != "" {
		return c.again(ctx, id, &seen, end, o)
	}
	var known []string
	if !c.canAsk() { // nothing is to be done about what waits already
		rec, err := c.fleet.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, q := range unheard(rec, nil) {
			known = append(known, q.Call)
		}
	}
	rec, err := c.follow(ctx, id, wait, &seen, known...)
	if err != nil {
		return nil, err
	}
	return c.attend(ctx, rec, &seen, end, o, known)
}

type cancelIn struct {
	TaskID string `json:"task_id"`
}

type cancelOut struct {
	Success   bool   `json:"success"`
	TaskID    string `json:"task_id"`
	Status    string `json:"status" jsonschema:"where the task stands now; a running one becomes cancelled soon"`
	Cancelled bool   `json:"cancelled" jsonschema:"it is, or is about to be; false: it had ended before"`
}

func (c *call) cancel(ctx context.Context, in cancelIn) (*answer, error) {
	rec, err := c.fleet.Cancel(ctx, strings.TrimSpace(in.TaskID))
	if err != nil {
		return nil, err
	}
	return &answer{out: cancelOut{
		Success: true, TaskID: rec.TaskID, Status: string(rec.Status),
		Cancelled: rec.Status == client.Cancelled || !rec.Status.Terminal(),
	}}, nil
}

type listIn struct {
	Status []string `json:"status,omitempty" jsonschema:"only tasks that are so"`
	Limit  int      `json:"limit,omitempty" jsonschema:"default 20, at most 100"`
}

type listOut struct {
	Tasks []listedTask `json:"tasks"`
}

type listedTask struct {
	TaskID      string    `json:"task_id"`
	Status      string    `json:"status"`
	What        string    `json:"what,omitempty" jsonschema:"the beginning of its description or program, or of its error"`
	Session     string    `json:"session,omitempty"`
	SubmittedAt time.Time `json:"submitted_at"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
}

func (c *call) list(ctx context.Context, in listIn) (*answer, error) {
	if in.Limit < 0 || in.Limit > 100 {
		return nil, badArgument("limit is not from 1 to 100")
	}
	o := client.ListOptions{Limit: in.Limit}
	if o.Limit == 0 {
		o.Limit = 20
	}
	known := []client.Status{
		client.Queued, client.Running, client.RetryWait, client.Succeeded, client.Failed, client.Blocked,
		client.Timeout, client.Cancelled, client.Expired, client.Dead,
	}
	for _, s := range in.Status {
		if !slices.Contains(known, client.Status(s)) {
			return nil, badArgument("status %q is not one of %v", s, known)
		}
		o.Status = append(o.Status, client.Status(s))
	}
	recs, err := c.fleet.List(ctx, o)
	if err != nil {
		return nil, err
	}
	out := listOut{Tasks: []listedTask{}}
	for _, r := range recs {
		out.Tasks = append(out.Tasks, listedTask{
			TaskID: r.TaskID, Status: string(r.Status), What: what(r), Session: r.Session,
			SubmittedAt: r.SubmittedAt, EndedAt: r.EndedAt,
		})
	}
	return &answer{out: out}, nil
}

// what is the beginning of what a task is about.
func what(r client.Record) string {
	text := r.Code
	if r.Result != nil {
		if d := r.Result.Labels["description"]; d != "" {
			text = d
		}
		if r.Result.Error != nil {
			text = r.Result.Error.Message
		}
	}
	return cut(strings.Join(strings.Fields(text), " "), 100)
}
