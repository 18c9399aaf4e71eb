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
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) tasksCommand() *cobra.Command {
	var status []string
	var limit int
	var watch bool
	c := &cobra.Command{
		Use:   "tasks",
		Short: "List the tasks that changed last",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			o := client.ListOptions{Limit: limit}
			for _, s := range status {
				if !slices.Contains(statuses(), s) {
					return usage("--status %s: want one of %s", s, strings.Join(statuses(), ", "))
				}
				o.Status = append(o.Status, client.Status(s))
			}
			if watch {
				return a.watchTasks(ctx, c, o)
			}
			recs, err := c.List(ctx, o)
			if err != nil {
				return err
			}
			return a.showTasks(recs)
		}),
	}
	c.Flags().StringSliceVar(&status, "status", nil, "only tasks with this `STATUS` (may be repeated)")
	limitFlag(c, &limit, "tasks")
	c.Flags().BoolVar(&watch, "watch", false,
		"list again every 2 seconds, until Ctrl-C, even if the fleet does not respond for a while")
	completeFlag(c, "status", statuses()...)
	return c
}

// defaultWatchInterval is the default of app.watchInterval.
const defaultWatchInterval = 2 * time.Second

// watchTasks lists tasks again and again until ctx ends, even if the fleet does not respond for a while.
func (a *app) watchTasks(ctx context.Context, c *client.Client, o client.ListOptions) error {
	down := outage{app: a}
	for {
		recs, err := c.List(ctx, o)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is how a watch ends
		}
		if err == nil {
			if a.output == "text" && isTerminal(a.stdout) {
				fmt.Fprint(unscreened(a.stdout), "\x1b[H\x1b[2J")
			}
			down.end()
			err = a.showTasks(recs)
		}
		if err != nil && !down.retryable(err) {
			return err
		}
		if clock.Sleep(ctx, cmp.Or(a.watchInterval, defaultWatchInterval)) != nil {
			return nil //nolint:nilerr // Ctrl-C is how a watch ends
		}
	}
}

func (a *app) showTasks(recs []client.Record) error {
	return list(a, recs, "TASK\tSTATUS\tSUBMITTED\tDURATION\tWORKSPACE\tSUMMARY", func(r client.Record) []any {
		return []any{
			r.TaskID, statusCell(r), duration(time.Since(r.SubmittedAt)) + " ago", taskDuration(r),
			r.Workspace, summary(r),
		}
	})
}

func statuses() []string {
	return mapSlice([]client.Status{
		client.Queued, client.Running, client.RetryWait, client.Succeeded, client.Failed,
		client.Blocked, client.Timeout, client.Cancelled, client.Expired, client.Dead,
	}, func(s client.Status) string { return string(s) })
}

// statusCell returns a task's status and, if the task is not due yet, when it will run.
func statusCell(r client.Record) string {
	if left := time.Until(r.NotBefore); r.Status == client.Queued && left > 0 {
		return "queued, runs in " + timeLeft(left)
	}
	return string(r.Status)
}

// taskDuration returns how long a task took from submission to its end, or "-" if it has not ended.
func taskDuration(r client.Record) string {
	if r.EndedAt.IsZero() {
		return "-"
	}
	return duration(r.EndedAt.Sub(r.SubmittedAt))
}

// summary returns the beginning of a task's error, description or program. It omits the error of a cancelled task,
// which adds nothing to the status.
func summary(r client.Record) string {
	if r.Status != client.Cancelled && r.Result != nil && r.Result.Error != nil {
		return cell(r.Result.Error.Message)
	}
	return cell(r.Summary())
}

// maxErrorCell is the maximum length of an error in a table. JSON output has the whole text.
const maxErrorCell = 160

// cell truncates text to the width of a table column.
func cell(s string) string { return text.Truncate(text.OneLine(s), 48) }

