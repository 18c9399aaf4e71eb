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
		Long: "Read and write the state that tasks share: a JSON or YAML document of the workspace.\n" +
			"Programs find it at /workspace/state.json; other documents are at the top of the\n" +
			"workspace or below state/.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.stateGetCommand(), a.stateSetCommand())
	return c
}

func (a *app) stateGetCommand() *cobra.Command {
	var workspace string
	c := &cobra.Command{
		Use:     "get [FILE]",
		Short:   "Print the state as JSON; {} if there is none yet",
		Example: "  codefleet state get\n  codefleet state get state/plan.yaml -o json      with its version (etag)",
		Args:    atMostOne,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := c.GetState(ctx, workspace, first(args))
			if err != nil {
				return err
			}
			if !s.Exists && a.output == "text" {
				fmt.Fprintln(a.stderr, "note: no such state document yet")
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
		Long: "Replace the state with a JSON object, given as text, as @PATH of a file, or as - for\n" +
			"standard input. With --if-match it replaces that version only (`etag` of `codefleet\n" +
			"state get -o json`); with --new there must be none yet.",
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
	c.Flags().StringVar(&match, "if-match", "", "replace only the version with this `ETAG`")
	c.Flags().BoolVar(&isNew, "new", false, "fail if there is a state already")
	c.MarkFlagsMutuallyExclusive("if-match", "new")
	return c
}

// staleState explains that another writer was faster.
func staleState(err error, file string) error {
	if e, ok := refusedAs(err, http.StatusPreconditionFailed); ok {
		return &failure{
			code: errcode.ExitRefused, message: "the state was changed meanwhile", err: e,
			hint: strings.TrimSpace("codefleet state get -o json " + file),
		}
	}
	return err
}

// given returns the JSON of a command-line argument.
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
		return nil, &failure{
			code: errcode.ExitUsage, message: "not valid JSON",
			hint: `a JSON object, as in '{"step": 2}'; @PATH or - for a file`,
		}
	}
	return data, nil
}

// first returns the first argument, or an empty string.
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func atMostOne(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return &failure{
			code: errcode.ExitUsage, message: fmt.Sprintf("%s: unexpected argument %q", c.Name(), args[1]),
			hint: c.CommandPath() + " --help",
		}
	}
	return nil
}
