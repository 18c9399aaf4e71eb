package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

// taskOut is a task in the results of tools. success, result, output and error come first.
type taskOut struct {
	Success bool    `json:"success" jsonschema:"false if the task ended without success; true while it has not ended"`
	Result  any     `json:"result" jsonschema:"value of the program's last expression, or of its variable result"`
	Output  string  `json:"output" jsonschema:"what the program printed, so far"`
	Error   *string `json:"error" jsonschema:"why it did not succeed, or null"`

	TaskID      string        `json:"task_id"`
	Status      string        `json:"status" jsonschema:"queued, running, retry_wait, or how it ended: succeeded, failed, blocked, timeout, cancelled, expired, dead"`
	Stage       string        `json:"stage,omitempty" jsonschema:"latest step of a running task"`
	PollAfterMS int           `json:"poll_after_ms,omitempty" jsonschema:"when to call get_task, if the task has not ended"`
	Hint        string        `json:"hint,omitempty" jsonschema:"what to do next"`
	Approval    []approvalOut `json:"approval,omitempty" jsonschema:"tool calls of the program that wait until a person approves them"`
	ErrorCode   string        `json:"error_code,omitempty"`
	ErrorLine   int           `json:"error_line,omitempty" jsonschema:"line of the program"`
	Stderr      string        `json:"stderr,omitempty" jsonschema:"end of standard error, if the task did not succeed"`

	Truncated  bool     `json:"truncated" jsonschema:"this result is incomplete"`
	Incomplete []string `json:"incomplete,omitempty" jsonschema:"parts that do not fit: get_task with part returns their text"`
	NextOffset int      `json:"next_output_offset,omitempty" jsonschema:"pass it to get_task as output_offset for more of the output"`
	ResultURI  string   `json:"result_uri,omitempty" jsonschema:"resource with the result, if it is too long"`

	Artifacts []artifactOut `json:"artifacts,omitempty"`
	ToolCalls *toolCalls    `json:"tool_calls,omitempty"`
	Changed   []string      `json:"changed_files,omitempty" jsonschema:"files of the workspace that the task changed"`
	Conflicts []string      `json:"conflicts,omitempty"`
	Findings  []findingOut  `json:"findings,omitempty" jsonschema:"what the guardrails found in the program and its data"`
	Details   *details      `json:"details,omitempty" jsonschema:"with verbose"`
}

type artifactOut struct {
	Path      string `json:"path"`
	Bytes     int64  `json:"bytes"`
	MediaType string `json:"media_type"`
	URI       string `json:"uri"`
}

type findingOut struct {
	Rule    string `json:"rule"`
	Line    int    `json:"line,omitempty"`
	Level   string `json:"level" jsonschema:"warning, or refused if the finding is why the program did not run"`
	Message string `json:"message"`
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
	part    string // the part to show instead of the task, once it has ended; empty for the task
	offset  int    // of the output or the part, in bytes
}

const (
	smallOutput = 2000 // bytes that the output may take beside a large result; the limit of stderr and of a traceback
	maxChanged  = 50   // paths in changed_files
)

// view returns a task as a result of at most Options.MaxOutput bytes, not counting its images. got is the output of a
// task that has not ended.
func (p *principal) view(ctx context.Context, rec client.Record, got *partial, o viewOptions) *result {
	if rec.Result == nil {
		output := p.hidden(ctx, got.output.String())
		return &result{out: runningTask(rec, got, output, o.offset, p.b.o.MaxOutput)}
	}
	rec.Result = p.hiddenTexts(ctx, *rec.Result)
	r := endedTask(rec, o, p.b.o.MaxOutput)
	r.images = p.images(ctx, rec)
	return r
}

