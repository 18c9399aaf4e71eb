package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) workflowRunCommand() *cobra.Command {
	var in client.WorkflowRequest
	var inputs string
	var set []string
	var detach bool
	c := &cobra.Command{
		Use:   "run FILE|-",
		Short: "Run a workflow, and print its outputs",
		Long: "Run a workflow, print how its steps end, and then its outputs. If no fleet is found, the\n" +
			"command starts one for this run. The command also returns when a step asks people and no step is\n" +
			"running: to continue, use codefleet workflow answer. If the command started the fleet, first start\n" +
			"one that stays (codefleet up).",
		Example: "  codefleet workflow run examples/simple_workflow.yaml\n" +
			"  codefleet workflow run refund.yaml --set order=17 --set amount=250\n" +
			"  codefleet workflow run -o json refund.yaml --inputs '{\"order\": \"17\"}' | jq .outputs",
		Args: oneFile,
	}
	c.Flags().StringVar(&inputs, "inputs", "", "`JSON` object with the inputs, or @FILE")
	setFlag(c, &set)
	c.Flags().BoolVarP(&detach, "detach", "d", false, "print the run's id, and do not wait")
	c.Flags().StringVarP(&in.Workspace, "workspace", "w", "", "`WORKSPACE` of the steps' tasks (default: main)")
	c.Flags().StringVarP(&in.Session, "session", "s", "", "`SESSION` of the steps' tasks")
	c.Flags().StringVar(&in.Priority, "priority", "", "priority of the steps' tasks: high, normal or low")
	c.Flags().StringVar(&in.Key, "key", "", "idempotency `KEY`: a second command with the same key shows the same run")
	completeFlag(c, "priority", "high", "normal", "low")
	c.RunE = func(c *cobra.Command, args []string) error {
		var p *workflow.Plan
		err := a.interruptibly(c.Context(), func() (err error) {
			if p, err = a.readWorkflow(args[0]); err == nil {
				in.Inputs, err = inputsOf(inputs, set, p.Definition)
			}
			return err
		})
		if err != nil {
			return err
		}
		if _, err := p.Inputs(in.Inputs); err != nil {
			return usage("%v", err).try("codefleet workflow run " + shellescape.Quote(args[0]) + " --set NAME=VALUE")
		}
		if in.Workflow, err = json.Marshal(p.Definition); err != nil {
			return err
		}
		return a.runWorkflow(c.Context(), in, detach)
	}
	return c
}

func setFlag(c *cobra.Command, set *[]string) {
	c.Flags().StringArrayVar(set, "set", nil, "set the input `NAME=VALUE`; VALUE is JSON, or otherwise a string")
}

// inputsOf returns the inputs that the flags describe.
func inputsOf(inputs string, set []string, w schemas.Workflow) (json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	if inputs != "" {
		data, err := readJSON("--inputs", inputs, nil)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &values); err != nil || values == nil {
			return nil, usage("--inputs: want a JSON object, or @FILE with one")
		}
	}
	changes, err := setInputs(set, w)
	if err != nil {
		return nil, err
	}
	maps.Copy(values, changes)
	return json.Marshal(values)
}

// setInputs returns the inputs that --set gives. A value that is not JSON is a string, and so is every value without
// quotes for an input of the type string.
func setInputs(set []string, w schemas.Workflow) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		if _, twice := out[name]; !ok || twice {
			return nil, usage("--set %s: want NAME=VALUE, once for each input", s)
		}
		out[name] = json.RawMessage(value)
		if w.Inputs[name].Type == "string" && !strings.HasPrefix(value, `"`) || !json.Valid(out[name]) {
			quoted, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			out[name] = quoted
		}
	}
	return out, nil
}

func (a *app) runWorkflow(ctx context.Context, in client.WorkflowRequest, detach bool) error {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	r := &foreground{a: a, line: a.progress()}
	defer r.close()
	if err := r.connect(ctx); err != nil {
		return err
	}
	if detach && r.private != nil {
		return usage("--detach needs a fleet that goes on after this command").try("codefleet up")
	}
	run, err := r.client.RunWorkflow(ctx, in)
	if err != nil {
		return markCall(err)
	}
	if detach {
		return a.print(run, func(w io.Writer) { fmt.Fprintln(w, run.RunID) })
	}
	return a.followWorkflow(ctx, r.client, r.line, run.RunID)
}

