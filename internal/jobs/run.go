package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/schemas"
)

// run is a worker's handling of one message: from the decision what to do with it to its acknowledgement.
type run struct {
	submission
	w         *Worker
	m         *message
	wakeAfter func(lane, time.Duration) // makes the lane look for messages again after a delay

	mu      sync.Mutex // Job's methods may be called on any goroutine
	rec     storedRecord
	claimed bool            // whether this worker has changed the record to running
	ended   *schemas.Result // the whole result, if this run ended the task
	handler Handler         // returned by Prepare; nil means the worker's
	stop    func()          // returned by Prepare; nil if it was not called
}

// Job is one run of one task, as its Handler sees it.
type Job struct {
	Task       schemas.Task
	Record     schemas.Record // as it was claimed
	Event      event.Event    // as it was received; large data is only in Task
	FirstClaim time.Time      // when the first run was claimed; no effect of the task is older

	r       *run
	emitted bool
	emit    sync.Mutex
}

// job returns the Job for the run's handler.
func (r *run) job() *Job {
	return &Job{Task: r.task, Record: r.rec.Record, Event: r.event, FirstClaim: r.rec.StartedAt, r: r}
}

// prepare calls Prepare before a task's first claim, and only once if the claim is tried several times.
func (r *run) prepare(ctx context.Context) {
	if r.w.opts.Prepare != nil && r.stop == nil && r.rec.Run == 0 {
		r.handler, r.stop = r.w.opts.Prepare(ctx, r.rec.Record)
	}
}

// release ends the reads that Prepare started.
func (r *run) release() {
	if r.stop != nil {
		r.stop()
	}
}

// update changes the run's record and writes it. If another process changed the record first, update tries
// again, provided that the record still names this run. If not, nothing is written and the error is
// ErrLeaseLost, or errStale before the claim.
func (r *run) update(ctx context.Context, change func(*storedRecord)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		rec := r.rec
		change(&rec)
		err := r.w.c.swap(ctx, &rec)
		if err == nil {
			r.rec = rec
			return nil
		}
		if !errors.Is(err, errStale) && !errors.Is(err, errAmbiguous) {
			return err
		}
		fresh, readErr := r.reread(ctx)
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		same := sameRun(fresh, rec)
		switch {
		case same && fresh.Status == rec.Status && rec.Status != schemas.Running: // it was written after all
			rec.rev = fresh.rev
			r.rec = rec
			return nil
		case same && fresh.Status == schemas.Running:
			r.rec = fresh
		case !r.claimed:
			return errStale
		case r.w.leases.unfenced:
			r.rec.rev = fresh.rev
		default:
			return ErrLeaseLost
		}
	}
}

// reread reads the record until that succeeds or ctx ends.
func (r *run) reread(ctx context.Context) (storedRecord, error) {
	for {
		rec, err := r.w.c.loadLeader(ctx, r.tenant, r.id)
		if err == nil || errors.Is(err, ErrUnknownTask) {
			return rec, err
		}
		if clock.Sleep(ctx, 100*time.Millisecond) != nil {
			return storedRecord{}, err
		}
	}
}

// sameRun reports whether the latest run of two records is the same.
func sameRun(a, b storedRecord) bool {
	n, m := len(a.Attempts), len(b.Attempts)
	return a.Run == b.Run && a.Worker == b.Worker && n > 0 && m > 0 &&
		a.Attempts[n-1].StartedAt.Equal(b.Attempts[m-1].StartedAt)
}

// attempts counts the runs that are attempts. Runs that a shutdown ended, that could not begin, or after which the task
// was redriven are not.
func (r *run) attempts() int {
	n := 0
	for _, a := range r.rec.Attempts {
		if isAttempt(a) {
			n++
		}
	}
	return n
}

func (r *run) maxAttempts() int {
	if r.task.Retry != nil && r.task.Retry.Attempts > 0 {
		return r.task.Retry.Attempts
	}
	return r.w.opts.Attempts
}

// Outcomes of a run besides the terminal statuses.
const (
	outcomeLost        = "lost"
	outcomeError       = "error"
	outcomeDrained     = "drained"
	outcomeUnavailable = "unavailable" // see Unavailable
)

func isAttempt(a schemas.Attempt) bool {
	return !a.Redriven && a.Outcome != outcomeDrained && a.Outcome != outcomeUnavailable
}