// runningTask returns, in at most limit bytes of JSON, a task that has not ended.
func runningTask(rec client.Record, got *partial, output string, offset, limit int) taskOut {
	out := taskOut{
		TaskID: rec.TaskID, Status: string(rec.Status), Success: true, Stage: got.stage, PollAfterMS: pollAfter(rec),
	}
	out.Hint = fmt.Sprintf("not an error: the task continues; call get_task with this task_id in %d ms",
		out.PollAfterMS)
	out.addApprovals(rec, sharesOf(limit).approvals)
	out.addOutput(output, offset, limit-jsonSize(out)-linksSize)
	out.Truncated = out.Truncated || got.skipped
	return out
}

// linksSize is more than the size of Incomplete, NextOffset and ResultURI in JSON.
const linksSize = 350

// endedTask returns, in at most limit bytes of JSON, a task that has ended.
func endedTask(rec client.Record, o viewOptions, limit int) *result {
	out := taskOut{TaskID: rec.TaskID, Status: string(rec.Status), Success: rec.Status == client.Succeeded}
	view, r, share := &result{failed: !out.Success}, rec.Result, sharesOf(limit)
	out.addError(view, r, share)
	out.addEffects(view, r, share)
	if o.verbose {
		out.addDetails(view, r, share)
	}
	budget := limit - jsonSize(out) - linksSize
	value, fits := resultText(r, budget-min(smallOutput, textSize(r.Output)))
	if fits {
		if len(value) > 0 {
			out.Result = value
		}
		budget -= len(value)
	} else {
		out.ResultURI = resourceURI(rec.TaskID, partResult)
		out.omit(view, r, partResult)
	}
	out.addOutput(r.Output, o.offset, budget)
	if out.NextOffset > 0 {
		out.omit(view, r, partOutput)
	}
	out.Truncated = out.Truncated || r.Truncated
	for _, f := range out.Artifacts {
		view.links = append(view.links, resourceLink{f.URI, f.Path, f.MediaType, f.Bytes})
	}
	if out.Success && !out.Truncated {
		if view.value = r.Result; len(view.value) == 0 {
			view.value = json.RawMessage("null")
		}
	}
	view.out = out
	return view
}

// approvalOut is a pending tool call. Clients whose user cannot be asked get it in a task's result.
type approvalOut struct {
	Call      string    `json:"call"`
	Tool      string    `json:"tool" jsonschema:"server/tool that the program calls"`
	Arguments any       `json:"arguments" jsonschema:"of the call; secrets redacted, long values truncated"`
	ExpiresAt time.Time `json:"expires_at" jsonschema:"when the program gets an error instead"`
	Approve   string    `json:"approve" jsonschema:"command with which a person approves it"`
	Deny      string    `json:"deny" jsonschema:"command with which a person denies it"`
}

// addApprovals adds the calls that wait for approval, and a hint that says who can approve them and how. If they take
// more than limit bytes of JSON, the last ones lose their arguments until they fit, or are left out.
func (out *taskOut) addApprovals(rec client.Record, limit int) {
	for _, q := range rec.Pending(time.Now()) {
		approve := "codefleet approve " + rec.TaskID + " " + q.Call
		args := json.RawMessage(text.UnescapeHTML(q.Arguments))
		out.Approval = append(out.Approval, approvalOut{
			q.Call, q.Server + "/" + q.Tool, args, q.ExpiresAt, approve, approve + " --deny",
		})
	}
	if len(out.Approval) == 0 {
		return
	}
	for i := len(out.Approval) - 1; i >= 0 && jsonSize(out.Approval) > limit; i-- {
		out.Approval[i].Arguments, out.Truncated = "too long for this result", true
	}
	out.Approval = listPrefix(out.Approval, limit)
	out.PollAfterMS = max(out.PollAfterMS, 5000)
	out.Hint = fmt.Sprintf("not an error: the program waits until a person approves a tool call, see approval: "+
		"show it to your user, who can type `%s`, and call get_task with this task_id in %d ms",
		out.Approval[0].Approve, out.PollAfterMS)
}

