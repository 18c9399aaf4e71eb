package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/internal/text"
)

// lastOutput is how many bytes of a task's last output `dead show` prints.
const lastOutput = 4 << 10

func (a *app) deadShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a dead-lettered task with its runs and its last output",
		Args:  oneTask,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			d, err := c.DeadLetter(ctx, args[0])
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.encodeJSON(d, true)
			}
			output, err := tailOf(ctx, c, d)
			if err != nil {
				return err
			}
			return a.print(d, func(w io.Writer) { a.showDeadLetter(w, d, output) })
		}),
	}
}

// tailOf returns the end of a dead-lettered task's output: of the output in its result, or else of its live output.
func tailOf(ctx context.Context, c *client.Client, d client.DeadLetter) (string, error) {
	if d.Record == nil {
		return "", nil
	}
	var out string
	if r := d.Record.Result; r != nil {
		out = r.Output + r.Stderr
	}
	if out == "" {
		_, err := c.Watch(ctx, d.TaskID, 0, func(e client.Event) error {
			if e.Stream == "" { // not output, but a stage of the task
				return nil
			}
			out += e.Text
			out = out[max(0, len(out)-lastOutput):]
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return strings.ToValidUTF8(out[max(0, len(out)-lastOutput):], ""), nil
}

func (a *app) showDeadLetter(w io.Writer, d client.DeadLetter, output string) {
	row(w, "task", d.TaskID)
	row(w, "died", duration(time.Since(d.Time))+" ago")
	row(w, "code", d.Error.Code)
	row(w, "error", d.Error.Message)
	if d.Error.Cause != "" {
		row(w, "cause", d.Error.Cause)
	}
	if d.Record == nil {
		row(w, "record", "no longer kept")
		return
	}
	row(w, "try", a.withFlags("codefleet dead redrive "+d.TaskID))
	if len(d.Record.Attempts) > 0 {
		row(w)
		row(w, "RUN", "WORKER", "STARTED", "OUTCOME", "ERROR")
	}
	for _, run := range d.Record.Attempts {
		row(w, strconv.Itoa(run.Run), run.Worker, localMinute(run.StartedAt), run.Outcome, cell(run.Error))
	}
	if output != "" {
		fmt.Fprintln(w, "\nlast output:")
		for line := range strings.Lines(output) {
			fmt.Fprintln(w, " ", printable(strings.TrimRight(line, "\n")))
		}
	}
}

func (a *app) retryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "retry ID",
		Short: "Run an unsuccessful task again",
		Long: "Run again a task that ended without success. A dead-lettered task runs again under its own id,\n" +
			"as with `codefleet dead redrive`. Any other has a final result, which its caller, triggers and\n" +
			"webhooks may have acted on, so it is submitted again as a new task; repeating the command shows\n" +
			"the same new task.",
		Args: oneTask,
		ValidArgsFunction: a.completeTasks(
			client.Failed, client.Blocked, client.Timeout, client.Cancelled, client.Expired, client.Dead),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			rec, err := c.Retry(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(rec, func(w io.Writer) {
				row(w, "task", rec.TaskID)
				row(w, "status", rec.Status)
				if !rec.NotBefore.IsZero() && rec.StartedAt.IsZero() {
					row(w, "runs at", rec.NotBefore.Local().Format(time.DateTime))
				}
				if rec.TaskID != args[0] {
					row(w, "retry of", args[0])
				}
			})
		}),
	}
}

