package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) wsLogCommand() *cobra.Command {
	var limit int
	c := a.wsCommand(&cobra.Command{
		Use:   "log",
		Short: "List the commits of a workspace, newest first",
	}, func(ctx context.Context, ws *client.Workspace, _ []string) error {
		log, err := ws.Log(ctx, limit)
		if err == nil && len(log) == 0 {
			err = rejectEmpty(ctx, ws)
		}
		if err != nil {
			return err
		}
		return list(a, log, "GENERATION\tWHEN\tSOURCE\tCHANGED", func(c client.Commit) []any {
			age := duration(time.Since(c.Time)) + " ago"
			return []any{c.Generation, age, commitSource(c), summarizePaths(c.Changed, c.Total)}
		})
	})
	limitFlag(c, &limit, "commits")
	return c
}

func (a *app) wsRestoreCommand() *cobra.Command {
	var message string
	c := a.wsCommand(&cobra.Command{
		Use:   "restore VERSION",
		Short: "Commit an older version again; newer versions stay in the history",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		done, err := ws.Restore(ctx, args[0], message)
		if err != nil {
			return err
		}
		return a.showCommit(ws, done)
	})
	c.Flags().StringVarP(&message, "message", "m", "", "`MESSAGE` of the commit")
	a.completeVersions(c, 1)
	return c
}

func (a *app) wsForkCommand() *cobra.Command {
	var to string
	c := a.wsCommand(&cobra.Command{
		Use:   "fork [VERSION] --to NAME",
		Short: "Create a workspace from a version of this one, without copying data",
		Args:  atMostOne,
	}, func(ctx context.Context, ws *client.Workspace, args []string) error {
		if to == "" {
			return usage("fork: --to is missing").
				try("codefleet workspace fork " + strings.Join(append(args, "--to NAME"), " "))
		}
		if err := rejectEmpty(ctx, ws); err != nil {
			return err
		}
		done, err := ws.Fork(ctx, arg(args, 0), to)
		if err != nil {
			return err
		}
		return a.print(done, func(w io.Writer) {
			fmt.Fprintf(w, "%s has %s; run tasks there with --workspace %s\n", to, text.Count(done.Total, "path"), to)
		})
	})
	c.Flags().StringVar(&to, "to", "", "`NAME` of the new workspace")
	a.completeVersions(c, 1)
	return c
}

// commitSource returns the task that made a commit, or else the commit's message.
func commitSource(c client.Commit) string {
	if c.TaskID != "" {
		return "task " + c.TaskID
	}
	return c.Message
}

// summarizePaths lists the first few paths in one line, and says how many of total it does not list.
func summarizePaths(paths []string, total int) string {
	const limit = 3
	names := mapSlice(paths[:min(len(paths), limit)], printable)
	text := strings.Join(names, ", ")
	if more := total - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// showCommit prints the commit that a command made, or that nothing changed.
func (a *app) showCommit(ws *client.Workspace, c client.Commit) error {
	return a.print(c, func(w io.Writer) {
		if c.NoChange {
			fmt.Fprintf(w, "nothing changed: %s is at generation %d\n", ws.Name(), c.Generation)
			return
		}
		fmt.Fprintf(w, "generation %d of %s: %s\n", c.Generation, ws.Name(), summarizePaths(c.Changed, c.Total))
	})
}