// addOutput adds at most budget bytes of the output as JSON, from offset on.
func (out *taskOut) addOutput(output string, offset, budget int) {
	rest := suffix(output, offset)
	out.Output = textPrefix(rest, budget)
	if len(out.Output) < len(rest) {
		out.Truncated, out.NextOffset = true, len(output)-len(rest)+len(out.Output)
	}
}

// addError adds why the task did not succeed. The text has message, cause, line and hint.
func (out *taskOut) addError(view *result, r *client.Result, share shares) {
	if r.Error == nil {
		return
	}
	message := errorText(r)
	truncated := textStart(message, share.err)
	if out.Error = &truncated; truncated != message {
		out.omit(view, r, partError)
	}
	out.ErrorCode, out.ErrorLine = r.Error.Code, r.Error.Line
	out.Stderr = textEnd(r.Stderr, min(smallOutput, share.stderr))
	if out.Stderr != r.Stderr {
		out.omit(view, r, partStderr)
	}
}

func errorText(r *client.Result) string {
	e := r.Error
	message := e.Message
	cause := strings.TrimSpace(e.Cause)
	if cause != "" && !strings.Contains(cause, "\n") {
		message, cause = message+": "+cause, ""
	}
	if e.Line > 0 {
		message += fmt.Sprintf(" (line %d)", e.Line)
	}
	if hint := cmp.Or(errcode.Next(e.Code).Tool, e.Hint); hint != "" {
		message += " (" + hint + ")"
	}
	if cause != "" { // it has several lines: a traceback
		message += "\n" + text.TruncateStart(cause, smallOutput)
	}
	return message
}

// addEffects adds what the task did besides its output: artifacts, tool calls and changed files.
func (out *taskOut) addEffects(view *result, r *client.Result, share shares) {
	for _, f := range r.Artifacts {
		uri := resourceURI(r.TaskID, "artifacts/"+f.Path)
		out.Artifacts = append(out.Artifacts, artifactOut{f.Path, f.Bytes, f.MediaType, uri})
	}
	if out.Artifacts = listPrefix(out.Artifacts, share.artifacts); len(out.Artifacts) < len(r.Artifacts) {
		out.omit(view, r, partArtifacts)
	}
	if n := len(r.Tools.Calls); n > 0 {
		out.ToolCalls = &toolCalls{N: n}
		for _, c := range r.Tools.Calls {
			if !c.OK {
				out.ToolCalls.Failed++
			}
		}
	}
	for _, f := range r.Guardrails {
		out.Findings = append(out.Findings, findingOut(f))
	}
	if out.Findings = listPrefix(out.Findings, share.findings); len(out.Findings) < len(r.Guardrails) {
		out.omit(view, r, partFindings)
	}
	changed, conflicts := r.Workspace.Changed, r.Workspace.Conflicts
	out.Changed = listPrefix(changed[:min(maxChanged, len(changed))], share.changed)
	out.Conflicts = listPrefix(conflicts, share.conflicts)
	if len(out.Changed) < len(changed) || len(out.Conflicts) < len(conflicts) {
		out.omit(view, r, partChanges)
	}
}

// addDetails adds how the task ran.
func (out *taskOut) addDetails(view *result, r *client.Result, share shares) {
	d := &details{Code: textPrefix(r.Code, share.code), GeneratedBy: r.GeneratedBy}
	if len(d.Code) < len(r.Code) {
		out.omit(view, r, partCode)
	}
	d.Selected = listPrefix(r.Tools.Selected, share.selected)
	out.Truncated = out.Truncated || len(d.Selected) < len(r.Tools.Selected)
	if raw, err := json.Marshal(r.TimingMS); err == nil {
		_ = json.Unmarshal(raw, &d.TimingMS) // an object of numbers
	}
	out.Details = d
}

// pollAfter returns after how many milliseconds a client should ask for a task again. The delay grows with the
// task's age.
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
