package automation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/cron"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

const (
	onTime     = time.Minute            // a later firing counts as missed
	maxMissed  = 100                    // most firings of a schedule that take place at once; older ones are dropped
	clockSlack = time.Minute            // if the fleet's time goes back by more, it was wrong before
	spread     = 100 * time.Millisecond // longest random delay of a process, so that most find the work done
	resync     = 30 * time.Second       // between readings of the fleet's time
	retryDelay = 5 * time.Second        // after an error
	atOnce     = 16                     // firings, or advances of workflow runs, of one process at the same time
)

// fireDue fires the schedules that are due by the fleet's time.
func (s *Service) fireDue(ctx context.Context, store *jobs.Automations, c *cache) {
	now, err := s.now(ctx, store)
	if err != nil {
		return // followSchedules reads the time again, and returns the error
	}
	c.sync(now)
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, k := range c.dueNow() {
		group.Go(func() error {
			doc, rev, err := s.fire(ctx, store, k.tenant, k.name, now)
			switch {
			case errors.Is(err, jobs.ErrAutomationConflict): // the watch will report the other change
				c.postpone(k, retryDelay)
			case err != nil && ctx.Err() == nil:
				s.log.WarnContext(ctx, "schedule not fired", "tenant", k.tenant, "schedule", k.name, "error", err)
				c.postpone(k, retryDelay)
			case err == nil:
				c.setNext(k, doc.Next, rev)
			}
			return nil
		})
	}
	_ = group.Wait() // returns nil
}

// fire submits the tasks of all firings that are due at now, and then stores that they took place. If it is called
// twice for the same firing, by any process, the task is submitted once. After an error it may be called again.
func (s *Service) fire(
	ctx context.Context, store *jobs.Automations, tenant, name string, now time.Time,
) (schemas.Schedule, uint64, error) {
	doc, rev, err := readSchedule(ctx, store, tenant, name)
	if _, gone := errors.AsType[*jobs.RefusedError](err); gone {
		return schemas.Schedule{}, rev, nil
	}
	if err != nil || doc.Paused {
		return doc, rev, err
	}
	spec, err := specOf(doc.ScheduleSpec)
	if err != nil {
		return doc, rev, fmt.Errorf("schedule %s: %w", name, err)
	}
	at := now.Add(-delayOf(tenant, doc.ScheduleSpec))
	if doc.Handled.After(at.Add(max(clockSlack, time.Duration(doc.JitterS)*time.Second))) {
		// The fleet's time was wrong, and is correct now: the schedule continues from there.
		s.log.WarnContext(ctx, "schedule moved back because the clock went back", "tenant", tenant, "schedule", name,
			"from", doc.Handled, "to", at)
		doc.Handled = at // firings of later times are still to come
		rev, err = writeSchedule(ctx, store, tenant, doc, rev)
		return withNext(tenant, doc), rev, err
	}
	due := plan(spec, doc, at)
	if len(due.handled) == 0 {
		return withNext(tenant, doc), rev, nil
	}
	outcomes := make([]string, len(due.firings))
	for i, t := range due.firings {
		if outcomes[i], err = s.submitFiring(ctx, tenant, &doc, t); err != nil {
			return doc, rev, err
		}
	}
	doc.Handled = due.handled[len(due.handled)-1].UTC()
	if rev, err = writeSchedule(ctx, store, tenant, doc, rev); err == nil { // only one process gets here
		for i, t := range due.firings {
			s.queue.CountAutomation(ctx, kindSchedule, outcomes[i])
			s.queue.RecordLate(ctx, at.Sub(t))
		}
	}
	return withNext(tenant, doc), rev, err
}

// Outcomes of actions in the metrics.
const (
	outcomeDone    = "done"
	outcomeRefused = "refused"
	outcomeFailed  = "failed"
)

// planned has the firing times after the last one that was handled, up to now, and those of them that take place.
type planned struct{ handled, firings []time.Time }

// plan applies the schedule's policy for missed firings.
func plan(spec cron.Spec, doc schemas.Schedule, now time.Time) planned {
	p := planned{handled: spec.Due(doc.Handled, now, maxMissed)}
	late := 0
	for late < len(p.handled) && now.Sub(p.handled[late]) > onTime {
		late++
	}
	p.firings = p.handled
	switch doc.Missed {
	case schemas.MissedSkip:
		p.firings = p.handled[late:]
	case schemas.MissedAll:
	default:
		p.firings = p.handled[min(late, max(len(p.handled)-1, 0)):]
	}
	return p
}

// submitFiring submits the task of one firing and notes it in doc. If the queue refuses the task, it notes the reason.
func (s *Service) submitFiring(
	ctx context.Context, tenant string, doc *schemas.Schedule, at time.Time,
) (outcome string, err error) {
	at = at.UTC()
	ev, err := taskEvent(sourceOf(*doc), at.Format(time.RFC3339), at, doc.Task)
	if err == nil {
		_, err = s.queue.Submit(ctx, tenant, ev)
	}
	refused, isRefused := errors.AsType[*jobs.RefusedError](err)
	switch {
	case err == nil || errors.Is(err, jobs.ErrKeyReused):
		doc.LastAt, doc.LastTask, doc.LastError = at, jobs.TaskID(tenant, ev.Source(), ev.ID()), ""
		s.log.InfoContext(ctx, "schedule fired", "tenant", tenant, "schedule", doc.Name, "at", at,
			"task_id", doc.LastTask)
		return outcomeDone, nil
	case isRefused:
		doc.LastAt, doc.LastTask, doc.LastError = at, "", refused.Code+": "+refused.Message
		s.log.WarnContext(ctx, "task of schedule refused", "tenant", tenant, "schedule", doc.Name, "at", at,
			"error", err)
		return outcomeRefused, nil
	}
	return "", fmt.Errorf("submit the task of schedule %s for %s: %w", doc.Name, at.Format(time.RFC3339), err)
}
