package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) triggersCommand() *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "triggers",
		Short: "Submit tasks for the events that arrive",
		Long: "Submit tasks for the events that arrive: CloudEvents that are posted to /v1/events or published\n" +
			"on events.TENANT, and the results of tasks (codefleet.task.result.v1). docs/automation.md has the\n" +
			"details.",
	},
		a.triggersAddCommand(), a.triggersListCommand(), a.triggersShowCommand(), a.triggersRemoveCommand(),
		a.triggersTestCommand())
}

func (a *app) triggersAddCommand() *cobra.Command {
	var spec client.TriggerSpec
	flags := taskFlags{example: "codefleet triggers add invoice --type order.created --file invoice.py"}
	c := &cobra.Command{
		Use:   "add NAME --type TYPE TASK|- | --code TEXT | --file FILE|-",
		Short: "Add a trigger",
		Long: "Add a trigger that submits a task for each event that it matches. The program finds the\n" +
			"event's data in its variable named inputs. A * at the end of a type or source matches any rest.\n" +
			"The filter is a CEL condition over the event's attributes and its data. Adding the same\n" +
			"trigger again changes nothing.",
		Example: "  codefleet triggers add invoice --type order.created --filter 'data.total > 100' \\\n" +
			"      --file invoice.py\n" +
			"  codefleet triggers add failed --type codefleet.task.result.v1 \\\n" +
			"      --filter 'data.status == \"failed\"' --code 'print(inputs[\"task_id\"])'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || spec.Type == "" {
				return usage("triggers add: want a name and --type").
					try(flags.example)
			}
			return nil
		},
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			task, err := flags.submission(args[1:], a.stdin)
			if err != nil {
				return err
			}
			spec.Name = args[0]
			t, err := c.AddTrigger(ctx, spec, task)
			if err != nil {
				return err
			}
			return a.printTrigger(t)
		}),
	}
	c.Flags().StringVar(&spec.Type, "type", "", "`TYPE` of the events, such as order.created or 'order.*'")
	c.Flags().StringVar(&spec.Source, "source", "", "`SOURCE` of the events (default: any)")
	c.Flags().StringVar(&spec.Filter, "filter", "", "`CONDITION` in CEL over event and data, such as 'data.total > 100'")
	flags.declareTask(c)
	a.completeTaskFlags(c)
	return c
}

func (a *app) triggersListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the triggers",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			triggers, err := c.Triggers(ctx)
			if err != nil {
				return err
			}
			const header = "NAME\tTYPE\tSOURCE\tFILTER\tLAST ERROR"
			return listOr(a, triggers, "no triggers", header, func(t client.Trigger) []any {
				return []any{
					t.Name, t.Type, orDash(t.Source), orDash(text.Truncate(t.Filter, 60)),
					orDash(text.Truncate(t.LastError, 60)),
				}
			})
		}),
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) printTrigger(t client.Trigger) error {
	return a.print(t, func(w io.Writer) {
		row(w, "name", t.Name)
		row(w, "type", t.Type)
		row(w, "source", orDash(t.Source))
		row(w, "filter", orDash(t.Filter))
		row(w, "last error", orDash(t.LastError))
		row(w, "task", text.Truncate(compact(t.Task), 200))
	})
}

// oneTrigger makes c a command with the name of a trigger as its argument.
func (a *app) oneTrigger(
	c *cobra.Command, fn func(ctx context.Context, c *client.Client, name string) error,
) *cobra.Command {
	return a.named(c, "trigger", fn, func(ctx context.Context, c *client.Client) []cobra.Completion {
		triggers, _ := c.Triggers(ctx)
		return mapSlice(triggers, func(t client.Trigger) cobra.Completion {
			return cobra.CompletionWithDesc(t.Name, t.Type)
		})
	})
}

func (a *app) triggersShowCommand() *cobra.Command {
	return a.oneTrigger(&cobra.Command{Use: "show NAME", Short: "Show a trigger"},
		func(ctx context.Context, c *client.Client, name string) error {
			t, err := c.Trigger(ctx, name)
			if err != nil {
				return err
			}
			return a.printTrigger(t)
		})
}

func (a *app) triggersRemoveCommand() *cobra.Command {
	return a.oneTrigger(&cobra.Command{
		Use: "rm NAME", Short: "Remove a trigger",
		Long: "Remove a trigger. Tasks that it has submitted continue.",
	}, func(ctx context.Context, c *client.Client, name string) error {
		if err := c.RemoveTrigger(ctx, name); err != nil {
			return err
		}
		return a.print(map[string]string{"removed": name}, func(w io.Writer) {
			fmt.Fprintln(w, "removed trigger", printable(name))
		})
	})
}

func (a *app) triggersTestCommand() *cobra.Command {
	var file string
	var send bool
	c := a.oneTrigger(&cobra.Command{
		Use: "test NAME --event FILE|-", Short: "Show what a trigger does with an event",
		Long: "Show whether a trigger matches a CloudEvent in JSON, and the task that it leads to. Nothing\n" +
			"is submitted, except with --send: then the event is also sent to the fleet.",
		Example: "  codefleet triggers test invoice --event order.json",
	}, func(ctx context.Context, c *client.Client, name string) error {
		if file == "" {
			return usage("triggers test: want --event").try("codefleet triggers test " + name + " --event event.json")
		}
		event, err := readText("--event "+file, file, a.stdin)
		if err != nil {
			return err
		}
		result, err := c.TestTrigger(ctx, name, []byte(event))
		if err == nil && send {
			_, err = c.SendEvent(ctx, []byte(event))
		}
		if err != nil {
			return err
		}
		return a.print(result, func(w io.Writer) {
			row(w, "matches", result.Matches)
			row(w, "reason", orDash(result.Reason))
			row(w, "task id", orDash(result.TaskID))
			if result.Task != nil {
				row(w, "task", text.Truncate(compact(result.Task), 200))
			}
		})
	})
	c.Flags().StringVar(&file, "event", "", "`FILE` with a CloudEvent in JSON, or - for standard input")
	c.Flags().BoolVar(&send, "send", false, "also send the event to the fleet")
	return c
}
