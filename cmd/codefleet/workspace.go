package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

func (a *app) workspaceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "workspace",
		Short: "Show, change and restore the files that tasks work on",
		Long: "Show, change and restore the files that tasks work on. Each task that changes files\n" +
			"makes a new generation of its workspace, and so does each change by a command. A version\n" +
			"is named by its generation or by a pin.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		a.wsListCommand(), a.wsLogCommand(), a.wsDiffCommand(), a.wsRestoreCommand(), a.wsForkCommand(),
		a.wsLsCommand(), a.wsCatCommand(), a.wsPullCommand(), a.wsPushCommand(), a.wsRmCommand(),
		a.wsPinCommand(), a.wsCheckCommand(), a.wsRepairCommand(), a.wsMirrorCommand(),
	)
	return c
}

// wsVerb returns a command about one workspace, with its flag.
func (a *app) wsVerb(c *cobra.Command,
	fn func(ctx context.Context, w *client.Workspace, args []string) error,
) *cobra.Command {
	var name string
	c.RunE = a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
		return explainConflict(fn(ctx, c.Workspace(name), args))
	})
	a.workspaceFlag(c, &name)
	return c
}

func (a *app) workspaceFlag(c *cobra.Command, name *string) {
	c.Flags().StringVarP(name, "workspace", "w", "main", "the `NAME` of the workspace")
	a.completeWorkspaces(c)
}

// completeWorkspaces completes --workspace.
func (a *app) completeWorkspaces(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("workspace",
		a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
			list, _ := c.Workspaces(ctx)
			var names []cobra.Completion
			for _, w := range list {
				names = append(names, cobra.CompletionWithDesc(w.Name,
					fmt.Sprintf("generation %d, %d files", w.Generation, w.Files)))
			}
			return names
		}))
}

// complete returns a completion that asks the fleet, for a second at most.
func (a *app) complete(ask func(ctx context.Context, c *client.Client, args []string) []cobra.Completion,
) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		fleet, err := a.connect(ctx, -1)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer fleet.Close()
		list := ask(ctx, fleet, args)
		list = slices.DeleteFunc(list, func(c cobra.Completion) bool { return !strings.HasPrefix(c, typed) })
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// workspaceOf returns the workspace that the flags of a command name, for completion.
func workspaceOf(cmd *cobra.Command, c *client.Client) *client.Workspace {
	name, _ := cmd.Flags().GetString("workspace")
	return c.Workspace(name)
}

// completeVersions completes up to n arguments with generations and pins.
func (a *app) completeVersions(cmd *cobra.Command, words int) {
	cmd.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		if len(args) >= words {
			return nil
		}
		const limit = 30
		w := workspaceOf(cmd, c)
		var list []cobra.Completion
		pins, _ := w.Pins(ctx)
		for _, p := range pins {
			list = append(list, cobra.CompletionWithDesc(p.Name, fmt.Sprintf("generation %d", p.Generation)))
		}
		log, _ := w.Log(ctx, limit)
		for _, v := range log {
			list = append(list, cobra.CompletionWithDesc(strconv.FormatInt(v.Generation, 10),
				short(time.Since(v.Time))+" ago, "+origin(v)))
		}
		return list
	})
}

// completeFiles completes paths of the newest version.
func (a *app) completeFiles(cmd *cobra.Command) {
	cmd.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
		const limit = 500
		files, _, _ := workspaceOf(cmd, c).Files(ctx, "", "")
		var list []cobra.Completion
		for _, f := range files[:min(len(files), limit)] {
			list = append(list, f.Path)
		}
		return list
	})
}

func (a *app) wsListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the workspaces",
		Args:  noArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Workspaces(ctx)
			if err != nil {
				return err
			}
			return a.print(orEmpty(list), func(w io.Writer) {
				row(w, "WORKSPACE", "GENERATION", "CHANGED", "FILES", "BYTES")
				for _, x := range list {
					row(w, x.Name, x.Generation, short(time.Since(x.Time))+" ago", x.Files, x.Bytes)
				}
			})
		}),
	}
}

// refusedAs returns the APIError in err if it has the HTTP status.
func refusedAs(err error, status int) (*client.APIError, bool) {
	e, ok := errors.AsType[*client.APIError](err)
	return e, ok && e.Status == status
}

// explainConflict adds the files and a hint to a conflict.
func explainConflict(err error) error {
	e, ok := refusedAs(err, http.StatusConflict)
	if !ok || e.Code != errcode.Conflict {
		return err
	}
	return &failure{
		code: errcode.ExitRefused, message: "changed meanwhile: " + few(e.Paths, len(e.Paths)),
		hint: "see codefleet workspace log, then run the command again",
	}
}