// followWorkflow prints how the steps of a run end, until the run has ended or asks people.
func (a *app) followWorkflow(ctx context.Context, c *client.Client, line *progress, id string) error {
	shown := map[string]schemas.WorkflowStatus{}
	steps := line.above(a.stderr)
	if a.output == "json" {
		steps = io.Discard
	}
	fmt.Fprintf(steps, "run %s\n", id)
	stopNotes := a.noteWaits(ctx, c, line, func(ctx context.Context) []client.Record { return tasksOf(ctx, c, id) })
	run, err := c.WaitWorkflow(ctx, id, func(run client.WorkflowRun) bool {
		var active []string
		for _, s := range run.Steps {
			if s.Status.Ended() && shown[s.ID] != s.Status {
				fmt.Fprintln(steps, stepLine(s))
			}
			if shown[s.ID] = s.Status; s.Status == schemas.WorkflowRunning || s.Status == schemas.WorkflowWaiting {
				active = append(active, s.ID+loopState(s))
			}
		}
		if len(active) > 0 {
			line.show(strings.Join(active, ", "))
		}
		return !asksPeople(run)
	})
	stopNotes()
	line.clear()
	if ctx.Err() != nil {
		f := &failure{code: errcode.ExitStopped, message: "interrupted; the run " + id + " goes on"}
		return f.try("codefleet workflow status " + id + ", or codefleet workflow cancel " + id)
	}
	if err != nil {
		return markCall(err)
	}
	return a.showRun(run)
}

// tasksOf returns the tasks of the running steps of a run, and of the runs that these steps have started.
func tasksOf(ctx context.Context, c *client.Client, id string) (tasks []client.Record) {
	run, err := c.WorkflowRun(ctx, id)
	if err != nil {
		return nil
	}
	steps := run.Steps
	for _, s := range run.Steps {
		steps = append(steps, s.Items...)
	}
	for _, s := range steps {
		switch {
		case s.Status != schemas.WorkflowRunning:
		case s.RunID != "":
			tasks = append(tasks, tasksOf(ctx, c, s.RunID)...)
		case s.TaskID != "":
			tasks = append(tasks, client.Record{TaskID: s.TaskID})
		}
	}
	return tasks
}

// asksPeople reports whether a step of a run asks people while no step is running. Other steps may wait for a time or
// an event: the user should be able to answer meanwhile.
func asksPeople(run client.WorkflowRun) bool {
	return run.Status == schemas.WorkflowWaiting && slices.ContainsFunc(run.Steps, func(s schemas.StepRun) bool {
		return s.Status == schemas.WorkflowWaiting && s.Message != "" || slices.ContainsFunc(s.Items,
			func(x schemas.StepRun) bool { return x.Message != "" && x.Status == schemas.WorkflowWaiting })
	})
}

// loopState returns how many items of a loop have ended.
func loopState(s schemas.StepRun) string {
	if len(s.Items) == 0 {
		return ""
	}
	done := 0
	for _, x := range s.Items {
		if x.Status.Ended() {
			done++
		}
	}
	return fmt.Sprintf(" %d/%d", done, len(s.Items))
}

// stepLine describes a step on one line.
func stepLine(s schemas.StepRun) string {
	out := fmt.Sprintf("%-9s  %s", s.Status, s.ID+loopState(s))
	if !s.StartedAt.IsZero() && !s.EndedAt.IsZero() && !s.Kept {
		out += "  " + duration(s.EndedAt.Sub(s.StartedAt))
	}
	if s.Kept {
		out += "  kept"
	}
	if s.Attempt > 1 {
		out += fmt.Sprintf("  attempt %d", s.Attempt)
	}
	if s.Error != nil {
		out += "  " + text.Truncate(text.OneLine(s.Error.Error()), 300)
	}
	return printable(out)
}

// showRun prints the outputs of a run that has succeeded, or what it waits for, or why it failed.
func (a *app) showRun(run client.WorkflowRun) error {
	if a.output == "json" {
		if err := a.print(run, nil); err != nil {
			return err
		}
		return runFailure(run)
	}
	switch {
	case !run.Status.Ended():
		fmt.Fprintln(a.stdout, "the run is", run.Status)
		for _, s := range run.Steps {
			a.printAsked(a.stdout, run, s)
		}
	case run.Status == schemas.WorkflowSucceeded && len(run.Outputs) > 2:
		fmt.Fprintln(a.stdout, string(indented(run.Outputs)))
	case run.Error != nil:
		at := ""
		if run.Error.Step != "" {
			at = "step " + run.Error.Step + ": "
		}
		fmt.Fprintf(a.stderr, "%s: %s%s\n", run.Status, at, printable(run.Error.Error()))
		if s := stepOf(run, run.Error.Step); s.TaskID != "" {
			fmt.Fprintln(a.stderr, a.withFlags("codefleet result "+s.TaskID), " (the output of its task)")
		}
	}
	return runFailure(run)
}

