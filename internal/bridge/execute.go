package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

// taskIn are the arguments that execute_task and submit_task share.
type taskIn struct {
	TaskDescription string          `json:"task_description,omitempty" jsonschema:"what to do, in words; the fleet writes the program"`
	Code            string          `json:"code,omitempty" jsonschema:"Python to run instead; the value of the last expression, or of the variable result, comes back as result"`
	Skill           string          `json:"skill,omitempty" jsonschema:"or the name of a skill to run, with inputs as its arguments"`
	Verbose         bool            `json:"verbose,omitempty" jsonschema:"also return the program, the tools it was offered and timings"`
	Inputs          json.RawMessage `json:"inputs,omitempty" jsonschema:"any JSON value; the program's variable inputs"`
	Session         string          `json:"session,omitempty" jsonschema:"session that the task belongs to"`
	Workspace       string          `json:"workspace,omitempty" jsonschema:"workspace whose files are at /workspace; default main"`
	Tools           []string        `json:"tools,omitempty" jsonschema:"the only tools the program may call: server/tool or server/*"`
	Files           []taskFile      `json:"files,omitempty" jsonschema:"files placed in the workspace first"`
	Artifacts       []string        `json:"artifacts,omitempty" jsonschema:"glob patterns of files to return"`
	TimeoutMS       int             `json:"timeout_ms,omitempty" jsonschema:"milliseconds after which the program is stopped; default 300000"`
	IdempotencyKey  string          `json:"idempotency_key,omitempty" jsonschema:"calls with the same key are one task"`
}

type taskFile struct {
	Name   string  `json:"name" jsonschema:"path below /workspace"`
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
}

type executeIn struct {
	taskIn
	WaitMS *int `json:"wait_ms,omitempty" jsonschema:"milliseconds to wait for the end before returning a handle; default {execute}, at most {max}"`
}

// compactIn are the arguments of execute_task in the compact profile.
type compactIn struct {
	TaskDescription string          `json:"task_description,omitempty" jsonschema:"what to do, in words"`
	Code            string          `json:"code,omitempty" jsonschema:"or Python to run; last expression = result"`
	Inputs          json.RawMessage `json:"inputs,omitempty" jsonschema:"JSON; the variable inputs"`
	Session         string          `json:"session,omitempty"`
	WaitMS          *int            `json:"wait_ms,omitempty" jsonschema:"default {execute}"`
}

// anyEffect are the hints for a program, which may do anything through the tools it calls.
var anyEffect = mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)}

func (ts *toolSet) addExecute() {
	t := tool{
		name: "execute_task", title: "Execute a task", scope: scopeSubmit, compact: true, submits: true,
		hints: anyEffect, out: schemaOf[taskOut](),
		text: "Run Python in a sandbox, or have a program written for a task in words. Files under /workspace stay " +
			"from task to task; `from servers.SERVER import TOOL` imports a tool. Returns when the program has " +
			"ended, or within wait_ms with a task_id and the status queued or running: then call get_task.",
	}
	if ts.profile == Compact {
		t.text = "Run Python, or a task in words, in a sandbox; /workspace stays. `from servers.S import T` " +
			"imports a tool. If the status is running, call get_task."
		addTool(ts, t, func(ctx context.Context, c *call, in compactIn) (*result, error) {
			task := taskIn{TaskDescription: in.TaskDescription, Code: in.Code, Inputs: in.Inputs, Session: in.Session}
			return c.execute(ctx, task, in.WaitMS)
		})
		return
	}
	addTool(ts, t, func(ctx context.Context, c *call, in executeIn) (*result, error) {
		return c.executeImported(ctx, in.taskIn, in.WaitMS)
	})
	// submit_task does not set tool.submits: its caller wants the handle, but a client that gets a task of the
	// extension waits for its end.
	addTool(ts, tool{
		name: "submit_task", title: "Submit a task", scope: scopeSubmit, hints: anyEffect, out: schemaOf[taskOut](),
		text: "Like execute_task, but returns the task_id at once: for work that takes long, or several tasks " +
			"side by side. Read the end with get_task.",
	}, func(ctx context.Context, c *call, in taskIn) (*result, error) {
		return c.executeImported(ctx, in, new(0))
	})
}

