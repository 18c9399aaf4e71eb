package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/clock"
)

const (
	// silence is how long `codefleet logs` without -f waits for the next event of a running task.
	silence = 500 * time.Millisecond
	// firstEventTime is how long it waits for the first event: longer than retryTime, so that an error is reported.
	firstEventTime = 3 * time.Second
	// logsTime is how long it prints events of a task that is not silent.
	logsTime = 5 * time.Second
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "logs ID",
		Short: "Print the stages and the output of a task",
		Long: "Print the stages and the output of a task: stages on standard error, output on the stream\n" +
			"that the program wrote to. With -o json each event is a JSON object on its own line.\n" +
			"With -f, the exit code is that of the task's status, as for run.",
		Args:              oneTask,
		ValidArgsFunction: a.completeTasks(),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			rec, err := c.Get(ctx, args[0])
			switch {
			case err != nil:
				return err
			case follow:
				rec, err = a.followLogs(ctx, c, rec)
				a.noteNoRun(rec)
				return cmp.Or(err, statusError(rec.Status))
			case rec.Run == 0 && !rec.Status.Terminal():
				note, _ := a.waitNote(ctx, c, rec)
				a.printNote(cmp.Or(note, "note: the task is "+string(rec.Status)))
				return nil
			case !rec.Status.Terminal():
				return a.logsSoFar(ctx, c, rec)
			}
			a.noteNoRun(rec)
			_, err = c.Watch(ctx, rec.TaskID, 0, a.showEvent)
			return err
		}),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false,
		"follow until the task has ended, even if the fleet does not respond for a while")
	return c
}

// noteNoRun prints a note if a task has ended without a run, and therefore has no events.
func (a *app) noteNoRun(rec client.Record) {
	if rec.Status.Terminal() && rec.Run == 0 {
		a.printNote("note: no run of the task began: it is " + string(rec.Status))
	}
}

// printNote prints a note on standard error, unless it is empty or the output is JSON. The commands in it get the flags
// of the command line.
func (a *app) printNote(note string) {
	if note != "" && a.output == "text" {
		fmt.Fprintln(a.stderr, a.withFlags(note))
	}
}

// followLogs prints the events of a task until it has ended, even if the fleet does not respond for a while.
// It returns the task's record.
func (a *app) followLogs(ctx context.Context, c *client.Client, rec client.Record) (client.Record, error) {
	down := outage{app: a}
	stopNote := afterClaimTime(func() {
		if note, _ := a.waitNote(ctx, c, rec); note != "" {
			fmt.Fprintln(a.stderr, note)
		}
	})
	defer stopNote()
	var last uint64
	var printErr error
	for {
		final, err := c.Watch(ctx, rec.TaskID, last, func(e client.Event) error {
			stopNote()
			down.end()
			last = e.Seq
			printErr = a.showEvent(e)
			return printErr
		})
		if err == nil {
			down.end()
		}
		if err == nil || printErr != nil || ctx.Err() != nil || !down.retryable(err) {
			return final, err
		}
		if clock.Sleep(ctx, cmp.Or(a.watchInterval, defaultWatchInterval)) != nil {
			return final, err
		}
	}
}

// logsSoFar prints the events that a running task has produced so far.
func (a *app) logsSoFar(ctx context.Context, c *client.Client, rec client.Record) error {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	// The times of the events are those of another host's clock, so they do not tell when to end.
	defer time.AfterFunc(logsTime, cancel).Stop()
	timer := time.AfterFunc(firstEventTime, cancel)
	defer timer.Stop()
	_, err := c.Watch(watch, rec.TaskID, 0, func(e client.Event) error {
		timer.Stop() // a slow terminal is not silence
		defer timer.Reset(silence)
		return a.showEvent(e)
	})
	if ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (a *app) showEvent(e client.Event) error {
	if a.output == "json" {
		return a.encodeJSON(e.Progress, false)
	}
	switch e.Stream {
	case "stdout":
		fmt.Fprint(a.stdout, e.Text)
	case "stderr":
		fmt.Fprint(a.stderr, e.Text)
	default:
		fmt.Fprintf(a.stderr, "%s run %d: %s\n", e.Time.Local().Format("15:04:05.000"), e.Run,
			strings.TrimSpace(e.Stage+" "+e.Text))
	}
	return nil
}