func stepOf(run client.WorkflowRun, id string) schemas.StepRun {
	for _, s := range run.Steps {
		if s.ID == id {
			return s
		}
	}
	return schemas.StepRun{}
}

// printAsked prints what a step asks, and how to answer.
func (a *app) printAsked(w io.Writer, run client.WorkflowRun, s schemas.StepRun) {
	ask := func(item string, x schemas.StepRun) {
		if x.Status == schemas.WorkflowWaiting && x.Message != "" {
			fmt.Fprintf(w, "step %s%s asks: %s\n", s.ID, item, printable(x.Message))
			fmt.Fprintln(w, a.withFlags("codefleet workflow answer "+run.RunID), s.ID+item, "'{…}'")
		}
	}
	ask("", s)
	for i, x := range s.Items {
		ask(fmt.Sprintf("[%d]", i), x)
	}
}

// runFailure returns an error with the exit code for a run that has failed or was cancelled, and nil for any other run.
func runFailure(run client.WorkflowRun) error {
	switch run.Status {
	case schemas.WorkflowFailed:
		if run.Error != nil && run.Error.Code == errcode.WorkflowTimeout {
			return &failure{code: errcode.ExitOfTask("timeout")}
		}
		return &failure{code: errcode.ExitFailed}
	case schemas.WorkflowCancelled:
		return &failure{code: errcode.ExitOfTask("cancelled")}
	default:
		return nil
	}
}

func (a *app) workflowRunsCommand() *cobra.Command {
	limit := 0
	c := &cobra.Command{
		Use:   "runs",
		Short: "List the runs of workflows, the latest change first",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			runs, err := c.WorkflowRuns(ctx, limit)
			if err != nil {
				return err
			}
			const header = "RUN\tWORKFLOW\tSTATUS\tSTARTED\tSTEPS\tERROR"
			return listOr(a, runs, "no runs", header, func(r client.WorkflowRun) []any {
				ended, message := 0, ""
				for _, s := range r.Steps {
					if s.Status.Ended() {
						ended++
					}
				}
				if r.Error != nil {
					message = text.Truncate(text.OneLine(r.Error.Error()), 60)
				}
				steps := fmt.Sprintf("%d/%d", ended, len(r.Steps))
				return []any{r.RunID, r.Name, r.Status, localTime(r.CreatedAt), steps, message}
			})
		}),
	}
	limitFlag(c, &limit, "runs")
	return c
}

// oneRun makes c a command whose first argument is a run's id. more are the names of its other arguments.
func (a *app) oneRun(
	c *cobra.Command, more []string, fn func(ctx context.Context, c *client.Client, args []string) error,
) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) != 1+len(more) {
			wanted := strings.Join(append([]string{"the id of a run"}, more...), ", ")
			return usage("workflow %s: want %s", c.Name(), wanted).try("codefleet workflow runs")
		}
		return nil
	}
	c.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		switch len(args) {
		case 0:
			runs, _ := c.WorkflowRuns(ctx, 100)
			return mapSlice(runs, func(r client.WorkflowRun) cobra.Completion {
				return cobra.CompletionWithDesc(r.RunID, r.Name+" "+string(r.Status))
			})
		case 1:
			run, _ := c.WorkflowRun(ctx, args[0])
			return mapSlice(run.Steps, func(s schemas.StepRun) cobra.Completion { return s.ID })
		}
		return nil
	})
	c.RunE = a.withFleet(fn)
	return c
}

