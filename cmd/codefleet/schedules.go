package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) schedulesCommand() *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "schedules",
		Short: "Submit tasks at the times of cron expressions",
		Long: "Submit tasks at the times of cron expressions. Any worker or ingest of the fleet fires the\n" +
			"schedules; each firing takes place once. docs/automation.md has the details.",
	},
		a.schedulesAddCommand(), a.schedulesListCommand(), a.schedulesShowCommand(), a.schedulesRemoveCommand(),
		a.schedulesPauseCommand("pause", "Pause a schedule", "Firings during the pause do not take place later.",
			(*client.Client).PauseSchedule),
		a.schedulesPauseCommand("resume", "End the pause of a schedule", "", (*client.Client).ResumeSchedule),
		a.schedulesRunCommand())
}

func (a *app) schedulesAddCommand() *cobra.Command {
	var spec client.ScheduleSpec
	var jitter time.Duration
	flags := taskFlags{example: "codefleet schedules add report '0 9 * * 1-5' --file report.py"}
	c := &cobra.Command{
		Use:   "add NAME CRON TASK|- | --code TEXT | --file FILE|-",
		Short: "Add a schedule",
		Long: "Add a schedule that submits a task at the times of a cron expression, in quotes: minute,\n" +
			"hour, day of month, month and day of week, or @hourly, @daily, @weekly, @monthly, @yearly\n" +
			"or '@every 90s'. Adding the same schedule again changes nothing.",
		Example: "  codefleet schedules add report '0 9 * * 1-5' --zone Europe/Berlin --file report.py\n" +
			"  codefleet schedules add poll '@every 10m' --missed skip --code 'print(1)'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage("schedules add: want a name and a cron expression").
					try(flags.example)
			}
			return nil
		},
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			task, err := flags.submission(args[2:], a.stdin)
			if err != nil {
				return err
			}
			if jitter < 0 || jitter%time.Second != 0 {
				return usage("--jitter %s: want whole seconds", jitter)
			}
			spec.Name, spec.Cron, spec.JitterS = args[0], args[1], int(jitter/time.Second)
			s, err := c.AddSchedule(ctx, spec, task)
			if err != nil {
				return err
			}
			return a.printSchedule(s)
		}),
	}
	c.Flags().StringVar(&spec.Zone, "zone", "", "time `ZONE` of the expression, such as Europe/Berlin (default: UTC)")
	c.Flags().StringVar(&spec.Missed, "missed", "last",
		"which firings take place later if the fleet was down: skip, last or all")
	c.Flags().DurationVar(&jitter, "jitter", 0,
		"delay all firings by the same time, which depends on the name and is less than this")
	flags.declareTask(c)
	a.completeTaskFlags(c)
	completeFlag(c, "missed", schemas.MissedSkip, schemas.MissedLast, schemas.MissedAll)
	return c
}

func (a *app) schedulesListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the schedules",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			schedules, err := c.Schedules(ctx)
			if err != nil {
				return err
			}
			const header = "NAME\tCRON\tZONE\tNEXT\tLAST\tLAST TASK"
			return listOr(a, schedules, "no schedules", header, func(s client.Schedule) []any {
				return []any{s.Name, s.Cron, zoneOf(s), nextOf(s), localTime(s.LastAt), lastOf(s)}
			})
		}),
	}
}

func zoneOf(s client.Schedule) string {
	if s.Zone == "" {
		return "UTC"
	}
	return s.Zone
}

func nextOf(s client.Schedule) string {
	if s.Paused {
		return "paused"
	}
	return localTime(s.Next)
}

func lastOf(s client.Schedule) string {
	switch {
	case s.LastError != "":
		return text.Truncate(s.LastError, 60)
	case s.LastTask == "":
		return "-"
	}
	return s.LastTask
}

// localTime formats a time to the second, in the zone of this host. The zero time is "-".
func localTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