// orEmpty returns an empty list for nil, because JSON encodes nil as null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (a *app) deadCommand() *cobra.Command {
	var limit int
	var cause string
	c := &cobra.Command{
		Use:   "dead",
		Short: "List dead-lettered tasks and events, and redrive tasks",
		Long: "List the tasks that the fleet could not run and the events that it could not accept.\n" +
			"After the cause is removed, `codefleet dead redrive` queues tasks again. `codefleet dead show`\n" +
			"shows the attempts and the last output of a task.",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			dead, err := c.DeadWithCause(ctx, cause, limit)
			if err != nil {
				return err
			}
			if len(dead) == 0 {
				a.noteUnknownCause(cause)
			}
			return list(a, dead, "SEQ\tTASK\tWHEN\tCODE\tERROR", func(d client.DeadTask) []any {
				return []any{
					d.Seq, cmp.Or(d.TaskID, "-"), duration(time.Since(d.Time)) + " ago", d.Error.Code,
					text.Truncate(text.OneLine(d.Error.Message), maxErrorCell),
				}
			})
		}),
	}
	limitFlag(c, &limit, "tasks and events")
	c.Flags().StringVar(&cause, "cause", "", "only those with this error `CODE`")
	return listGroup(c, a.deadShowCommand(), a.redriveCommand())
}

// noteUnknownCause prints a note if cause, which matched no dead-lettered task, is not an error code of the fleet.
func (a *app) noteUnknownCause(cause string) {
	if _, known := errcode.Lookup(cause); cause != "" && !known {
		a.printNote("note: the fleet has no error code " + cause + " (codefleet dead without --cause lists the codes)")
	}
}

func (a *app) redriveCommand() *cobra.Command {
	var all bool
	var cause string
	c := &cobra.Command{
		Use:   "redrive ID... | --all | --cause CODE",
		Short: "Queue dead-lettered tasks again",
		Long: "Queue dead-lettered tasks again. A task keeps its id, its program and its workspace, and has\n" +
			"all its attempts again. Tool calls that it has completed are not repeated.",
		Example: "  codefleet dead\n" +
			"  codefleet dead redrive a2wntt52fwmbq3ezlg6zelfsfu\n" +
			"  codefleet dead redrive --all\n" +
			"  codefleet dead redrive --cause disk_full",
		Args: func(_ *cobra.Command, args []string) error {
			if all && cause != "" || (all || cause != "") == (len(args) > 0) {
				return usage("redrive: want task ids, --all or --cause").try("codefleet dead")
			}
			return nil
		},
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			redriven, err := redrive(ctx, c, cause, args)
			if err != nil && len(redriven) == 0 {
				return err
			}
			if len(redriven) == 0 {
				a.noteUnknownCause(cause)
			}
			return cmp.Or(err, a.showRedriven(redriven))
		}),
	}
	c.Flags().BoolVar(&all, "all", false, "all dead-lettered tasks, the oldest first")
	c.Flags().StringVar(&cause, "cause", "", "all with this error `CODE` (codefleet dead), the oldest first")
	return c
}

// redrive redrives all dead-lettered tasks with a cause, or if the cause is empty, the tasks with the given ids, or all
// dead-lettered tasks if there are no ids. It stops at the first error.
func redrive(
	ctx context.Context, c *client.Client, cause string, ids []string,
) (redriven []client.RedrivenTask, err error) {
	add := func(t client.RedrivenTask) error {
		redriven = append(redriven, t)
		return nil
	}
	switch {
	case cause != "":
		err = c.RedriveWithCause(ctx, cause, add)
		return redriven, err
	case len(ids) == 0:
		err = c.RedriveAll(ctx, add)
		return redriven, err
	}
	for _, id := range ids {
		rec, err := c.Redrive(ctx, id)
		if err != nil {
			return redriven, err
		}
		redriven = append(redriven, client.RedrivenTask{TaskID: rec.TaskID, Status: rec.Status})
	}
	return redriven, nil
}

// showRedriven prints the outcome for each task, and returns an error if a task was not redriven.
func (a *app) showRedriven(redriven []client.RedrivenTask) error {
	refused := 0
	for _, t := range redriven {
		if t.Error != "" {
			refused++
		}
	}
	const header = "TASK\tSTATUS\tERROR"
	err := listOr(a, redriven, "no dead-lettered tasks", header, func(t client.RedrivenTask) []any {
		return []any{t.TaskID, cmp.Or(string(t.Status), "not redriven"), cmp.Or(t.Error, "-")}
	})
	if err == nil && refused > 0 {
		err = &failure{
			code:    errcode.ExitFailed,
			message: fmt.Sprintf("%d of %s not redriven", refused, text.Count(len(redriven), "task")),
			hint:    "submit those tasks again",
		}
	}
	return err
}