func (a *app) rerunCommand() *cobra.Command {
	var edit bool
	var at int64
	var flags taskFlags
	c := &cobra.Command{
		Use:   "rerun ID",
		Short: "Submit a new task like an old one, perhaps changed",
		Long: "Submit a new task like an old one and print its id. Flags replace parts of it, but --env adds\n" +
			"variables or replaces their values. --edit opens its submission, as JSON, in $EDITOR. With\n" +
			"--at-generation, the task runs in a fork of its workspace as of that generation, so the\n" +
			"workspace itself does not change.",
		Example: "  codefleet rerun a2wntt52fwmbq3ezlg6zelfsfu --inputs '{\"n\": 2}'\n" +
			"  codefleet rerun a2wntt52fwmbq3ezlg6zelfsfu --edit",
		Args: oneTask,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			rec, err := c.Rerun(ctx, args[0], func(s *client.Submission) error {
				if err := flags.change(s, a.stdin); err != nil {
					return err
				}
				if edit {
					if err := a.edit(ctx, s); err != nil {
						return err
					}
				}
				if at == 0 {
					return nil
				}
				fork := "rerun-" + args[0][:8] + "-" + strings.ToLower(rand.Text()[:10])
				if _, err := c.Workspace(s.Workspace).Fork(ctx, strconv.FormatInt(at, 10), fork); err != nil {
					return err
				}
				s.Workspace = fork
				return nil
			})
			// The submission may no longer be kept.
			if e, ok := errors.AsType[*client.APIError](err); ok && e.Code == errcode.NotRetryable {
				return explain(err).try("codefleet submit --file PROGRAM.py --inputs @FILE")
			}
			if err != nil {
				return err
			}
			noteStart(a.stderr, rec)
			if at > 0 && a.output == "text" {
				fmt.Fprintln(a.stderr, "in workspace", rec.Workspace)
			}
			return a.print(rec, func(w io.Writer) { fmt.Fprintln(w, rec.TaskID) })
		}),
	}
	f := c.Flags()
	flags.declare(c)
	f.BoolVar(&edit, "edit", false, "change the submission in $EDITOR before it is sent")
	f.Int64Var(&at, "at-generation", 0, "run on a fork of the workspace as of this `GENERATION`")
	requirePositive(c, "at-generation")
	return c
}

// change replaces the parts of a submission for which flags are given. --env adds variables or replaces their values.
func (f *taskFlags) change(s *client.Submission, stdin io.Reader) error {
	if f.code != "" || f.file != "" || f.skill != "" {
		s.Description, s.Code, s.Skill, s.Workflow = "", "", "", nil
	}
	parts := client.Submission{Task: client.Task{Code: f.code, Skill: skillName(f.skill)}}
	for _, read := range []func() error{
		func() error { return f.checkUTF8("") },
		func() error { return f.readCode(&parts, stdin) }, func() error { return f.readInputs(&parts) },
		func() error { return f.readEnv(&parts) }, func() error { return f.readFiles(&parts) },
		func() error { return f.readLimits(&parts) }, func() error { return f.readStart(&parts) },
		func() error { return f.readNetwork(&parts) },
	} {
		if err := read(); err != nil {
			return err
		}
	}
	parts.Pool, parts.Model, parts.Artifacts = f.pool, f.model, f.out
	parts.Workspace, parts.Session, parts.Priority, parts.IdempotencyKey = f.workspace, f.session, f.priority, f.key
	parts.PartitionKey = f.partition
	data, err := json.Marshal(parts)
	if err != nil {
		return err
	}
	if len(parts.Files) > 0 {
		s.Files = nil // otherwise each new file would be merged into an old one
	}
	return json.Unmarshal(data, s) // keeps what parts lacks, also of Env and Limits
}

// edit opens a submission in the editor that VISUAL or EDITOR names, and replaces it with the edited one. It returns an
// error if the edited one is not valid.
func (a *app) edit(ctx context.Context, s *client.Submission) error {
	editor := strings.Fields(a.lookup("VISUAL"))
	if len(editor) == 0 {
		editor = strings.Fields(a.lookup("EDITOR"))
	}
	if len(editor) == 0 {
		return usage("rerun --edit: no editor is known").try("EDITOR=vi codefleet rerun ID --edit")
	}
	file, err := os.CreateTemp("", "codefleet-*.json")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	data, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		_, err = file.Write(append(text.UnescapeHTML(data), '\n'))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, editor[0], append(editor[1:], file.Name())...)
	c.Stdin, c.Stdout, c.Stderr = a.stdin, a.stderr, a.stderr
	if once, ok := a.stdin.(*onceReader); ok { // the editor inherits a file, and exec would copy another reader
		c.Stdin = once.Reader
	}
	a.editing.Store(true)
	err = c.Run()
	a.editing.Store(false)
	if errors.Is(err, exec.ErrNotFound) || isPathError(err) {
		return usage("rerun --edit: the editor %s cannot be started: nothing was submitted", editor[0]).
			try("EDITOR=vi codefleet rerun ID --edit")
	}
	if err != nil {
		return &failure{
			code: errcode.ExitFailed, err: err,
			message: "rerun --edit: the editor " + editor[0] + " failed: nothing was submitted",
			hint:    "EDITOR=vi codefleet rerun ID --edit",
		}
	}
	if data, err = readFile(file.Name()); err != nil {
		return err
	}
	var changed client.Submission
	if err := strictjson.Decode(data, &changed); err != nil {
		return &failure{
			code: errcode.ExitUsage, message: "the edited submission cannot be read: nothing was submitted", err: err,
		}
	}
	*s = changed
	return nil
}
