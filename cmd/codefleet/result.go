package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) resultCommand() *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:               "result ID",
		Short:             "Print the output and the result of a task",
		Args:              oneTask,
		ValidArgsFunction: a.completeTasks(),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			if wait < 0 {
				return negativeWait(wait)
			}
			if wait > 0 {
				bounded, cancel := context.WithTimeout(ctx, wait)
				defer cancel()
				stopNotes := a.noteWaits(bounded, c, a.progress(), func(ctx context.Context) []client.Record {
					rec, err := c.Get(ctx, args[0])
					if err != nil {
						return nil
					}
					return []client.Record{rec}
				})
				_, err := c.Wait(bounded, args[0])
				stopNotes()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					return err
				}
			}
			r, err := c.Result(ctx, args[0])
			if errors.Is(err, client.ErrNotEnded) {
				return usage("%v", err).try("codefleet logs -f " + args[0])
			}
			if err != nil {
				return err
			}
			return a.showResult(r, r.Output, r.Stderr)
		}),
	}
	c.Flags().DurationVar(&wait, "wait", 0, "wait up to this long for the task to end")
	a.explainFlag(c)
	return c
}

func negativeWait(d time.Duration) error {
	return usage("--wait %s is negative", d).try("--wait 30s")
}

// explainFlag adds --explain, for tasks that end with the error code code_required.
func (a *app) explainFlag(c *cobra.Command) {
	c.Flags().BoolVar(&a.explain, "explain", false, "if no program was written, print an unfinished one to complete")
}

// showResult prints a result. output and stderr are the parts of the program's output that have not been printed yet.
func (a *app) showResult(r client.Result, output, stderr string) error {
	if a.output == "json" {
		if err := a.print(r, nil); err != nil {
			return err
		}
		return statusError(r.Status)
	}
	fmt.Fprint(a.stdout, output)
	fmt.Fprint(a.stderr, stderr)
	if v := bytes.TrimSpace(r.Result); len(v) > 0 && !bytes.Equal(v, []byte("null")) {
		fmt.Fprintln(a.stdout, resultText(v))
	}
	for _, f := range r.Artifacts {
		fmt.Fprintln(a.stderr, a.artifactLine(r.TaskID, f))
	}
	if r.Truncated {
		fmt.Fprintln(a.stderr, "note: the output exceeded its limit and was truncated")
	}
	a.showError(r)
	for _, path := range r.Workspace.Conflicts {
		fmt.Fprintln(a.stderr, "note: another commit changed the same file; both versions are kept:", printable(path))
	}
	for _, f := range r.Guardrails {
		fmt.Fprintln(a.stderr, findingLine(f))
	}
	a.showProgram(r)
	for _, e := range r.Egress {
		fmt.Fprintln(a.stderr, egressLine(e))
	}
	if line := toolsLine(r); line != "" {
		fmt.Fprintln(a.stderr, line)
	}
	status, rest, _ := strings.Cut(timing(r), " ")
	a.paint(a.stderr, colourOf(status), status)
	fmt.Fprintln(a.stderr, "", rest)
	return statusError(r.Status)
}

// findingLine formats a guardrail's finding as one line.
func findingLine(f client.Finding) string {
	if f.Line > 0 {
		return printable(fmt.Sprintf("%s: line %d: %s", f.Level, f.Line, f.Message))
	}
	return printable(f.Level + ": " + f.Message)
}

// maxProgramLines limits how many lines of a program are printed.
const maxProgramLines = 60

// showProgram prints a program that was written for this task.
func (a *app) showProgram(r client.Result) {
	if r.Code == "" || r.GeneratedBy != "llm" && r.GeneratedBy != "rules" && r.GeneratedBy != "plugin" {
		return
	}
	lines := strings.Split(strings.TrimSpace(r.Code), "\n")
	more := len(lines) - maxProgramLines
	for _, line := range lines[:min(len(lines), maxProgramLines)] {
		fmt.Fprintln(a.stderr, strings.TrimRight("  "+line, " "))
	}
	if more > 0 {
		fmt.Fprintf(a.stderr, "  … %s: %s\n", text.Count(more, "more line"),
			a.withFlags("codefleet result "+r.TaskID+" -o json"))
	}
}

// egressLine describes the attempts to connect to one host and port that had the same verdict.
func egressLine(e client.EgressAttempt) string {
	target := "a connection"
	if e.Host != "" {
		target = fmt.Sprintf("%s:%d", e.Host, e.Port)
	}
	return fmt.Sprintf("network: %s %s (%s)", target, e.Verdict, text.Count(e.Bytes, "byte"))
}