func (a *app) workflowStatusCommand() *cobra.Command {
	return a.oneRun(&cobra.Command{Use: "status RUN", Short: "Show the status of a run and of its steps"}, nil,
		func(ctx context.Context, c *client.Client, args []string) error {
			run, err := c.WorkflowRun(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(run, func(w io.Writer) {
				row(w, "run", run.RunID)
				row(w, "workflow", run.Name)
				row(w, "status", string(run.Status))
				row(w, "workspace", run.Workspace)
				row(w, "started", localTime(run.CreatedAt))
				row(w, "ended", localTime(run.EndedAt))
				if run.RerunOf != "" {
					row(w, "rerun of", run.RerunOf)
				}
				if run.Error != nil {
					row(w, "error", text.OneLine(cmp.Or(run.Error.Step, "-")+": "+run.Error.Error()))
				}
				for _, s := range run.Steps {
					fmt.Fprintln(w, "  "+stepLine(s))
				}
				for _, s := range run.Steps {
					a.printAsked(w, run, s)
				}
			})
		})
}

func (a *app) workflowShowCommand() *cobra.Command {
	var format string
	c := a.oneRun(&cobra.Command{
		Use: "show RUN", Short: "Draw the steps of a run with their states, as text or SVG",
	}, nil, func(ctx context.Context, c *client.Client, args []string) error {
		run, err := c.WorkflowRun(ctx, args[0])
		if err != nil {
			return err
		}
		p, err := workflow.Compile(run.Workflow)
		if err != nil {
			return err
		}
		return a.printGraph(p, &run, format)
	})
	graphFlag(c, &format)
	return c
}

func (a *app) workflowCancelCommand() *cobra.Command {
	return a.oneRun(&cobra.Command{
		Use: "cancel RUN", Short: "Cancel a run",
		Long: "Cancel a run: its running steps are cancelled, and then the steps of `finally` run. A second cancel\n" +
			"stops these, too.",
	}, nil, func(ctx context.Context, c *client.Client, args []string) error {
		run, err := c.CancelWorkflow(ctx, args[0])
		if err != nil {
			return err
		}
		return a.print(run, func(w io.Writer) {
			if run.Status.Ended() {
				fmt.Fprintln(w, "the run is", run.Status)
				return
			}
			fmt.Fprintln(w, "the run is being cancelled")
		})
	})
}

func (a *app) workflowAnswerCommand() *cobra.Command {
	return a.oneRun(&cobra.Command{
		Use: "answer RUN STEP JSON|@PATH|-", Short: "Answer a step that asks",
		Long: "Give the answer, a JSON object, to a step that asks: as text, in a file or on standard input.\n" +
			"STEP[N] is item N of a loop. The first answer counts.",
		Example: "  codefleet workflow answer RUN approve '{\"ok\": true}'",
	}, []string{"a step", "the values"}, func(ctx context.Context, c *client.Client, args []string) error {
		values, err := readJSON("workflow answer", args[2], a.stdin)
		if err != nil {
			return err
		}
		in := client.WorkflowAnswer{Step: args[1], Values: bytes.TrimSpace(values)}
		if step, item, ok := strings.Cut(args[1], "["); ok {
			number, closed := strings.CutSuffix(item, "]")
			n, err := strconv.Atoi(number)
			if err != nil || !closed {
				return usage("workflow answer: %s: want STEP, or STEP[N] for an item of a loop", args[1])
			}
			in.Step, in.Item = step, &n
		}
		run, err := c.AnswerWorkflow(ctx, args[0], in)
		if err != nil {
			return err
		}
		return a.print(run, func(w io.Writer) { fmt.Fprintln(w, "the run is", run.Status) })
	})
}

func (a *app) workflowRerunCommand() *cobra.Command {
	var from string
	var set []string
	var detach bool
	c := a.oneRun(&cobra.Command{
		Use:   "rerun RUN --from STEP",
		Short: "Run a workflow again from a step, with the files that the step began with",
		Long: "Run a workflow again from a step. The new run keeps the results of the steps before, and its\n" +
			"workspace is a fork with the files that the step began with. The old run does not change.",
		Example: "  codefleet workflow rerun RUN --from pay --set amount=20",
	}, nil, func(ctx context.Context, c *client.Client, args []string) error {
		if from == "" {
			return usage("workflow rerun: want --from STEP").try("codefleet workflow status " + args[0])
		}
		old, err := c.WorkflowRun(ctx, args[0])
		if err != nil {
			return err
		}
		var w schemas.Workflow
		if err := json.Unmarshal(old.Workflow, &w); err != nil {
			return err
		}
		changes, err := setInputs(set, w)
		if err != nil {
			return err
		}
		run, err := c.RerunWorkflow(ctx, args[0], client.WorkflowRerun{From: from, Set: changes})
		if err != nil {
			return err
		}
		if detach {
			return a.print(run, func(w io.Writer) { fmt.Fprintln(w, run.RunID) })
		}
		return a.followWorkflow(ctx, c, a.progress(), run.RunID)
	})
	c.Flags().StringVar(&from, "from", "", "the first `STEP` that runs again")
	setFlag(c, &set)
	c.Flags().BoolVarP(&detach, "detach", "d", false, "print the new run's id, and do not wait")
	return c
}
