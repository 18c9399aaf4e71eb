package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/strictjson"
)

func (a *app) stateCommand() *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "state",
		Short: "Read and write the state that tasks share",
		Long: "Read and write the state that tasks share: JSON or YAML documents in the workspace. The\n" +
			"default document is /workspace/state.json; others are at the top of the workspace or\n" +
			"below state/.",
	}, a.stateGetCommand(), a.stateSetCommand())
}

func (a *app) stateGetCommand() *cobra.Command {
	var workspace string
	c := &cobra.Command{
		Use:     "get [FILE]",
		Short:   "Print the state as JSON, or {} if it does not exist yet",
		Example: "  codefleet state get\n  codefleet state get state/plan.yaml -o json      with its version (etag)",
		Args:    atMostOne,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := c.GetState(ctx, workspace, arg(args, 0))
			if err != nil {
				return err
			}
			if !s.Exists {
				if err := rejectEmpty(ctx, c.Workspace(cmp.Or(workspace, defaultWorkspace))); err != nil {
					return err
				}
				a.printNote("note: the state document does not exist yet")
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
		Long: "Replace the state with a JSON object: text, @PATH for a file, or - for standard input.\n" +
			"With --if-match, the command fails unless the state has that version (`etag` of\n" +
			"`codefleet state get -o json`). With --new, it fails if the state exists.",
		Example: "  codefleet state set '{\"step\": 2}'\n  codefleet state set plan.yaml @plan.json",
		Args:    cobra.RangeArgs(1, 2),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			file, text := arg(args[:len(args)-1], 0), args[len(args)-1]
			data, err := readJSON("state", text, a.stdin)
			if err != nil {
				return err
			}
			s := client.State{Workspace: workspace, File: file, Data: data, ETag: match}
			if isNew {
				s.ETag = client.NoState
			}
			s, err = c.SaveState(ctx, s)
			if e, ok := errors.AsType[*client.APIError](err); ok && e.Code == errcode.StateConflict {
				message, getState := "another writer has changed the state", "codefleet state get -o json"
				if file != "" {
					getState += " " + shellescape.Quote(file)
				}
				if isNew {
					message = "the state document already exists"
				}
				return &failure{
					code: errcode.ExitRefused, message: message, err: e,
					hint: getState,
				}
			}
			if err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) {
				fmt.Fprintf(w, "saved %s in generation %d of %s\n", s.File, s.Generation, s.Workspace)
			})
		}),
	}
	a.workspaceFlag(c, &workspace)
	c.Flags().StringVar(&match, "if-match", "", "replace only the version with this `ETAG`")
	c.Flags().BoolVar(&isNew, "new", false, "fail if the state exists")
	c.MarkFlagsMutuallyExclusive("if-match", "new")
	return c
}

// readJSON returns the JSON of an argument: its text, the content of a file (@PATH) or, unless stdin is nil, standard
// input (-). Errors begin with name.
func readJSON(name, text string, stdin io.Reader) (json.RawMessage, error) {
	data := []byte(text)
	var err error
	if path, ok := strings.CutPrefix(text, "@"); ok {
		data, err = readFile(path)
	} else if text == "-" && stdin != nil {
		data, err = readInput(stdin)
	}
	if errors.Is(err, errTooLarge) {
		return nil, usage("%s: %s %v", name, text, err)
	}
	if err != nil {
		return nil, usage("%s: %v", name, err)
	}
	if err := strictjson.Check(data); err != nil {
		return nil, usage("%s: not valid JSON: %v", name, err).
			try(`use JSON such as '{"step": 2}', or @PATH for a file`)
	}
	return data, nil
}

// arg returns an argument, or an empty string if it was not given.
func arg(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}
