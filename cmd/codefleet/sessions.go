package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) sessionsCommand() *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "sessions",
		Short: "List and show sessions, set checkpoints, and go on with a session",
		Long: "A session consists of the tasks that name it: codefleet run -s session_001 … begins the session or\n" +
			"goes on with it, on any worker. The log has each task's code, result and output. Programs find\n" +
			"the log at /workspace/sessions/NAME.json, and read and set checkpoints with client.session.",
	}, a.sessionsListCommand(), a.sessionsShowCommand(), a.sessionsResumeCommand(), a.sessionsCheckpointCommand())
}

func (a *app) sessionsListCommand() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List sessions, the one with the latest task first",
		Args:  cobra.NoArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Sessions(ctx, limit)
			if err != nil {
				return err
			}
			const header = "SESSION\tTASKS\tLAST STATUS\tENDED\tWORKSPACE"
			return listOr(a, list, "no sessions", header, func(s client.SessionSummary) []any {
				ended := "–"
				if !s.EndedAt.IsZero() {
					ended = s.EndedAt.Local().Format(time.DateTime)
				}
				return []any{s.SessionID, s.Tasks, s.LastStatus, ended, s.Workspace}
			})
		}),
	}
	c.Flags().IntVar(&limit, "limit", 100, "list at most `N` sessions")
	requirePositive(c, "limit")
	return c
}

func (a *app) sessionsShowCommand() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the log of a session",
		Args:  cobra.ExactArgs(1),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := c.Session(ctx, args[0], limit)
			if err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) { printSession(w, s) })
		}),
	}
	c.Flags().IntVar(&limit, "limit", 100, "show at most the `N` newest tasks")
	requirePositive(c, "limit")
	return c
}

func (a *app) sessionsResumeCommand() *cobra.Command {
	var checkpoint uint64
	c := &cobra.Command{
		Use:   "resume NAME",
		Short: "Show where a session stands, and how to go on with it",
		Long: "Show where a session stands, and how to go on with it. With --checkpoint, the command first makes\n" +
			"an earlier checkpoint the newest one, so that the next program continues from there.",
		Example: "  codefleet sessions resume session_001\n  codefleet sessions resume session_001 --checkpoint 12",
		Args:    cobra.ExactArgs(1),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := c.ResumeSession(ctx, args[0], checkpoint)
			if err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) {
				printSessionEnd(w, s)
				next := "codefleet run -s " + s.SessionID + " -w " + s.Workspace + " …"
				fmt.Fprintln(w, "go on with:", a.withFlags(next))
			})
		}),
	}
	c.Flags().Uint64Var(&checkpoint, "checkpoint", 0, "`ID` of an earlier checkpoint, from sessions show")
	requirePositive(c, "checkpoint")
	return c
}

func (a *app) sessionsCheckpointCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "checkpoint NAME JSON|@PATH|-",
		Short: "Set the checkpoint of a session",
		Long: "Set the checkpoint of a session: a JSON object that says how far the work has got. Programs set\n" +
			"it with client.session.checkpoint(step=3).",
		Example: `  codefleet sessions checkpoint session_001 '{"step": 3, "context": "Working on data analysis"}'`,
		Args:    cobra.ExactArgs(2),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			data, err := readJSON("checkpoint", args[1], a.stdin)
			if err != nil {
				return err
			}
			s, err := c.SaveCheckpoint(ctx, args[0], data)
			if err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) {
				fmt.Fprintf(w, "saved checkpoint %d of %s\n", s.Checkpoint.ID, s.SessionID)
			})
		}),
	}
}

func printSession(w io.Writer, s client.Session) {
	if s.TasksOmitted > 0 {
		fmt.Fprintf(w, "not shown: %s; see --limit\n", text.Count(s.TasksOmitted, "older task"))
	}
	for _, t := range s.Tasks {
		row(w, t.Timestamp.Local().Format(time.DateTime), t.Status, firstLine(t.Description))
		if t.Result != "" {
			row(w, "", "result", firstLine(t.Result))
		}
		if t.Error != "" {
			row(w, "", "error", firstLine(t.Error))
		}
	}
	printSessionEnd(w, s)
}

// firstLine returns the beginning of the first line of a text.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return text.Truncate(line, 200)
}

// printSessionEnd prints where a session stands.
func printSessionEnd(w io.Writer, s client.Session) {
	row(w, "session", s.SessionID)
	row(w, "workspace", s.Workspace)
	row(w, "tasks", strconv.Itoa(len(s.Tasks)+s.TasksOmitted))
	if len(s.StateFiles) > 0 {
		row(w, "state files", strings.Join(s.StateFiles, ", "))
	}
	if c := s.Checkpoint; c != nil {
		if data, err := c.MarshalJSON(); err == nil {
			row(w, "checkpoint", string(data))
		}
	}
	var ids []string
	for _, c := range s.Checkpoints {
		ids = append(ids, strconv.FormatUint(c.ID, 10))
	}
	if len(ids) > 1 {
		row(w, "checkpoints", strings.Join(ids, ", "))
	}
}
