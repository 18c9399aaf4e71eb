package automation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/cron"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

const (
	onTime     = time.Minute            // a later firing counts as missed
	maxMissed  = 100                    // missed firings that take place later
	clockSlack = time.Minute            // by which the fleet's time may go back before it counts as a correction
	spread     = 100 * time.Millisecond // within which processes act, so that most find the work done
	resync     = 30 * time.Second       // between readings of the fleet's time
	retryDelay = 5 * time.Second        // after an error
	atOnce     = 16                     // firings of one process
)

// key identifies a schedule.
type key struct{ tenant, name string }

// agenda is what a process knows of all schedules.
type agenda struct {
	mu    sync.Mutex
	due   map[key]time.Time // the next firing or attempt
	rev   map[key]uint64    // of the document that due is from
	skew  time.Duration     // the fleet's time minus this host's
	woken chan struct{}
}

// Run fires schedules until ctx ends. All processes of a fleet that call it share the work.
func (s *Service) Run(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		err := s.run(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			s.log.WarnContext(ctx, "schedules not followed", "error", err)
		}
		failing = err != nil
		_ = clock.Sleep(ctx, time.Second) // the loop ends with ctx
	}
}

func (s *Service) run(ctx context.Context) error {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &agenda{due: map[key]time.Time{}, rev: map[key]uint64{}, woken: make(chan struct{}, 1)}
	watching := make(chan error, 1)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { watching <- store.Watch(ctx, a.learn) })
	var synced time.Time // when the fleet's time was read
	for {
		next, found := a.next()
		wait := resync
		if found {
			if time.Since(synced) >= resync {
				now, err := s.now(ctx, store)
				if err != nil {
					return err
				}
				a.sync(now)
				synced = time.Now()
			}
			wait = min(wait, next.Sub(a.now()))
		}
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-timer.C:
			if found && wait < resync {
				_ = clock.Sleep(ctx, rand.N(spread)) //nolint:gosec // spreads processes; ends early with ctx
				synced = time.Time{}
				s.fireDue(ctx, store, a)
			}
		case <-a.woken:
		case err := <-watching:
			timer.Stop()
			return err
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// learn updates the agenda with a document.
func (a *agenda) learn(d jobs.Automation) {
	if d.Kind != kindSchedule {
		return
	}
	var doc schemas.Schedule
	if d.Data != nil && json.Unmarshal(d.Data, &doc) != nil {
		return
	}
	a.set(d.Tenant, d.Name, withNext(d.Tenant, doc).Next, d.Revision)
}

// set notes when a schedule fires next, unless the agenda has a later revision of it. The zero time means never.
func (a *agenda) set(tenant, name string, next time.Time, rev uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := key{tenant, name}
	if rev < a.rev[k] {
		return
	}
	a.rev[k], a.due[k] = rev, next
	if next.IsZero() {
		delete(a.due, k)
	}
	select {
	case a.woken <- struct{}{}:
	default:
	}
}

// postpone tries a schedule again later.
func (a *agenda) postpone(k key, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.due[k]; ok {
		a.due[k] = time.Now().Add(a.skew + d)
	}
}

// next returns the time of the earliest firing.
func (a *agenda) next() (first time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.due {
		if !ok || t.Before(first) {
			first, ok = t, true
		}
	}
	return first, ok
}

func (a *agenda) sync(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.skew = now.Sub(time.Now().Round(0))
}

func (a *agenda) now() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Round(0).Add(a.skew)
}

// dueNow returns the schedules that are due, in random order.
func (a *agenda) dueNow() (list []key) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, t := range a.due {
		if !t.After(now) {
			list = append(list, k)
		}
	}
	return list
}

// fireDue fires the schedules that are due by the fleet's time.
func (s *Service) fireDue(ctx context.Context, store *jobs.Automations, a *agenda) {
	now, err := s.now(ctx, store)
	if err != nil {
		return // run reads the time again, and returns the error
	}
	a.sync(now)
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, k := range a.dueNow() {
		group.Go(func() error {
			doc, rev, err := s.fire(ctx, store, k.tenant, k.name, now)
			switch {
			case errors.Is(err, jobs.ErrAutomationConflict): // the watch tells the change
				a.postpone(k, retryDelay)
			case err != nil && ctx.Err() == nil:
				s.log.WarnContext(ctx, "schedule not fired", "tenant", k.tenant, "schedule", k.name, "error", err)
				a.postpone(k, retryDelay)
			case err == nil:
				a.set(k.tenant, k.name, doc.Next, rev)
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
		// The fleet's time was wrong, and is correct now: the schedule continues from now.
		s.log.WarnContext(ctx, "schedule set back after the time went back", "tenant", tenant, "schedule", name,
			"from", doc.Handled, "to", now)
		doc.Handled = now
		rev, err = writeSchedule(ctx, store, tenant, doc, rev)
		return withNext(tenant, doc), rev, err
	}
	due := plan(spec, doc, at)
	if len(due.handled) == 0 {
		return withNext(tenant, doc), rev, nil
	}
	for _, t := range due.firings {
		if err := s.submitFiring(ctx, tenant, &doc, t); err != nil {
			return doc, rev, err
		}
	}
	doc.Handled = due.handled[len(due.handled)-1].UTC()
	rev, err = writeSchedule(ctx, store, tenant, doc, rev)
	return withNext(tenant, doc), rev, err
}

// planned are the firing times up to now since the last ones that were handled, and those that take place.
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
func (s *Service) submitFiring(ctx context.Context, tenant string, doc *schemas.Schedule, at time.Time) error {
	at = at.UTC()
	ev, err := taskEvent(sourceOf(*doc), at.Format(time.RFC3339), at, doc.Task)
	var rec schemas.Record
	if err == nil {
		rec, err = s.queue.Submit(ctx, tenant, ev)
	}
	refused, isRefused := errors.AsType[*jobs.RefusedError](err)
	switch {
	case err == nil || errors.Is(err, jobs.ErrKeyReused):
		doc.LastAt, doc.LastTask, doc.LastError = at, cmp.Or(rec.TaskID, doc.LastTask), ""
		s.log.InfoContext(ctx, "schedule fired", "tenant", tenant, "schedule", doc.Name, "at", at, "task", rec.TaskID)
	case isRefused:
		doc.LastAt, doc.LastTask, doc.LastError = at, "", refused.Code+": "+refused.Message
		s.log.WarnContext(ctx, "task of schedule refused", "tenant", tenant, "schedule", doc.Name, "at", at,
			"error", err)
	default:
		return fmt.Errorf("submit the task of schedule %s for %s: %w", doc.Name, at.Format(time.RFC3339), err)
	}
	return nil
}