// resultText returns a JSON string without its quotes, and any other JSON value unchanged.
func resultText(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(text.UnescapeHTML(v))
}

// newlines replaces carriage returns, because on a terminal the text after one would overwrite the text before it.
var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func (a *app) showError(r client.Result) {
	if r.Error == nil {
		return
	}
	e, line := *r.Error, ""
	for _, s := range []*string{&e.Message, &e.Cause, &e.Hint} {
		*s = newlines.Replace(*s)
	}
	if e.Line > 0 {
		line = fmt.Sprintf(" (line %d)", e.Line)
	}
	fmt.Fprintf(a.stderr, "%s: %s%s\n", r.Status, e.Message, line)
	if e.Cause != "" {
		fmt.Fprintln(a.stderr, "  "+strings.ReplaceAll(strings.TrimSpace(e.Cause), "\n", "\n  "))
	}
	hint, program, unfinished := strings.Cut(e.Hint, "\n")
	switch unfinished = unfinished && e.Code == errcode.CodeRequired; {
	case unfinished && a.explain:
		fmt.Fprintln(a.stderr, "  try:", hint+flagsFor(hint))
		fmt.Fprint(a.stdout, program)
	case unfinished:
		hint = strings.Replace(hint, "finish this program", "finish the program that --explain prints", 1)
		fmt.Fprintln(a.stderr, "  try:", strings.TrimSuffix(hint, ":")+flagsFor(hint))
	case e.Hint != "":
		next := a.withFlags(withID(cmp.Or(errcode.Next(e.Code).Command, e.Hint), r.TaskID))
		fmt.Fprintln(a.stderr, "  try:", next+flagsFor(e.Hint))
	}
}

// fieldFlags maps the task fields that hints mention to flags of run.
var fieldFlags = []struct{ field, flag string }{
	{"network.allow", "--net HOST"}, {"limits.timeout_s", "--timeout DURATION"}, {"as `code`", "--file FILE"},
}

// flagsFor returns the flags of run for the task fields that a hint mentions.
func flagsFor(hint string) string {
	var flags []string
	for _, f := range fieldFlags {
		if strings.Contains(hint, f.field) {
			flags = append(flags, f.flag)
		}
	}
	if flags == nil {
		return ""
	}
	return " (codefleet run " + strings.Join(flags, " ") + ")"
}

// toolsLine summarises the selected tools, who wrote the program, the model tokens and the tool calls. It is empty for
// a caller's program that called no tool.
func toolsLine(r client.Result) string {
	var parts []string
	if u := r.Usage; u != nil {
		n := len(r.Tools.Selected)
		parts = append(parts, fmt.Sprintf("%d of %s selected (%.0f %%)", n, text.Count(r.Tools.Available, "tool"),
			100*r.Tools.Share))
		if n > 0 {
			parts[0] += ": " + strings.Join(r.Tools.Selected, ", ")
		}
		if r.GeneratedBy != "" {
			parts = append(parts, "program by "+r.GeneratedBy)
		}
		parts = append(parts, fmt.Sprintf("%s (all tools: %d a turn)",
			text.Count(u.PromptTokens+u.CompletionTokens, "model token"), u.DirectToolTokens))
		if r.Tools.Degraded != "" {
			parts = append(parts, "without embeddings: "+r.Tools.Degraded)
		}
	}
	if n := len(r.Tools.Calls); n > 0 {
		replayed := 0
		for _, c := range r.Tools.Calls {
			if c.Replayed {
				replayed++
			}
		}
		calls := text.Count(n, "tool call")
		if replayed > 0 {
			calls += fmt.Sprintf(" (%d replayed)", replayed)
		}
		parts = append(parts, calls+" in "+millis(r.TimingMS.Tools)+" ms")
	}
	return strings.Join(parts, " · ")
}

// timing returns a line with the status of a task, how long it and each of its stages took, and its id.
func timing(r client.Result) string {
	t := r.TimingMS
	var parts []string
	add := func(name string, v float64) { parts = append(parts, fmt.Sprintf("%s %s", name, millis(v))) }
	add("queued", t.Queued)
	if t.Generate > 0 {
		add("generate", t.Generate)
	}
	add("checkout", t.Checkout)
	sandbox := "sandbox"
	if r.Sandbox.Boot != "" {
		sandbox += " (" + r.Sandbox.Boot + ")"
	}
	add(sandbox, t.SandboxWait)
	add("run", t.Run)
	add("commit", t.Commit)
	return fmt.Sprintf("%s in %s ms: %s · %s", r.Status, millis(t.Total), strings.Join(parts, ", "), r.TaskID)
}

func millis(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
