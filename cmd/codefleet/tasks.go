package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
)

func (a *app) tasksCommand() *cobra.Command {
	var status []string
	var limit int
	c := &cobra.Command{
		Use:   "tasks",
		Short: "List tasks, the latest first",
		Args:  noArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			if limit < 1 {
				return usage("--limit %d: at least 1", limit)
			}
			o := client.ListOptions{Limit: limit}
			for _, s := range status {
				if !slices.Contains(statuses(), s) {
					return usage("--status %s: one of %s", s, strings.Join(statuses(), ", "))
				}
				o.Status = append(o.Status, client.Status(s))
			}
			recs, err := c.List(ctx, o)
			if err != nil {
				return err
			}
			return a.print(orEmpty(recs), func(w io.Writer) {
				row(w, "TASK", "STATUS", "SUBMITTED", "TOOK", "WORKSPACE", "WHAT")
				for _, r := range recs {
					row(w, r.TaskID, r.Status, short(time.Since(r.SubmittedAt))+" ago", took(r), r.Workspace, what(r))
				}
			})
		}),
	}
	c.Flags().StringSliceVar(&status, "status", nil, "only tasks that are so (may be repeated)")
	c.Flags().IntVar(&limit, "limit", 100, "at most so many")
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func statuses() []string {
	var names []string
	for _, s := range []client.Status{
		client.Queued, client.Running, client.RetryWait, client.Succeeded, client.Failed,
		client.Blocked, client.Timeout, client.Cancelled, client.Expired, client.Dead,
	} {
		names = append(names, string(s))
	}
	return names
}

// took is how long a task has been with the fleet, or was.
func took(r client.Record) string {
	if r.EndedAt.IsZero() {
		return "-"
	}
	return short(r.EndedAt.Sub(r.SubmittedAt))
}

// what is the sentence that a task was given as, the beginning of its program, or why it failed.
func what(r client.Record) string {
	if r.Result != nil && r.Result.Error != nil {
		return clip(r.Result.Error.Message)
	}
	return clip(cmp.Or(r.Description, r.Code))
}

func clip(s string) string { return clipTo(48, s) }

// clipTo is the beginning of a text on one line, of so many characters at most.
func clipTo(width int, s string) string {
	s = oneLine(s)
	if runes := []rune(s); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return s
}

// orEmpty is a list that JSON shows as [] when there is nothing.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (a *app) deadCommand() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "dead",
		Short: "List tasks that were given up, and events that could not become one",
		Args:  noArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			if limit < 1 {
				return usage("--limit %d: at least 1", limit)
			}
			dead, err := c.Dead(ctx, limit)
			if err != nil {
				return err
			}
			return a.print(orEmpty(dead), func(w io.Writer) {
				row(w, "SEQ", "TASK", "WHEN", "CODE", "WHY")
				for _, d := range dead {
					id := d.TaskID
					if id == "" {
						id = "-"
					}
					row(w, d.Seq, id, short(time.Since(d.Time))+" ago", d.Error.Code, d.Error.Message)
				}
			})
		}),
	}
	c.Flags().IntVar(&limit, "limit", 100, "at most so many")
	return c
}

func (a *app) workersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "workers",
		Short: "List the workers that are there",
		Args:  noArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			f, err := c.Fleet(ctx)
			if err != nil {
				return err
			}
			return a.print(orEmpty(f.Workers), func(w io.Writer) {
				row(w, "WORKER", "HOST", "STATE", "BUSY", "POOLS", "SANDBOX", "UP", "VERSION")
				for _, x := range f.Workers {
					row(w, x.Name, x.Host, x.State, fmt.Sprintf("%d/%d", x.Busy, x.Slots), strings.Join(x.Pools, ","),
						sandboxText(x.Sandbox), short(time.Since(x.Started)), x.Version)
				}
			})
		}),
	}
}

func sandboxText(s map[string]any) string {
	if s["driver"] == nil || s["driver"] == "" { // it has not made a box yet
		return "-"
	}
	text := fmt.Sprint(s["driver"])
	if s["limits"] != nil {
		text += fmt.Sprintf(" (%v)", s["limits"])
	}
	return text
}

