package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "why ID",
		Short: "Show what a task waits for",
		Long: "Show what a task waits for: the reason, how many tasks of its tenant, task pool and priority\n" +
			"start before it, and when it will start, if that can be estimated.",
		Args:              oneTask,
		ValidArgsFunction: a.completeTasks(client.Queued, client.Running, client.RetryWait),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			why, err := c.Why(ctx, args[0])
			if err != nil {
				return err
			}
			next := whyNext[why.Rule]
			if id, err := c.WhoAmI(ctx); err != nil || !slices.Contains(id.Scopes, schemas.ScopeOperator) {
				next = cmp.Or(whyNextTenant[why.Rule], next)
			}
			return a.print(why, func(w io.Writer) { showWhy(w, why, a.withFlags(next)) })
		}),
	}
}

// showWhy prints what a task waits for, and what to do about it.
func showWhy(w io.Writer, why client.Why, next string) {
	row(w, "task", why.TaskID)
	row(w, "status", why.Status)
	row(w, "rule", why.Rule)
	row(w, "because", why.Message)
	if why.Ahead != nil {
		row(w, "ahead", fmt.Sprintf("%d of the same tenant, task pool and priority", *why.Ahead))
	}
	if !why.Until.IsZero() {
		left := duration(time.Until(why.Until))
		row(w, "until", fmt.Sprintf("%s (in %s)", why.Until.Local().Format(time.DateTime), left))
	}
	if why.EstimateS != nil {
		row(w, "starts", "in about "+duration(time.Duration(*why.EstimateS*float64(time.Second))))
	}
	if next != "" {
		row(w, "try", next)
	}
}

// whyNext says what to do, by the reason why a task waits.
var whyNext = map[string]string{
	schemas.WhyApproval: "codefleet approvals, then codefleet approve",
	schemas.WhyMemory:   "wait, or increase execution.memory_mb_total",
	schemas.WhySandbox:  "codefleet pool",
	schemas.WhyNoKey:    "configure the key of the workspace on every worker",
	schemas.WhyPaused:   "codefleet pause  (lists what is paused), then codefleet resume",
	schemas.WhyNoWorker: "codefleet workers, then start a worker that serves the task pool",
	schemas.WhyCap:      "wait, or ask an operator to raise the tenant's max_running",
	schemas.WhyTurn:     "wait, or add workers",
}

// whyNextTenant replaces the rows of whyNext that only operators can follow.
var whyNextTenant = map[string]string{
	schemas.WhyMemory:   "wait, or ask an operator for more memory",
	schemas.WhySandbox:  "wait, or ask an operator for more workers",
	schemas.WhyNoKey:    "ask an operator to configure the key of the workspace on every worker",
	schemas.WhyPaused:   "wait, or ask an operator to resume it",
	schemas.WhyNoWorker: "ask an operator for a worker that serves the task pool",
	schemas.WhyTurn:     "wait, or ask an operator for more workers",
}

// targets describes the argument of pause and resume.
const targets = "TARGET is fleet, pool/NAME or tenant/NAME."

func (a *app) pauseCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "pause [TARGET]",
		Short: "Stop starting tasks of a tenant, a task pool or the fleet, or list what is paused",
		Long: "Stop starting tasks of a tenant, a task pool or the whole fleet, until `codefleet resume`. Running\n" +
			"tasks continue, and tasks are still accepted. " + targets + "\nWithout TARGET, list what is paused.",
		Example: "  codefleet pause tenant/acme --reason \"invoice overdue\"\n" +
			"  codefleet pause pool/gpu\n" +
			"  codefleet pause",
		Args: atMostOne,
		ValidArgsFunction: cobra.FixedCompletions(
			[]string{"fleet", "pool/", "tenant/"}, cobra.ShellCompDirectiveNoSpace),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 0 && reason != "" {
				return usage("pause: --reason needs a target").try("codefleet pause --help")
			}
			if len(args) == 0 {
				return a.listPauses(ctx, c)
			}
			if err := checkTarget("pause", args[0]); err != nil {
				return err
			}
			p, err := c.Pause(ctx, args[0], reason)
			if err != nil {
				return err
			}
			a.noteUnknownTarget(ctx, c, args[0])
			return a.print(p, func(w io.Writer) {
				fmt.Fprintf(w, "paused %s; end it with: %s\n", p.Target, a.withFlags("codefleet resume "+p.Target))
			})
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "`TEXT` for the owners of the tasks that wait (codefleet why)")
	return c
}

// noteUnknownTarget prints a note if a paused task pool has no workers and no tasks, or if a paused tenant is unknown,
// because its name may be mistyped.
func (a *app) noteUnknownTarget(ctx context.Context, c *client.Client, target string) {
	kind, name, _ := strings.Cut(target, "/")
	switch kind {
	case "pool":
		fleet, err := c.Fleet(ctx)
		hasTasks := slices.ContainsFunc(fleet.Backlog, func(b client.Backlog) bool { return b.Pool == name })
		if err == nil && !hasTasks && !serves(fleet.Workers, name) {
			a.printNote("note: no worker serves the task pool " + name + ", and it has no tasks (codefleet workers)")
		}
	case "tenant":
		a.noteUnknownTenant(ctx, c, name)
	}
}

// noteUnknownTenant prints a note if the fleet does not know a tenant, because its name may be mistyped.
func (a *app) noteUnknownTenant(ctx context.Context, c *client.Client, name string) {
	all, err := c.Tenants(ctx)
	if err == nil && !slices.ContainsFunc(all, func(t client.Tenant) bool { return t.Name == name }) {
		a.printNote("note: the fleet has no tenant " + name + " (codefleet tenants)")
	}
}

func checkTarget(command, target string) error {
	if err := schemas.CheckTarget(target); err != nil {
		return usage("%s: %v", command, err).try("codefleet " + command + " --help")
	}
	return nil
}

func (a *app) listPauses(ctx context.Context, c *client.Client) error {
	list, err := c.Pauses(ctx)
	if err != nil {
		return err
	}
	return listOr(a, list, "nothing is paused", "TARGET\tSINCE\tBY\tREASON", func(p client.Pause) []any {
		return []any{p.Target, ago(p.Since), cmp.Or(p.By, "-"), cmp.Or(p.Reason, "-")}
	})
}

func (a *app) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume TARGET",
		Short: "End a pause",
		Long:  "End the pause of a tenant, a task pool or the fleet. " + targets,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("resume: want one target, got %d", len(args)).try("codefleet pause")
			}
			return checkTarget("resume", args[0])
		},
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			was, err := c.Resume(ctx, args[0])
			if err != nil {
				return err
			}
			out := map[string]any{"target": args[0], "was_paused": was}
			return a.print(out, func(w io.Writer) {
				if was {
					fmt.Fprintf(w, "resumed %s\n", args[0])
				} else {
					fmt.Fprintf(w, "%s was not paused\n", args[0])
				}
			})
		}),
	}
}
