package bridge

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// taskOut is a task as the tools show it: success, result, output and error first.
type taskOut struct {
	Success bool    `json:"success" jsonschema:"false when the task ended otherwise than well; true of a task that has not ended"`
	Result  any     `json:"result" jsonschema:"value of the program's last expression, or of its variable result"`
	Output  string  `json:"output" jsonschema:"what the program printed, so far"`
	Error   *string `json:"error" jsonschema:"why it did not succeed, or null"`

	TaskID      string        `json:"task_id"`
	Status      string        `json:"status" jsonschema:"queued, running, retry_wait, or how it ended: succeeded, failed, blocked, timeout, cancelled, expired, dead"`
	Stage       string        `json:"stage,omitempty" jsonschema:"of a running task: its latest step"`
	PollAfterMS int           `json:"poll_after_ms,omitempty" jsonschema:"of a task that has not ended: when to call get_task"`
	Hint        string        `json:"hint,omitempty" jsonschema:"what to do next"`
	Approval    []approvalOut `json:"approval,omitempty" jsonschema:"tool calls of the program that wait until a person approves them"`
	ErrorCode   string        `json:"error_code,omitempty"`
	ErrorLine   int           `json:"error_line,omitempty" jsonschema:"line of the program"`
	Stderr      string        `json:"stderr,omitempty" jsonschema:"its end, when the task did not succeed"`

	Truncated  bool   `json:"truncated" jsonschema:"there is more than this answer shows"`
	NextOffset int    `json:"next_output_offset,omitempty" jsonschema:"give it to get_task as output_offset for more of the output"`
	ResultURI  string `json:"result_uri,omitempty" jsonschema:"resource with the result, when it is too long"`

	Artifacts []artifactOut `json:"artifacts,omitempty"`
	ToolCalls *toolCalls    `json:"tool_calls,omitempty"`
	Changed   []string      `json:"changed_files,omitempty" jsonschema:"files of the workspace that the task changed"`
	Conflicts []string      `json:"conflicts,omitempty"`
	Details   *details      `json:"details,omitempty" jsonschema:"with verbose"`
}

type artifactOut struct {
	Path      string `json:"path"`
	Bytes     int64  `json:"bytes"`
	MediaType string `json:"media_type"`
	URI       string `json:"uri"`
}

type toolCalls struct {
	N      int `json:"n"`
	Failed int `json:"failed"`
}

type details struct {
	Code        string             `json:"code"`
	GeneratedBy string             `json:"generated_by"`
	Selected    []string           `json:"selected_tools"`
	TimingMS    map[string]float64 `json:"timing_ms"`
}

type viewOptions struct {
	verbose bool
	offset  int // of the output
}

// view shows a task within the bytes that an answer may have.
func (p *principal) view(rec client.Record, seen *seen, o viewOptions) *answer {
	out := taskOut{TaskID: rec.TaskID, Status: string(rec.Status), Success: true}
	a := &answer{}
	budget := p.b.o.MaxOutput
	if rec.Result == nil {
		out.Stage, out.PollAfterMS = seen.stage, pollAfter(rec)
		out.Hint = fmt.Sprintf("not an error: the task goes on; call get_task with this task_id in %d ms", out.PollAfterMS)
		out.waiting(rec)
		out.output(seen.output.String(), o.offset, budget)
		out.Truncated = out.Truncated || seen.skipped
		a.out = out
		return a
	}
	r := rec.Result
	out.Success = rec.Status == client.Succeeded
	a.failed = !out.Success
	out.explain(r)
	switch {
	case len(r.Result) > budget:
		out.Truncated, out.ResultURI = true, uriOf(rec.TaskID, "result")
		a.links = append(a.links, link{uri: out.ResultURI, name: "result", media: "application/json", bytes: int64(len(r.Result))})
	case len(r.Result) > 0 && string(r.Result) != "null":
		out.Result = r.Result
		budget -= len(r.Result)
	}
	out.output(r.Output, o.offset, max(budget-len(out.Stderr), minOutput))
	if out.NextOffset > 0 {
		a.links = append(a.links, link{uri: uriOf(rec.TaskID, "output"), name: "output", media: "text/plain", bytes: int64(len(r.Output))})
	}
	out.Truncated = out.Truncated || r.Truncated
	out.extras(r, o.verbose)
	for _, f := range out.Artifacts {
		a.links = append(a.links, link{uri: f.URI, name: f.Path, media: f.MediaType, bytes: f.Bytes})
	}
	a.out = out
	return a
}

