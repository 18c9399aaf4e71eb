package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// taskIn is what execute_task and submit_task have in common.
type taskIn struct {
	TaskDescription string          `json:"task_description,omitempty" jsonschema:"what to do, in words; the fleet writes the program"`
	Code            string          `json:"code,omitempty" jsonschema:"Python to run instead; the value of the last expression, or of the variable result, comes back as result"`
	Verbose         bool            `json:"verbose,omitempty" jsonschema:"also return the program, the tools it was offered and where time went"`
	Inputs          json.RawMessage `json:"inputs,omitempty" jsonschema:"any JSON value; the program's variable inputs"`
	Session         string          `json:"session,omitempty" jsonschema:"session that the task belongs to"`
	Workspace       string          `json:"workspace,omitempty" jsonschema:"whose files are at /workspace; default main"`
	Tools           []string        `json:"tools,omitempty" jsonschema:"the only tools the program may call: server/tool or server/*"`
	Files           []taskFile      `json:"files,omitempty" jsonschema:"files placed in the workspace first"`
	Artifacts       []string        `json:"artifacts,omitempty" jsonschema:"glob patterns of files to hand back"`
	TimeoutMS       int             `json:"timeout_ms,omitempty" jsonschema:"milliseconds after which the program is stopped; default 300000"`
	IdempotencyKey  string          `json:"idempotency_key,omitempty" jsonschema:"sent twice it is one task"`
}

type taskFile struct {
	Name   string  `json:"name" jsonschema:"path below /workspace"`
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
}

type executeIn struct {
	taskIn
	WaitMS *int `json:"wait_ms,omitempty" jsonschema:"milliseconds to wait for the end before answering with a handle; default 25000, at most 45000"`
}

// compactIn is what the compact profile shows of executeIn.
type compactIn struct {
	TaskDescription string          `json:"task_description,omitempty" jsonschema:"what to do, in words"`
	Code            string          `json:"code,omitempty" jsonschema:"or Python to run; last expression = result"`
	Inputs          json.RawMessage `json:"inputs,omitempty" jsonschema:"JSON; the variable inputs"`
	Session         string          `json:"session,omitempty"`
	WaitMS          *int            `json:"wait_ms,omitempty" jsonschema:"default 25000"`
}

// anything is what a program may do through the tools it calls.
var anything = mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)}

func (p *principal) addExecute(s *mcp.Server, profile string) {
	t := tool{
		name: "execute_task", title: "Execute a task", scope: scopeSubmit, compact: true, hints: anything, out: schemaOf[taskOut](),
		text: "Run Python in a sandbox, or have a program written for a task in words. Files under /workspace stay from task to task; " +
			"`from servers.SERVER import TOOL` calls a tool. Answers when the program has ended, or within wait_ms with a task_id and the status " +
			"queued or running: then call get_task.",
	}
	if profile == Compact {
		t.text = "Run Python, or a task in words, in a sandbox; /workspace stays. `from servers.S import T` calls a tool. Status running: call get_task."
		addTool(p, s, profile, t, func(ctx context.Context, c *call, in compactIn) (*answer, error) {
			return c.execute(ctx, taskIn{TaskDescription: in.TaskDescription, Code: in.Code, Inputs: in.Inputs, Session: in.Session}, in.WaitMS)
		})
		return
	}
	addTool(p, s, profile, t, func(ctx context.Context, c *call, in executeIn) (*answer, error) {
		return c.execute(ctx, in.taskIn, in.WaitMS)
	})
	addTool(p, s, profile, tool{
		name: "submit_task", title: "Submit a task", scope: scopeSubmit, hints: anything, out: schemaOf[taskOut](),
		text: "As execute_task, but answers at once with the task_id: for work that takes long, or several tasks side by side. Read the end with get_task.",
	}, func(ctx context.Context, c *call, in taskIn) (*answer, error) {
		// The handle is what was asked for: a client that drives tasks of the protocol's own would wait for the end.
		return c.execute(context.WithValue(ctx, detachingKey{}, nil), in, new(0))
	})
}

// submission is the task as the fleet takes it.
func (in taskIn) submission() (client.Submission, error) {
	s := client.Submission{
		Session: in.Session, Workspace: in.Workspace, IdempotencyKey: cmp.Or(in.IdempotencyKey, rand.Text()),
		Task: client.Task{Description: in.TaskDescription, Code: in.Code, Artifacts: in.Artifacts, Inputs: in.Inputs},
	}
	if in.Code == "" && strings.TrimSpace(in.TaskDescription) == "" {
		return s, badArgument("give task_description, or code")
	}
	if in.Code != "" && in.TaskDescription != "" { // the words say what the program is for
		s.Description, s.Labels = "", map[string]string{"description": cut(in.TaskDescription, 1000)}
	}
	for _, f := range in.Files {
		s.Files = append(s.Files, client.File{Name: f.Name, Text: f.Text, Base64: f.Base64})
	}
	if len(in.Tools) > 0 {
		s.Tools = &client.ToolChoice{Allow: in.Tools}
	}
	if in.TimeoutMS != 0 {
		s.Limits = &client.Limits{TimeoutS: float64(in.TimeoutMS) / 1000}
	}
	return s, nil
}