// submission returns the task as the fleet expects it.
func (in taskIn) submission() (client.Submission, error) {
	s := client.Submission{
		Session: in.Session, Workspace: in.Workspace, IdempotencyKey: cmp.Or(in.IdempotencyKey, rand.Text()),
		Task: client.Task{Description: in.TaskDescription, Code: in.Code, Artifacts: in.Artifacts, Inputs: in.Inputs},
	}
	if in.Skill != "" {
		if in.Code != "" || in.TaskDescription != "" {
			return s, badArgument("give only one of skill, code and task_description")
		}
		s.Skill = skillName(in.Skill)
	} else if in.Code == "" && strings.TrimSpace(in.TaskDescription) == "" {
		return s, badArgument("give task_description or code, or skill")
	}
	if in.Code != "" && in.TaskDescription != "" { // a task has only one of them: make the description a label
		s.Description, s.Labels = "", map[string]string{"description": text.Truncate(in.TaskDescription, 1000)}
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

const (
	// shortTask is how long a task may take before a client with the tasks extension gets the task, not the result.
	shortTask = time.Second
	// cleanupTimeout bounds the requests that follow a cancelled call.
	cleanupTimeout = 10 * time.Second
)

// executeImported is like execute, but in.Tools may have the names that programs import.
func (c *call) executeImported(ctx context.Context, in taskIn, waitMS *int) (*result, error) {
	if len(in.Tools) > 0 {
		var err error
		if in.Tools, err = c.toolIDs(ctx, in.Tools); err != nil {
			return nil, err
		}
	}
	return c.execute(ctx, in, waitMS)
}

// execute submits a task and waits for its end, but not longer than the client can be expected to wait.
func (c *call) execute(ctx context.Context, in taskIn, waitMS *int) (*result, error) {
	s, err := in.submission()
	if err != nil {
		return nil, err
	}
	wait, err := c.wait(waitMS, c.b.o.Wait)
	if err != nil {
		return nil, err
	}
	if acceptsTasks(c.req) {
		wait = min(wait, shortTask)
	}
	var got partial
	end, o := c.begun.Add(wait), viewOptions{verbose: in.Verbose}
	if id := c.req.Params.RequestState; id != "" { // the call brings the user's responses
		return c.continueTask(ctx, id, &got, end, o)
	}
	rec, err := c.run(ctx, s, wait, &got)
	var r *result
	switch {
	case err != nil:
	case c.returnTask && !rec.Status.Terminal():
		state := c.pendingTask(rec, canElicit(c.req))
		state.InputRequests = nil // tasks/get returns them
		return &result{task: &state}, nil
	default:
		r, err = c.askThenView(ctx, rec, &got, end, o, nil)
	}
	if ctx.Err() != nil {
		c.cancelTask(ctx, s)
		return nil, context.Cause(ctx)
	}
	return r, err
}

// continueTask applies the user's decisions about a task's calls, and continues to wait for the task.
func (c *call) continueTask(
	ctx context.Context, id string, got *partial, end time.Time, o viewOptions,
) (*result, error) {
	undecided, err := c.applyResponses(ctx, id)
	if err != nil {
		return nil, err
	}
	rec, err := c.follow(ctx, id, max(0, time.Until(end)), got, undecided...)
	if err != nil {
		return nil, err
	}
	return c.askThenView(ctx, rec, got, end, o, undecided)
}

// run submits s and returns the task's record once the task has ended, or after wait. got collects the output.
func (c *call) run(ctx context.Context, s client.Submission, wait time.Duration, got *partial) (client.Record, error) {
	if c.progressToken() != nil && wait > 0 {
		rec, err := c.fleet.Submit(ctx, s)
		if err != nil || rec.Status.Terminal() {
			return rec, err
		}
		return c.follow(ctx, rec.TaskID, wait, got)
	}
	rec, err := c.submit(ctx, s, wait)
	if err == nil && !rec.Status.Terminal() && wait > 0 {
		return c.follow(ctx, rec.TaskID, 0, got) // collect the output so far
	}
	return rec, err
}

// submit submits s. It returns the task's record once the task has ended or waits for approval, after wait, or when the
// bridge stops.
func (c *call) submit(ctx context.Context, s client.Submission, wait time.Duration) (client.Record, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.b.stopping, stop)()
	end := time.Now().Add(wait)
	rec, err := c.fleet.SubmitForApproval(waiting, s, wait)
	// An ingest process that drains responds early. Continue to wait at another one.
	for err == nil && !rec.Status.Terminal() && len(pendingExcept(rec, nil)) == 0 && time.Now().Before(end) {
		var next client.Record
		if next, err = c.fleet.WaitForApproval(waiting, rec.TaskID, time.Until(end)); err == nil {
			rec = next
		}
	}
	if waiting.Err() != nil && ctx.Err() == nil {
		return c.fleet.Submit(ctx, s) // the idempotency key makes it the same task
	}
	return rec, err
}

// cancelTask cancels the task of a call that the client has cancelled. If the client only disconnected, the task
// continues, because the client may come back for it.
func (c *call) cancelTask(ctx context.Context, s client.Submission) {
	if !cancelled(ctx, c.req) {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer stop()
	rec, err := c.fleet.Submit(ctx, s) // finds the task by its idempotency key, or creates it
	if err == nil {
		_, err = c.fleet.Cancel(ctx, rec.TaskID)
	}
	if err != nil {
		c.b.o.Log.WarnContext(ctx, "task of cancelled call not cancelled", "task_id", rec.TaskID, "error", err)
	}
}

// cancelled reports whether the client cancelled the call. If the call ended for another reason, such as a
// disconnection, the SDK has set another cause. Over HTTP, revisions from modern on cancel by closing the connection.
// That looks like a disconnection, so cancelled reports false.
func cancelled(ctx context.Context, req *mcp.CallToolRequest) bool {
	return context.Cause(ctx) == context.Canceled && //nolint:errorlint // a cause that wraps it is not a cancellation
		(!remote(req.Extra) || req.ProtocolVersion() < modern)
}

// wait returns how long a call may wait: its argument in milliseconds or the default, at most MaxWait.
func (c *call) wait(ms *int, byDefault time.Duration) (time.Duration, error) {
	longest := c.b.o.MaxWait
	switch {
	case ms == nil:
		return min(byDefault, longest), nil
	case *ms < 0:
		return 0, badArgument("wait_ms is negative")
	case int64(*ms) > longest.Milliseconds(): // in nanoseconds, it might overflow
		return longest, nil
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

// waits fills in the placeholders of the descriptions of wait_ms: how long calls wait by default and at most.
func (b *Bridge) waits() *strings.Replacer {
	ms := func(d time.Duration) string { return strconv.FormatInt(min(d, b.o.MaxWait).Milliseconds(), 10) }
	return strings.NewReplacer("{execute}", ms(b.o.Wait), "{get}", ms(getWait), "{max}", ms(b.o.MaxWait))
}
