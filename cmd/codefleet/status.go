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
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "status ID",
		Short:             "Show the status of a task",
		Args:              oneTask,
		ValidArgsFunction: a.completeTasks(),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			rec, err := c.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if err := a.print(rec, func(w io.Writer) { a.showRecord(w, rec) }); err != nil {
				return err
			}
			return statusError(rec.Status)
		}),
	}
}

// oneTask accepts exactly one task id.
func oneTask(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("%s: want one task id, got %d", c.Name(), len(args)).try("codefleet tasks")
	}
	return nil
}

func noArgs(c *cobra.Command, args []string) error { return checkArgs(c, args, 0) }

func atMostOne(c *cobra.Command, args []string) error { return checkArgs(c, args, 1) }

func checkArgs(c *cobra.Command, args []string, limit int) error {
	if len(args) > limit {
		return usage("%s: unexpected argument %q", c.Name(), args[limit]).try(c.CommandPath() + " --help")
	}
	return nil
}

func (a *app) showRecord(w io.Writer, r client.Record) {
	row(w, "task", r.TaskID)
	row(w, "status", a.statusText(r))
	row(w, "workspace", r.Workspace)
	if r.Session != "" {
		row(w, "session", r.Session)
	}
	row(w, "pool", r.Pool+", "+r.Priority)
	row(w, "submitted", ago(r.SubmittedAt))
	if summary := r.Summary(); summary != "" {
		row(w, "summary", cell(summary))
	}
	if !r.NotBefore.IsZero() && r.StartedAt.IsZero() {
		row(w, "runs at", r.NotBefore.Local().Format(time.DateTime))
	}
	if !r.StartedAt.IsZero() {
		row(w, "started", fmt.Sprintf("%s, run %d on %s", ago(r.StartedAt), r.Run, r.Worker))
	}
	if !r.EndedAt.IsZero() {
		row(w, "ended", ago(r.EndedAt))
	}
	for _, run := range r.Attempts {
		if run.Error != "" {
			row(w, fmt.Sprintf("run %d", run.Run), run.Outcome+": "+strings.TrimPrefix(run.Error, run.Outcome+": "))
		}
	}
	a.showApprovals(w, r)
	if r.Result != nil && r.Result.Error != nil {
		row(w, "error", r.Result.Error.Message)
	}
	if r.Result != nil {
		for _, f := range r.Result.Artifacts {
			row(w, "artifact", printable(fmt.Sprintf("%s, %s", f.Path, text.Count(f.Bytes, "byte"))))
		}
	}
	if r.TraceID != "" {
		row(w, "trace", r.TraceID)
	}
}

// statusText returns a task's status and what the task waits for.
func (a *app) statusText(r client.Record) string {
	switch r.WaitsFor {
	case "":
		return string(r.Status)
	case schemas.WaitsForMemory:
		return string(r.Status) + ", waits for memory: other tasks use all of execution.memory_mb_total"
	}
	return string(r.Status) + ", waits for a " + r.WaitsFor + ": " + a.withFlags("codefleet why "+r.TaskID)
}

// ago formats a time relative to now and as a local time.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%s ago (%s)", duration(time.Since(t)), t.Local().Format(time.DateTime))
}

// duration formats a duration with one unit, such as 5m or 13ms.
func duration(d time.Duration) string {
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

// timeLeft formats a duration with up to two units, rounded up to minutes. Right after a submission with --at +2h it
// returns 2h, while the function duration returns 1h.
func timeLeft(d time.Duration) string {
	if d < time.Minute {
		return duration(d)
	}
	if d > 100*365*24*time.Hour { // a duration has at most 292 years
		return "over 100 years"
	}
	const hour, day = 60, 24 * 60
	var parts []string
	left := (d + time.Minute - 1) / time.Minute
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{day, "d"}, {hour, "h"}, {1, "m"}} {
		if n := left / unit.size; n > 0 && len(parts) < 2 {
			parts = append(parts, fmt.Sprintf("%d%s", n, unit.name))
		}
		left %= unit.size
	}
	return strings.Join(parts, "")
}

// completeTasks completes a task id with the latest tasks that have one of the statuses, or with the latest tasks if no
// status is given.
func (a *app) completeTasks(status ...client.Status) cobra.CompletionFunc {
	return a.complete(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		const limit = 50
		if len(args) > 0 {
			return nil
		}
		recs, _ := c.List(ctx, client.ListOptions{Status: status, Limit: limit})
		return mapSlice(recs, func(r client.Record) cobra.Completion {
			return cobra.CompletionWithDesc(r.TaskID,
				fmt.Sprintf("%s, %s ago", r.Status, duration(time.Since(r.SubmittedAt))))
		})
	})
}
