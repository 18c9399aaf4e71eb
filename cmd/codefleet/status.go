package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "status ID",
		Short:             "Show the status of a task",
		Args:              oneTask,
		ValidArgsFunction: a.completeTasks(nil),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			rec, err := c.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if err := a.print(rec, func(w io.Writer) { showRecord(w, rec) }); err != nil {
				return err
			}
			return statusError(rec.Status)
		}),
	}
}

// oneTask accepts exactly one task id.
func oneTask(c *cobra.Command, args []string) error {
	// An unset variable in a script is an empty argument.
	args = slices.DeleteFunc(slices.Clone(args), func(id string) bool { return id == "" })
	if len(args) != 1 {
		return &failure{
			code:    errcode.ExitUsage,
			message: fmt.Sprintf("%s: want one task id, got %d", c.Name(), len(args)),
			hint:    "codefleet tasks",
		}
	}
	return nil
}

func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &failure{
			code: errcode.ExitUsage, message: fmt.Sprintf("%s: unexpected argument %q", c.Name(), args[0]),
			hint: c.CommandPath() + " --help",
		}
	}
	return nil
}

func showRecord(w io.Writer, r client.Record) {
	row(w, "task", r.TaskID)
	row(w, "status", standing(r))
	row(w, "workspace", r.Workspace)
	if r.Session != "" {
		row(w, "session", r.Session)
	}
	row(w, "pool", r.Pool+", "+r.Priority)
	row(w, "submitted", ago(r.SubmittedAt))
	if !r.StartedAt.IsZero() {
		row(w, "started", fmt.Sprintf("%s, run %d on %s", ago(r.StartedAt), r.Run, r.Worker))
	}
	if !r.EndedAt.IsZero() {
		row(w, "ended", ago(r.EndedAt))
	}
	for _, at := range r.Attempts {
		if at.Error != "" {
			row(w, fmt.Sprintf("run %d", at.Run), at.Outcome+": "+strings.TrimPrefix(at.Error, at.Outcome+": "))
		}
	}
	showApprovals(w, r)
	if r.Result != nil && r.Result.Error != nil {
		row(w, "error", r.Result.Error.Message)
	}
	if r.TraceID != "" {
		row(w, "trace", r.TraceID)
	}
}

// standing returns a task's status, and what it waits for.
func standing(r client.Record) string {
	switch r.WaitsFor {
	case "":
		return string(r.Status)
	case schemas.WaitsForMemory:
		return string(r.Status) + ", waits for memory: other tasks use what execution.memory_mb_total allows"
	}
	return string(r.Status) + ", waits for a " + r.WaitsFor + ": codefleet pool"
}

// ago formats a time for a person.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%s ago (%s)", short(time.Since(t)), t.Local().Format(time.DateTime))
}

// short formats a duration with one unit, such as 5m or 13ms.
func short(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d >= unit.size {
			return fmt.Sprintf("%d%s", d/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%dms", max(d, 0).Milliseconds())
}

// completeTasks completes the ids of the latest tasks with one of the given statuses.
func (a *app) completeTasks(status []client.Status) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const limit = 50
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		fleet, err := a.connect(ctx, -1)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer fleet.Close()
		recs, err := fleet.List(ctx, client.ListOptions{Status: status, Limit: limit})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []cobra.Completion
		for _, r := range recs {
			if strings.HasPrefix(r.TaskID, typed) {
				ids = append(ids, cobra.CompletionWithDesc(r.TaskID,
					fmt.Sprintf("%s, %s ago", r.Status, short(time.Since(r.SubmittedAt)))))
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
