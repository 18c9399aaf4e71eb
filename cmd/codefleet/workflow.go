package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) workflowCommand() *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "workflow",
		Short: "Run workflows: tasks, loops, waits and questions in one definition",
		Long: "Run workflows: tasks, loops, waits and questions in one definition, in YAML or JSON.\n" +
			"docs/workflows.md has the format.",
	}, a.workflowRunCommand(), a.workflowValidateCommand(), a.workflowGraphCommand(), a.workflowRunsCommand(),
		a.workflowStatusCommand(), a.workflowShowCommand(), a.workflowAnswerCommand(), a.workflowCancelCommand(),
		a.workflowRerunCommand())
}

// oneFile checks that a command has a file, or - for standard input, as its argument.
func oneFile(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("%s: want the file of a workflow, or - for standard input", c.Name()).
			try("codefleet workflow " + c.Name() + " examples/simple_workflow.yaml")
	}
	return nil
}

func (a *app) workflowValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE|-",
		Short: "Check a workflow without running it",
		Long: "Check a workflow without running it, and list all that is wrong with it: unknown steps,\n" +
			"cycles, expressions that are not valid, loops without a bound. It needs no fleet.",
		Args: oneFile,
		RunE: a.do(func(_ context.Context, args []string) error {
			p, err := a.readWorkflow(args[0])
			if err != nil {
				return err
			}
			w := p.Definition
			return a.print(map[string]any{"name": w.Name, "steps": len(w.Steps) + len(w.Finally)}, func(out io.Writer) {
				steps := text.Count(len(w.Steps)+len(w.Finally), "step")
				fmt.Fprintf(out, "%s is valid: %s\n", printable(w.Name), steps)
			})
		}),
	}
}

func (a *app) workflowGraphCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "graph FILE|-",
		Short: "Draw the steps of a workflow, as text or SVG",
		Args:  oneFile,
		RunE: a.do(func(_ context.Context, args []string) error {
			p, err := a.readWorkflow(args[0])
			if err != nil {
				return err
			}
			return a.printGraph(p, nil, format)
		}),
	}
	graphFlag(c, &format)
	return c
}

// graphFlag adds --format to a command that draws a workflow.
func graphFlag(c *cobra.Command, format *string) {
	c.Flags().StringVar(format, "format", "text", "text or svg")
	completeFlag(c, "format", "text", "svg")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *format != "text" && *format != "svg" {
			return usage("--format %s: want text or svg", *format)
		}
		return nil
	}
}

// printGraph draws a workflow, with the state of a run if that is not nil.
func (a *app) printGraph(p *workflow.Plan, run *schemas.WorkflowRun, format string) error {
	drawn := p.Text(run)
	if format == "svg" {
		drawn = p.SVG(run)
	}
	if a.output == "json" {
		return a.print(map[string]string{format: drawn}, nil)
	}
	_, err := io.WriteString(a.stdout, printableLines(drawn))
	return err
}

// printableLines makes each line safe for a terminal.
func printableLines(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for i, l := range lines {
		text, ended := strings.CutSuffix(l, "\n")
		if lines[i] = printable(text); ended {
			lines[i] += "\n"
		}
	}
	return strings.Join(lines, "")
}

// readDefinition returns the workflow in a file as JSON.
func (a *app) readDefinition(file string) (json.RawMessage, error) {
	content, err := readText("the workflow "+file, file, a.stdin)
	if err != nil {
		return nil, err
	}
	definition, err := workflow.ToJSON([]byte(content))
	if err != nil {
		return nil, usage("read the workflow %s: %v", file, err)
	}
	return definition, nil
}

// readWorkflow reads and checks the workflow in a file.
func (a *app) readWorkflow(file string) (*workflow.Plan, error) {
	definition, err := a.readDefinition(file)
	if err != nil {
		return nil, err
	}
	p, err := workflow.Compile(definition)
	if invalid, ok := errors.AsType[*schemas.InvalidError](err); ok {
		lines := make([]string, len(invalid.At))
		for i, at := range invalid.At {
			lines[i] = strings.TrimPrefix(at.Path+": ", ": ") + at.Message
		}
		return nil, &failure{code: errcode.ExitUsage, message: file + " is not a valid workflow:\n  " +
			strings.Join(lines, "\n  ")}
	}
	return p, err
}
