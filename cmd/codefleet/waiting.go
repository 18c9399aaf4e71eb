package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/schemas"
)

// claimTime is the time within which a task is usually accepted, and within which it is usually claimed after that.
// After it, the command says what it waits for, such as a worker that serves the task's task pool.
const claimTime = 3 * time.Second

// afterClaimTime calls note if claimTime passes before stop is called. stop waits for a note that is being printed.
func afterClaimTime(note func()) (stop func()) {
	printed := make(chan struct{})
	timer := time.AfterFunc(claimTime, func() {
		defer close(printed)
		note()
	})
	return sync.OnceFunc(func() {
		if !timer.Stop() {
			<-printed
		}
	})
}

// maxExplained is for how many of its tasks a command asks the fleet what they wait for.
const maxExplained = 20

// noteWaits prints a note when one of a command's tasks waits, from claimTime on, until stop is called. Tasks that wait
// for the same reason share a note, unless it is an approval. tasks returns the tasks that the command waits for.
func (a *app) noteWaits(
	ctx context.Context, c *client.Client, line *progress, tasks func(context.Context) []client.Record,
) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	stderr := line.above(a.stderr)
	var noting sync.WaitGroup
	noting.Go(func() {
		noted := map[string]bool{}
		for clock.Sleep(ctx, claimTime) == nil {
			active := tasks(ctx)
			for _, rec := range active[:min(len(active), maxExplained)] {
				note, reason := a.waitNote(ctx, c, rec)
				if note != "" && !noted[reason] && ctx.Err() == nil {
					noted[reason] = true
					fmt.Fprintln(stderr, note)
				}
			}
		}
	})
	return func() { cancel(); noting.Wait() }
}

// waitNote returns a note that says what a task waits for, and the reason, which noteWaits compares. It returns "" if
// the task does not wait or nothing is known. Over NATS it is only known whether workers serve the task pool.
func (a *app) waitNote(ctx context.Context, c *client.Client, rec client.Record) (note, reason string) {
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	why, err := c.Why(ctx, rec.TaskID)
	switch {
	case err == nil && (why.Rule == schemas.WhyEnded || why.Rule == schemas.WhyRunning):
		return "", ""
	case err == nil && why.Rule == schemas.WhyApproval:
		note := "note: the task waits: " + whyText(why) + ": " + a.withFlags("codefleet approve "+rec.TaskID)
		return note, why.Rule + " " + rec.TaskID
	case err == nil:
		return "note: the task waits: " + whyText(why) + " (" + a.withFlags("codefleet why "+rec.TaskID) + ")", why.Rule
	}
	if rec.Pool == "" { // unknown
		return "", ""
	}
	fleet, err := c.Fleet(ctx)
	if err != nil || serves(fleet.Workers, rec.Pool) {
		return "", ""
	}
	return fmt.Sprintf("note: the task waits: no worker serves the task pool %q (%s)", rec.Pool,
			a.withFlags("codefleet workers")),
		schemas.WhyNoWorker
}

// whyText says why a task waits, and until when, if that is known.
func whyText(why client.Why) string {
	text := printable(why.Message)
	if !why.Until.IsZero() {
		text += ", until " + why.Until.Local().Format(time.DateTime)
	}
	return text
}

// noteStart reports whether the task is not due yet. If so, it prints a note to stderr.
func noteStart(stderr io.Writer, rec client.Record) bool {
	left := time.Until(rec.NotBefore)
	if left <= 0 || rec.Status.Terminal() {
		return false
	}
	fmt.Fprintf(stderr, "note: the task waits until %s, for %s\n",
		rec.NotBefore.Local().Format(time.DateTime), timeLeft(left))
	return true
}

// serves reports whether a worker serves the task pool.
func serves(workers []client.Worker, pool string) bool {
	return slices.ContainsFunc(workers, func(w client.Worker) bool { return slices.Contains(w.Pools, pool) })
}

// theTask returns a function for noteWaits that returns one task.
func theTask(rec client.Record) func(context.Context) []client.Record {
	return func(context.Context) []client.Record { return []client.Record{rec} }
}
