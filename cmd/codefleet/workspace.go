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
		Short: "The files that tasks work on: history, and exchange with directories here",
		Long: "The files that tasks work on. Each task that changes a file makes a new generation of its workspace, and so\n" +
			"do changes from here. A version is named by its generation, or by a pin.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.wsListCommand(), a.wsLogCommand(), a.wsDiffCommand(), a.wsRestoreCommand(), a.wsForkCommand(), a.wsLsCommand(),
		a.wsCatCommand(), a.wsPullCommand(), a.wsPushCommand(), a.wsCheckCommand(), a.wsRepairCommand(), a.wsMirrorCommand(), a.wsRmCommand(), a.wsPinCommand())
	return c
}

// wsVerb makes a verb of one workspace, with its flag.
func (a *app) wsVerb(c *cobra.Command, fn func(ctx context.Context, w *client.Workspace, args []string) error) *cobra.Command {
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
	_ = c.RegisterFlagCompletionFunc("workspace", a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
		list, _ := c.Workspaces(ctx)
		var names []cobra.Completion
		for _, w := range list {
			names = append(names, cobra.CompletionWithDesc(w.Name, fmt.Sprintf("generation %d, %d files", w.Generation, w.Files)))
		}
		return names
	}))
}

// complete asks the fleet, for a moment, what could come next.
func (a *app) complete(ask func(ctx context.Context, c *client.Client, args []string) []cobra.Completion) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		fleet, err := a.connect(ctx, client.Options{RetryFor: -1})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer fleet.Close()
		list := ask(ctx, fleet, args)
		list = slices.DeleteFunc(list, func(c cobra.Completion) bool { return !strings.HasPrefix(c, typed) })
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// workspaceOf is the workspace that the flags of a command name, for completion.
func workspaceOf(cmd *cobra.Command, c *client.Client) *client.Workspace {
	name, _ := cmd.Flags().GetString("workspace")
	return c.Workspace(name)
}

// completeVersions completes generations and pins, for at most so many words.
func (a *app) completeVersions(cmd *cobra.Command, words int) {
	cmd.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		if len(args) >= words {
			return nil
		}
		const shown = 30
		w := workspaceOf(cmd, c)
		var list []cobra.Completion
		pins, _ := w.Pins(ctx)
		for _, p := range pins {
			list = append(list, cobra.CompletionWithDesc(p.Name, fmt.Sprintf("generation %d", p.Generation)))
		}
		log, _ := w.Log(ctx, shown)
		for _, v := range log {
			list = append(list, cobra.CompletionWithDesc(strconv.FormatInt(v.Generation, 10), short(time.Since(v.Time))+" ago, "+whose(v)))
		}
		return list
	})
}

// completeFiles completes paths of the newest version.
func (a *app) completeFiles(cmd *cobra.Command) {
	cmd.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
		const shown = 500
		files, _, _ := workspaceOf(cmd, c).Files(ctx, "", "")
		var list []cobra.Completion
		for _, f := range files[:min(len(files), shown)] {
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

// refusedAs returns a refusal with the given HTTP status.
func refusedAs(err error, status int) (*client.APIError, bool) {
	e, ok := errors.AsType[*client.APIError](err)
	return e, ok && e.Status == status
}

// explainConflict says which files a conflict is about, and what to type.
func explainConflict(err error) error {
	e, ok := refusedAs(err, http.StatusConflict)
	if !ok || e.Code != errcode.Conflict {
		return err
	}
	return &failure{code: errcode.ExitRefused, message: "changed by others meanwhile: " + few(e.Paths, len(e.Paths)), hint: "codefleet workspace log, and then the same again"}
}