// execute submits a task and waits for its end as long as the caller's client is sure to.
func (c *call) execute(ctx context.Context, in taskIn, waitMS *int) (*answer, error) {
	s, err := in.submission()
	if err != nil {
		return nil, err
	}
	wait, err := c.wait(waitMS, c.b.o.Wait)
	if err != nil {
		return nil, err
	}
	if detachable(ctx) { // a task of the protocol's own kind, unless it is short
		wait = min(wait, shortTask)
	}
	var seen seen
	end, o := c.begun.Add(wait), viewOptions{verbose: in.Verbose}
	if id := c.req.Params.RequestState; id != "" { // the task of a call that was made before, and asked
		return c.again(ctx, id, &seen, end, o)
	}
	rec, err := c.run(ctx, s, wait, &seen)
	if err == nil && !rec.Status.Terminal() {
		state := c.ofFleet(ctx, rec, nil)
		state.InputRequests = nil // tasks/get has them
		if detach(ctx, state) {
			return &answer{out: struct{}{}}, nil // the middleware answers with the handle
		}
	}
	var a *answer
	if err == nil {
		a, err = c.attend(ctx, rec, &seen, end, o, nil)
	}
	if ctx.Err() != nil {
		c.abandon(ctx, s)
		return nil, context.Cause(ctx)
	}
	return a, err
}

// again goes on with a task whose call asked the client's user something.
func (c *call) again(ctx context.Context, id string, seen *seen, end time.Time, o viewOptions) (*answer, error) {
	known, err := c.resume(ctx, id)
	if err != nil {
		return nil, err
	}
	rec, err := c.follow(ctx, id, max(0, time.Until(end)), seen, known...)
	if err != nil {
		return nil, err
	}
	return c.attend(ctx, rec, seen, end, o, known)
}

// run submits s and returns its record as it is after wait, at the latest.
func (c *call) run(ctx context.Context, s client.Submission, wait time.Duration, seen *seen) (client.Record, error) {
	if c.progressToken() != nil && wait > 0 {
		rec, err := c.fleet.Submit(ctx, s)
		if err != nil || rec.Status.Terminal() {
			return rec, err
		}
		return c.follow(ctx, rec.TaskID, wait, seen)
	}
	rec, err := c.submit(ctx, s, wait)
	if err == nil && !rec.Status.Terminal() && wait > 0 {
		return c.follow(ctx, rec.TaskID, 0, seen) // what it has printed so far
	}
	return rec, err
}

// submit submits s and returns its record once it has ended, or as it is after wait, or when the
// bridge stops.
func (c *call) submit(ctx context.Context, s client.Submission, wait time.Duration) (client.Record, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.b.stopping, stop)()
	end := time.Now().Add(wait)
	rec, err := c.fleet.SubmitForApproval(waiting, s, wait)
	for err == nil && !rec.Status.Terminal() && len(unheard(rec, nil)) == 0 && time.Now().Before(end) { // who was asked is stopping: another goes on
		var next client.Record
		if next, err = c.fleet.WaitForApproval(waiting, rec.TaskID, time.Until(end)); err == nil {
			rec = next
		}
	}
	if waiting.Err() != nil && ctx.Err() == nil {
		return c.fleet.Submit(ctx, s) // by its key it is the same task
	}
	return rec, err
}

// abandon cancels the task of a call that its client cancelled. A client that went away without a
// word may come back for it, so then it goes on.
func (c *call) abandon(ctx context.Context, s client.Submission) {
	if !cancelled(ctx, c.req) {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer stop()
	rec, err := c.fleet.Submit(ctx, s) // by its key it is the same task, if it was submitted at all
	if err == nil {
		_, err = c.fleet.Cancel(ctx, rec.TaskID)
	}
	if err != nil {
		c.b.o.Log.WarnContext(ctx, "cancelled call not cancelled in the fleet", "task_id", rec.TaskID, "error", err)
	}
}

// cancelled reports whether the client took the call back, rather than vanished: the SDK says why it
// ended the context in all other cases. A modern request over HTTP has no other sign than that its
// connection is gone, which is no word.
func cancelled(ctx context.Context, req *mcp.CallToolRequest) bool {
	return context.Cause(ctx) == context.Canceled && (!overHTTP(req.Extra) || req.ProtocolVersion() < modern) //nolint:errorlint // wrapped, it is something else
}

// modern is the first revision of the protocol without sessions.
const modern = "2026-07-28"

const (
	shortTask  = time.Second      // tasks that take less get no handle of the protocol's own
	settleTime = 10 * time.Second // for what is done after a call
)

// wait is how long a call may take, by its argument.
func (c *call) wait(ms *int, otherwise time.Duration) (time.Duration, error) {
	if ms == nil {
		return otherwise, nil
	}
	if *ms < 0 {
		return 0, badArgument("wait_ms is negative")
	}
	return min(time.Duration(*ms)*time.Millisecond, c.b.o.MaxWait), nil
}
