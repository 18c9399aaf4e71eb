package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

func (a *app) stateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "state",
		Short: "Read and write the state that tasks share",
		Long: "Read and write the state that tasks share: a JSON or YAML file of the workspace, which programs find at\n" +
			"/workspace/state.json, or under another name at the top of the workspace or below state/.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.stateGetCommand(), a.stateSetCommand())
	return c
}

func (a *app) stateGetCommand() *cobra.Command {
	var workspace string
	c := &cobra.Command{
		Use:   "get [FILE]",
		Short: "Print the state as JSON; {} when there is none yet",
		Example: "  codefleet state get\n" +
			"  codefleet state get state/plan.yaml -o json      with its version (etag)",
		Args: atMostOne,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := c.GetState(ctx, workspace, first(args))
			if err != nil {
				return err
			}
			if !s.Exists && a.output == "text" {
				fmt.Fprintln(a.stderr, "note: there is no such state file yet")
			}
			return a.print(s, func(w io.Writer) { fmt.Fprintln(w, strings.TrimSpace(string(s.Data))) })
		}),
	}
	a.workspaceFlag(c, &workspace)
	return c
}

func (a *app) stateSetCommand() *cobra.Command {
	var workspace, match string
	var isNew bool
	c := &cobra.Command{
		Use:   "set [FILE] JSON|@PATH|-",
		Short: "Replace the state with a JSON object",
		Long: "Replace the state with a JSON object, given as it is, as @PATH of a file, or as - on standard input.\n" +
			"With --if-match it replaces that version only (`etag` of `state get -o json`); with --new it must not be there.",
		Example: "  codefleet state set '{\"step\": 2}'\n  codefleet state set plan.yaml @plan.json",
		Args:    cobra.RangeArgs(1, 2),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			data, err := a.given(args[len(args)-1])
			if err != nil {
				return err
			}
			s := client.State{Workspace: workspace, File: first(args[:len(args)-1]), Data: data, ETag: match}
			if isNew {
				s.ETag = client.NoState
			}
			s, err = c.SaveState(ctx, s)
			if err != nil {
				return staleState(err, first(args[:len(args)-1]))
			}
			return a.print(s, func(w io.Writer) {
				fmt.Fprintf(w, "saved %s in generation %d of %s\n", s.File, s.Generation, s.Workspace)
			})
		}),
	}
	a.workspaceFlag(c, &workspace)
	c.Flags().StringVar(&match, "if-match", "", "the `ETAG` that the state must have")
	c.Flags().BoolVar(&isNew, "new", false, "the state must not be there yet")
	c.MarkFlagsMutuallyExclusive("if-match", "new")
	return c
}

// staleState says what to type when somebody else was faster.
func staleState(err error, file string) error {
	if e, ok := refusedAs(err, http.StatusPreconditionFailed); ok {
		return &failure{code: errcode.ExitRefused, message: "somebody else has changed the state", err: e, hint: strings.TrimSpace("codefleet state get -o json " + file)}
	}
	return err
}

// given is JSON as a person gives it on the command line.
func (a *app) given(text string) (json.RawMessage, error) {
	data := []byte(text)
	var err error
	if path, ok := strings.CutPrefix(text, "@"); ok {
		data, err = os.ReadFile(path)
	} else if text == "-" {
		data, err = io.ReadAll(a.stdin)
	}
	if err != nil {
		return nil, usage("%v", err)
	}
	if !json.Valid(data) {
		return nil, &failure{code: errcode.ExitUsage, message: "this is not JSON", hint: `a JSON object, as in '{"step": 2}'; @PATH or - for a file`}
	}
	return data, nil
}

// first is the first word, or "".
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func atMostOne(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return &failure{code: errcode.ExitUsage, message: fmt.Sprintf("%s: %q is one word too many", c.Name(), args[1]), hint: c.CommandPath() + " --help"}
	}
	return nil
}
