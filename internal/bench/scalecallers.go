package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/clock"
)

// settleTime is the time from the last submission until the memory is read.
const settleTime = 3 * time.Second

// waitingCallers measures the memory of `codefleet up` for callers over HTTP, each of which submits a task and waits
// for its end in the same request. The fleet is paused, so that no task ends.
func (b *Bench) waitingCallers(ctx context.Context, callers int) error {
	f, err := b.startPaused(ctx, b.NewDir(), callers+submitters)
	if err != nil {
		return err
	}
	return errors.Join(b.holdCallers(ctx, f, callers), f.stop())
}

func (b *Bench) holdCallers(ctx context.Context, f *pausedFleet, callers int) error {
	// What the process allocates only once, for its first submissions, is not measured.
	var warm errgroup.Group
	for range submitters {
		warm.Go(func() error {
			_, err := f.c.Submit(ctx, client.Submission{Task: client.Task{Code: SmallestProgram}})
			return err
		})
	}
	if err := warm.Wait(); err != nil {
		return err
	}
	before := Resident(f.PID())
	held, release := context.WithCancel(ctx)
	defer release()
	calls, each := errgroup.WithContext(held)
	for range callers {
		calls.Go(func() error {
			_, err := f.c.Run(each, client.Submission{Task: client.Task{Code: SmallestProgram}})
			if held.Err() != nil {
				return nil //nolint:nilerr // the measurement has ended
			}
			return err
		})
	}
	if err := b.awaitQueued(each, f, callers+submitters); err != nil {
		release()
		return errors.Join(err, calls.Wait())
	}
	grown := Resident(f.PID()) - before
	release()
	b.AtMost("G14", fmt.Sprintf("memory of `up` for each of %d callers that wait with a POST request", callers),
		grown*1024/float64(callers), 100, "KB")
	return calls.Wait()
}

// awaitQueued waits until a number of tasks are queued, and then for settleTime.
func (b *Bench) awaitQueued(ctx context.Context, f *pausedFleet, tasks int) error {
	for {
		load, err := f.q.Backlog(ctx)
		if err != nil {
			return err
		}
		var queued int
		for _, pool := range load {
			queued += pool.Queued
		}
		b.Progress(fmt.Sprintf("scale: %d of %d tasks are queued", queued, tasks))
		if queued >= tasks {
			return clock.Sleep(ctx, settleTime)
		}
		if err := clock.Sleep(ctx, settleTime/10); err != nil {
			return err
		}
	}
}