func (a *app) printSchedule(s client.Schedule) error {
	return a.print(s, func(w io.Writer) {
		row(w, "name", s.Name)
		row(w, "cron", s.Cron+" ("+zoneOf(s)+")")
		row(w, "missed", s.Missed)
		if s.JitterS > 0 {
			row(w, "jitter", duration(time.Duration(s.JitterS)*time.Second))
		}
		row(w, "next", nextOf(s))
		row(w, "last", localTime(s.LastAt))
		row(w, "last task", lastOf(s))
		row(w, "task", text.Truncate(compact(s.Task), 200))
	})
}

// compact returns JSON on one line.
func compact(data json.RawMessage) string {
	out, err := json.Marshal(data)
	if err != nil {
		return ""
	}
	return string(text.UnescapeHTML(out))
}

// oneSchedule makes c a command with the name of a schedule as its argument.
func (a *app) oneSchedule(
	c *cobra.Command, fn func(ctx context.Context, c *client.Client, name string) error,
) *cobra.Command {
	return a.named(c, "schedule", fn, func(ctx context.Context, c *client.Client) []cobra.Completion {
		schedules, _ := c.Schedules(ctx)
		return mapSlice(schedules, func(s client.Schedule) cobra.Completion {
			return cobra.CompletionWithDesc(s.Name, s.Cron)
		})
	})
}

// named makes c a command whose argument is the name of an automation of a kind.
func (a *app) named(
	c *cobra.Command, kind string, fn func(ctx context.Context, c *client.Client, name string) error,
	complete func(context.Context, *client.Client) []cobra.Completion,
) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%ss %s: want the name of a %s", kind, c.Name(), kind).try("codefleet " + kind + "s ls")
		}
		return nil
	}
	c.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		if len(args) > 0 {
			return nil
		}
		return complete(ctx, c)
	})
	c.RunE = a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
		return fn(ctx, c, args[0])
	})
	return c
}

func (a *app) schedulesShowCommand() *cobra.Command {
	return a.oneSchedule(&cobra.Command{Use: "show NAME", Short: "Show a schedule"},
		func(ctx context.Context, c *client.Client, name string) error {
			s, err := c.Schedule(ctx, name)
			if err != nil {
				return err
			}
			return a.printSchedule(s)
		})
}

func (a *app) schedulesRemoveCommand() *cobra.Command {
	return a.oneSchedule(&cobra.Command{
		Use: "rm NAME", Short: "Remove a schedule",
		Long: "Remove a schedule. Tasks that it has submitted continue.",
	}, func(ctx context.Context, c *client.Client, name string) error {
		if err := c.RemoveSchedule(ctx, name); err != nil {
			return err
		}
		return a.print(map[string]string{"removed": name}, func(w io.Writer) {
			fmt.Fprintln(w, "removed schedule", printable(name))
		})
	})
}

func (a *app) schedulesPauseCommand(
	use, short, more string, pause func(*client.Client, context.Context, string) (client.Schedule, error),
) *cobra.Command {
	return a.oneSchedule(&cobra.Command{Use: use + " NAME", Short: short, Long: short + ". " + more},
		func(ctx context.Context, c *client.Client, name string) error {
			s, err := pause(c, ctx, name)
			if err != nil {
				return err
			}
			return a.printSchedule(s)
		})
}

func (a *app) schedulesRunCommand() *cobra.Command {
	return a.oneSchedule(&cobra.Command{
		Use: "run NAME", Short: "Submit a schedule's task now and print its id",
		Long: "Submit a schedule's task now, in addition to its firings, and print its id. A paused\n" +
			"schedule can be run, too.",
	}, func(ctx context.Context, c *client.Client, name string) error {
		rec, err := c.RunSchedule(ctx, name)
		if err != nil {
			return err
		}
		return a.print(rec, func(w io.Writer) { fmt.Fprintln(w, rec.TaskID) })
	})
}