// pools is what `pool -o json` shows.
type pools struct {
	Pools []client.Backlog `json:"pools"`
	Boxes []boxes          `json:"boxes"`
}

// boxes are the sandboxes of one worker, by state.
type boxes struct {
	Worker       string               `json:"worker"`
	Boxes        map[string]int       `json:"boxes"`
	Pools        []string             `json:"pools"`
	Environments []client.Environment `json:"environments"`
}

func (a *app) poolCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pool",
		Short: "Show the work that waits in each pool, and each worker's warm boxes and environments",
		Args:  noArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			f, err := c.Fleet(ctx)
			if err != nil {
				return err
			}
			p := pools{Pools: withServed(f.Backlog, f.Workers), Boxes: []boxes{}}
			for _, w := range f.Workers {
				p.Boxes = append(p.Boxes, boxes{w.Name, w.Boxes, orEmpty(w.Pools), orEmpty(w.Environments)})
			}
			return a.print(p, func(w io.Writer) { showPools(w, p) })
		}),
	}
}

// withServed adds the pools that a worker serves and that have no work, by name.
func withServed(backlog []client.Backlog, workers []client.Worker) []client.Backlog {
	all := map[string]client.Backlog{}
	for _, w := range workers {
		for _, pool := range w.Pools {
			all[pool] = client.Backlog{Pool: pool}
		}
	}
	for _, b := range backlog {
		all[b.Pool] = b
	}
	return slices.SortedFunc(maps.Values(all), func(a, b client.Backlog) int { return cmp.Compare(a.Pool, b.Pool) })
}

func showPools(w io.Writer, p pools) {
	row(w, "POOL", "QUEUED", "RUNNING", "OLDEST", "", "")
	for _, b := range p.Pools {
		oldest := "-"
		if b.Queued > 0 {
			oldest = short(time.Duration(b.OldestAgeS * float64(time.Second)))
		}
		row(w, b.Pool, b.Queued, b.Running, oldest, "", "")
	}
	row(w)
	row(w, "WORKER", "WARMING", "READY", "BOUND", "ACQUIRED", "MAX")
	for _, b := range p.Boxes {
		row(w, b.Worker, b.Boxes["warming"], b.Boxes["ready"], b.Boxes["bound"], b.Boxes["acquired"], b.Boxes["max"])
	}
	row(w)
	row(w, "WORKER", "POOLS", "READY", "WAITING", "ENVIRONMENT")
	for _, b := range p.Boxes {
		for i, e := range b.Environments {
			row(w, b.Worker, strings.Join(poolsOf(b, i), ","), e.Boxes["ready"], waitingText(e), environmentText(e))
		}
	}
}

// poolsOf are the pools of a worker that have its i-th environment.
func poolsOf(b boxes, i int) []string {
	return slices.DeleteFunc(slices.Clone(b.Pools), func(pool string) bool {
		has := slices.IndexFunc(b.Environments, func(e client.Environment) bool { return e.Name == pool })
		return max(has, 0) != i
	})
}

// waitingText is how many tasks wait for boxes of an environment, and for what.
func waitingText(e client.Environment) string {
	if n := e.Boxes["waiting_memory"]; n > 0 {
		return fmt.Sprintf("%d (%d for memory)", e.Boxes["waiting"], n)
	}
	return strconv.Itoa(e.Boxes["waiting"])
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// environmentText is what an environment is, what it has, or why there is none of it.
func environmentText(e client.Environment) string {
	text := e.What
	if text == "" {
		text = "is prepared for its first task"
		if e.Boxes["warming"] > 0 {
			text = "being prepared"
		}
	}
	if n := len(e.Packages); n > 0 {
		text += ": " + clip(strings.Join(e.Packages, ", "))
	}
	if e.Restored {
		text += fmt.Sprintf(" (boxes are restored: %.0f ms)", e.MadeMS)
	}
	if e.Error != "" {
		text = e.Reason + ": " + oneLine(e.Error)
	}
	return text
}