func sandboxText(s map[string]any) string {
	if s["driver"] == nil || s["driver"] == "" { // the worker has not created a box yet
		return "-"
	}
	text := fmt.Sprint(s["driver"])
	if s["limits"] != nil {
		text += fmt.Sprintf(" (%v)", s["limits"])
	}
	return text
}

// pools is what `codefleet pool -o json` prints.
type pools struct {
	Pools []client.Backlog `json:"pools"`
	Boxes []workerBoxes    `json:"boxes"`
}

// workerBoxes are the boxes, task pools and environments of one worker.
type workerBoxes struct {
	Worker       string               `json:"worker"`
	Boxes        map[string]int       `json:"boxes"` // by state
	Pools        []string             `json:"pools"`
	Environments []client.Environment `json:"environments"`
}

func (a *app) poolCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pool",
		Short: "Show the backlog of each task pool, and the boxes and environments of each worker",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			f, err := c.Fleet(ctx)
			if err != nil {
				return err
			}
			p := pools{Pools: addIdlePools(f.Backlog, f.Workers), Boxes: []workerBoxes{}}
			for _, w := range f.Workers {
				p.Boxes = append(p.Boxes, workerBoxes{w.Name, w.Boxes, orEmpty(w.Pools), orEmpty(w.Environments)})
			}
			return a.print(p, func(w io.Writer) { showPools(w, p) })
		}),
	}
}

// addIdlePools adds an empty backlog for each task pool that workers serve but that has none. It sorts by name.
func addIdlePools(backlog []client.Backlog, workers []client.Worker) []client.Backlog {
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
			oldest = duration(time.Duration(b.OldestAgeS * float64(time.Second)))
		}
		row(w, b.Pool, b.Queued, b.Running, oldest, "", "")
	}
	row(w)
	row(w, "WORKER", "WARMING", "READY", "BOUND", "ACQUIRED", "IDLE MB")
	for _, b := range p.Boxes {
		row(w, b.Worker, b.Boxes["warming"], b.Boxes["ready"], b.Boxes["bound"], b.Boxes["acquired"],
			fmt.Sprintf("%d/%d", b.Boxes["idle_memory_mb"], b.Boxes["idle_memory_mb_total"]))
	}
	row(w)
	row(w, "WORKER", "POOLS", "READY", "WAITING", "ENVIRONMENT")
	for _, b := range p.Boxes {
		for i, e := range b.Environments {
			row(w, b.Worker, strings.Join(poolsOf(b, i), ","), e.Boxes["ready"], waitingText(e), environmentText(e))
		}
	}
}

// poolsOf returns the task pools of a worker that use its i-th environment. A task pool without its own environment
// uses the first one.
func poolsOf(b workerBoxes, i int) []string {
	return slices.DeleteFunc(slices.Clone(b.Pools), func(pool string) bool {
		index := slices.IndexFunc(b.Environments, func(e client.Environment) bool { return e.Name == pool })
		return max(index, 0) != i
	})
}

// waitingText returns how many tasks wait for a box with this environment, and how many of these wait for memory.
func waitingText(e client.Environment) string {
	if n := e.Boxes["waiting_memory"]; n > 0 {
		return fmt.Sprintf("%d (%d for memory)", e.Boxes["waiting"], n)
	}
	return strconv.Itoa(e.Boxes["waiting"])
}

// environmentText describes an environment, or why it has no boxes.
func environmentText(e client.Environment) string {
	if e.Error != "" {
		return e.Reason + ": " + text.Truncate(text.OneLine(e.Error), maxErrorCell) // pip's errors are long
	}
	description := e.What
	if description == "" {
		description = "prepared when its first task arrives"
		if e.Boxes["warming"] > 0 {
			description = "being prepared"
		}
	}
	if len(e.Packages) > 0 {
		description += ": " + cell(strings.Join(e.Packages, ", "))
	}
	if e.Restored {
		description += fmt.Sprintf(" (boxes restored from a snapshot, the newest in %.0f ms)", e.MadeMS)
	}
	return description
}
