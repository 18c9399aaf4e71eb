package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) workspaceCommand() *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "workspace",
		Short: "Show, change and restore the files that tasks work on",
		Long: "Show, change and restore the files that tasks work on. Each task or command that changes\n" +
			"files commits a new version of the workspace. A version is selected by its number, which\n" +
			"is its generation, or by the name of a pin.",
	},
		a.wsListCommand(), a.wsLogCommand(), a.wsDiffCommand(), a.wsRestoreCommand(), a.wsForkCommand(),
		a.wsLsCommand(), a.wsCatCommand(), a.wsPullCommand(), a.wsPushCommand(), a.wsRmCommand(),
		a.wsPinCommand(), a.wsCheckCommand(), a.wsRepairCommand(), a.wsMirrorCommand(),
	)
}

// wsCommand makes c a command that calls fn with the workspace of --workspace. If what fn asks for does not exist, and
// neither does the workspace, the command returns the error of rejectEmpty.
func (a *app) wsCommand(
	c *cobra.Command, fn func(ctx context.Context, w *client.Workspace, args []string) error,
) *cobra.Command {
	var name string
	c.RunE = a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
		ws := c.Workspace(name)
		err := fn(ctx, ws, args)
		if _, unknown := hasStatus(err, http.StatusNotFound); unknown {
			if empty, ok := errors.AsType[*failure](rejectEmpty(ctx, ws)); ok {
				err = empty
			}
		}
		return explainConflict(err)
	})
	a.workspaceFlag(c, &name)
	return c
}

func (a *app) workspaceFlag(c *cobra.Command, name *string) {
	c.Flags().StringVarP(name, "workspace", "w", "main", "`NAME` of the workspace")
	a.completeWorkspaces(c)
}

// completeWorkspaces completes --workspace.
func (a *app) completeWorkspaces(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("workspace",
		a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
			workspaces, _ := c.Workspaces(ctx)
			return mapSlice(workspaces, func(w client.WorkspaceInfo) cobra.Completion {
				files := text.Count(w.Files, "file")
				return cobra.CompletionWithDesc(w.Name, fmt.Sprintf("generation %d, %s", w.Generation, files))
			})
		}))
}

const maxCompletions = 500

// complete returns a completion that requests its words from the fleet within a second. It offers the first
// maxCompletions words that begin with what was typed.
func (a *app) complete(
	request func(ctx context.Context, c *client.Client, args []string) []cobra.Completion,
) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		fleet, err := a.connect(ctx, -1)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer fleet.Close()
		words := slices.DeleteFunc(request(ctx, fleet, args), func(c cobra.Completion) bool {
			// The shell would print control characters.
			return !strings.HasPrefix(c, typed) || strings.ContainsFunc(c, text.Controls)
		})
		words = words[:min(len(words), maxCompletions)]
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// workspaceOf returns the workspace of a command's --workspace flag, for completion.
func workspaceOf(cmd *cobra.Command, c *client.Client) *client.Workspace {
	name, _ := cmd.Flags().GetString("workspace")
	return c.Workspace(name)
}

// completeVersions completes the first n arguments with generations and pins.
func (a *app) completeVersions(cmd *cobra.Command, n int) {
	cmd.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		if len(args) >= n {
			return nil
		}
		const limit = 30
		w := workspaceOf(cmd, c)
		pins, _ := w.Pins(ctx)
		log, _ := w.Log(ctx, limit)
		return append(mapSlice(pins, func(p client.Pin) cobra.Completion {
			return cobra.CompletionWithDesc(p.Name, fmt.Sprintf("generation %d", p.Generation))
		}), mapSlice(log, func(c client.Commit) cobra.Completion {
			return cobra.CompletionWithDesc(strconv.FormatInt(c.Generation, 10),
				duration(time.Since(c.Time))+" ago, "+commitSource(c))
		})...)
	})
}

// completeFiles completes paths of the newest version.
func (a *app) completeFiles(cmd *cobra.Command) {
	cmd.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
		files, _, _ := workspaceOf(cmd, c).Files(ctx, "", "")
		return mapSlice(files, func(f client.WorkspaceFile) cobra.Completion { return f.Path })
	})
}

func (a *app) wsListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the workspaces",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.Workspaces(ctx)
			if err != nil {
				return err
			}
			return list(a, all, "WORKSPACE\tGENERATION\tCHANGED\tFILES\tBYTES", func(w client.WorkspaceInfo) []any {
				return []any{w.Name, w.Generation, duration(time.Since(w.Time)) + " ago", w.Files, w.Bytes}
			})
		}),
	}
}

// hasStatus returns the APIError in err, and whether it has the HTTP status.
func hasStatus(err error, status int) (*client.APIError, bool) {
	e, ok := errors.AsType[*client.APIError](err)
	return e, ok && e.Status == status
}

// explainConflict adds the changed paths and a hint to a conflict.
func explainConflict(err error) error {
	e, ok := hasStatus(err, http.StatusConflict)
	if !ok || e.Code != errcode.Conflict {
		return err
	}
	return &failure{
		code: errcode.ExitRefused, message: "another commit has changed " + summarizePaths(e.Paths, len(e.Paths)),
		hint: "see codefleet workspace log, then run the command again", errorCode: e.Code,
	}
}
