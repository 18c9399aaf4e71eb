package jobs

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

const (
	defaultBackoff      = time.Second
	maxBackoff          = 10 * time.Minute
	maxUnavailableDelay = 30 * time.Second
	maxShortDelay       = time.Second // longer delays are spent in DELAYED

	// maxDelay bounds the time in DELAYED: the server counts nanoseconds, and would publish a message for the year 2300
	// at once. A message that is due before its task is delayed again.
	maxDelay = 100 * 365 * 24 * time.Hour
)

// requeue returns a task to the queue: at once after a shutdown, with a delay after an error of the fleet.
func (r *run) requeue(ctx context.Context, l *lease, cause, err error) error {
	switch {
	case errors.Is(cause, ErrDraining):
		if err := r.update(ctx, toRetryWait(outcomeDrained, "")); err != nil {
			return err
		}
		l.release()
		if err := r.m.requeue(r.w.c, 0); err != nil {
			return err
		}
		return r.w.c.nc.Publish(wakePrefix+r.pool+"."+r.priority+"."+r.tenant, nil)
	case isUnavailable(err):
		return r.retry(ctx, l, r.unavailableDelay(), outcomeUnavailable, err.Error())
	default:
		return r.retry(ctx, l, r.backoff(), outcomeError, textWithCode(err))
	}
}

// textWithCode returns the text of an error of the fleet, prefixed with its code if it has one.
func textWithCode(err error) string {
	if detailed, ok := errors.AsType[*detailedError](err); ok {
		return detailed.details.Code + ": " + err.Error()
	}
	return err.Error()
}

// retry requeues a task with a delay. During a short delay, its message stays in TASKS and counts against the
// tenant's cap.
func (r *run) retry(ctx context.Context, l *lease, delay time.Duration, outcome, text string) error {
	r.w.c.tel.retried.Add(ctx, 1, attrPool(r.pool))
	r.w.log.InfoContext(ctx, "task requeued", "task_id", r.id, "run", r.rec.Run, "outcome", outcome, "delay", delay)
	if delay > maxShortDelay {
		defer l.release()
		return r.delayUntil(ctx, time.Now().Add(delay), toRetryWait(outcome, text))
	}
	if err := r.update(ctx, toRetryWait(outcome, text)); err != nil {
		return err
	}
	l.release()
	r.wakeAfter(r.lane, delay)
	return r.m.requeue(r.w.c, delay)
}

// toRetryWait returns the change that ends a run and puts the record into retry_wait.
func toRetryWait(outcome, text string) func(*storedRecord) {
	now := time.Now().UTC()
	return func(rec *storedRecord) {
		rec.Status, rec.LeaseUntil = schemas.RetryWait, time.Time{}
		endRun(rec, now, outcome, text)
	}
}

// delayUntil stores the message in DELAYED, changes the record, and acknowledges. A crash in between leaves an extra
// message in DELAYED, which will not own the record.
//
// Tasks that run later wait in DELAYED, since in TASKS they would count against the tenant's cap. When a task is
// due, the server publishes its message on due.…, and a worker moves it to TASKS (promote).
func (r *run) delayUntil(ctx context.Context, at time.Time, change func(*storedRecord)) error {
	if _, err := r.w.c.delay(ctx, r.lane, r.rec, r.m.msg.Header, r.m.msg.Data, at); err != nil {
		return err
	}
	err := r.update(ctx, func(rec *storedRecord) {
		change(rec)
		rec.QueueSeq = 0
	})
	if err != nil {
		return err
	}
	if err := r.m.acknowledge(ctx, r.w.c); err != nil {
		return err
	}
	if r.rec.CancelRequested { // while the run ended: nothing else would bring the task back before the delay ends
		if err := r.w.c.promoteNow(ctx, r.rec); err != nil {
			r.w.log.DebugContext(ctx, "delayed task not promoted", "task_id", r.id, "error", err)
		}
	}
	return nil
}

// delay stores a message in DELAYED that returns the task to its lane at the given time. It returns the message's
// sequence.
func (c *Client) delay(
	ctx context.Context, l lane, rec storedRecord, header nats.Header, data []byte, at time.Time,
) (uint64, error) {
	msg := &nats.Msg{
		Subject: delayedSubject(rec.Tenant, rec.TaskID, rec.Run), Header: keptHeaders(header), Data: data,
	}
	msg.Header.Set(runHeader, strconv.Itoa(rec.Run))
	msg.Header.Set(waitHeader, crand.Text())
	if latest := time.Now().Add(maxDelay); at.After(latest) {
		at = latest
	}
	// nats.go has an option for this header, but it drops fractions of a second.
	msg.Header.Set("Nats-Schedule", "@at "+at.UTC().Format(time.RFC3339Nano))
	msg.Header.Set("Nats-Schedule-Target", "due."+strings.TrimPrefix(l.subject(), "tasks.")+"."+rec.TaskID)
	ack, err := c.js.PublishMsg(ctx, msg)
	if err != nil {
		return 0, fmt.Errorf("delay task %s: %w", rec.TaskID, err)
	}
	return ack.Sequence, nil
}

// backoff returns the delay of a retry: it doubles with each attempt.
func (r *run) backoff() time.Duration {
	base := defaultBackoff
	if r.task.Retry != nil && r.task.Retry.BackoffS > 0 {
		base = time.Duration(r.task.Retry.BackoffS * float64(time.Second))
	}
	return jittered(doubled(base, r.attempts()-1))
}

// unavailableDelay returns the delay after a run that could not begin: it doubles with each such run in a row.
func (r *run) unavailableDelay() time.Duration {
	n := 0
	for _, a := range slices.Backward(r.rec.Attempts) {
		if a.Redriven || a.Outcome != outcomeUnavailable && a.Outcome != "" { // the latest run has no outcome yet
			break
		}
		n++
	}
	return jittered(min(maxUnavailableDelay, doubled(defaultBackoff, n)))
}

// jittered returns a random delay from d/2 to d, so that tasks that failed together do not return together.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // not a secret
}

// doubled returns base doubled n times, but at most maxBackoff, or base if that is longer.
func doubled(base time.Duration, n int) time.Duration {
	limit := max(maxBackoff, base)
	for range n {
		if base > limit/2 { // further doubling could overflow
			return limit
		}
		base *= 2
	}
	return base
}