// minOutput is how much output an answer shows beside a large result.
const minOutput = 2000

// output shows the output from offset on, as much as fits.
func (out *taskOut) output(text string, offset, budget int) {
	if offset > len(text) {
		offset = len(text)
	}
	for offset > 0 && offset < len(text) && !utf8.RuneStart(text[offset]) {
		offset--
	}
	rest := text[offset:]
	out.Output = cut(rest, budget)
	if len(out.Output) < len(rest) {
		out.Truncated, out.NextOffset = true, offset+len(out.Output)
	}
}

// explain says why a task did not succeed, all of it in one text.
func (out *taskOut) explain(r *client.Result) {
	if r.Error == nil {
		return
	}
	e := r.Error
	text := e.Message
	cause := strings.TrimSpace(e.Cause)
	if cause != "" && !strings.Contains(cause, "\n") {
		text, cause = text+": "+cause, ""
	}
	if e.Line > 0 {
		text += fmt.Sprintf(" (line %d)", e.Line)
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	if cause != "" { // a traceback
		text += "\n" + tail(cause, minOutput)
	}
	out.Error, out.ErrorCode, out.ErrorLine = &text, e.Code, e.Line
	out.Stderr = tail(r.Stderr, minOutput)
}

func (out *taskOut) extras(r *client.Result, verbose bool) {
	for _, f := range r.Artifacts {
		out.Artifacts = append(out.Artifacts, artifactOut{f.Path, f.Bytes, f.MediaType, uriOf(r.TaskID, "artifacts/"+f.Path)})
	}
	if n := len(r.Tools.Calls); n > 0 {
		out.ToolCalls = &toolCalls{N: n}
		for _, c := range r.Tools.Calls {
			if !c.OK {
				out.ToolCalls.Failed++
			}
		}
	}
	out.Changed, out.Conflicts = r.Workspace.Changed, r.Workspace.Conflicts
	if len(out.Changed) > 50 {
		out.Changed, out.Truncated = out.Changed[:50], true
	}
	if verbose {
		out.Details = &details{Code: r.Code, GeneratedBy: r.GeneratedBy, Selected: r.Tools.Selected}
		if raw, err := json.Marshal(r.TimingMS); err == nil {
			_ = json.Unmarshal(raw, &out.Details.TimingMS) // its own encoding
		}
	}
}

// pollAfter is when to ask for a task again: the longer it runs, the later.
func pollAfter(rec client.Record) int {
	age := time.Since(rec.SubmittedAt)
	for _, step := range []struct{ age, after time.Duration }{
		{5 * time.Second, time.Second}, {20 * time.Second, 2 * time.Second}, {time.Minute, 5 * time.Second},
	} {
		if age < step.age {
			return int(step.after.Milliseconds())
		}
	}
	return 10_000
}

// cut is the beginning of s: at most n bytes of it, and only whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// tail is the end of s.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	i := len(s) - n
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}

// link is a link to what an answer does not hold.
type link struct {
	uri, name, media string
	bytes            int64
}

func (l link) content() mcp.Content {
	media := l.media
	if t, _, err := mime.ParseMediaType(media); err != nil || !strings.Contains(t, "/") {
		media = "application/octet-stream" // it comes from a program
	}
	return &mcp.ResourceLink{URI: l.uri, Name: path.Base(l.name), MIMEType: media, Size: &l.bytes}
}

// uriOf is the address of a part of a task as a resource.
func uriOf(taskID, part string) string {
	return (&url.URL{Scheme: "codefleet", Host: "tasks", Path: "/" + taskID + "/" + part}).String()
}
