package automation

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/cron"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

const (
	kindSchedule = "schedule"
	maxJitter    = 3600 // seconds
)

// AddSchedule stores a new schedule. Adding the same schedule again returns the stored one; a different one with the
// same name is refused.
func (s *Service) AddSchedule(ctx context.Context, tenant string, in schemas.ScheduleSpec) (schemas.Schedule, error) {
	in.Missed = cmp.Or(in.Missed, schemas.MissedLast)
	if err := s.checkSchedule(ctx, tenant, in); err != nil {
		return schemas.Schedule{}, err
	}
	store, now, err := s.open(ctx)
	if err != nil {
		return schemas.Schedule{}, err
	}
	k := key{kindSchedule, tenant, in.Name}
	doc := schemas.Schedule{ScheduleSpec: in, CreatedAt: now, Handled: now}
	doc, exists, err := create(ctx, store, k, doc)
	if exists && !equalJSON(doc.ScheduleSpec, in) {
		return schemas.Schedule{}, nameTaken(k)
	}
	return withNext(tenant, doc), err
}

func (s *Service) checkSchedule(ctx context.Context, tenant string, in schemas.ScheduleSpec) error {
	if err := checkName(in.Name); err != nil {
		return err
	}
	if _, err := cron.Zone(in.Zone); err != nil {
		return refuse(errcode.BadData, "/zone", "%s", err)
	}
	if _, err := specOf(in); err != nil {
		return refuse(errcode.BadData, "/cron", "%s", err)
	}
	if !slices.Contains([]string{schemas.MissedSkip, schemas.MissedLast, schemas.MissedAll}, in.Missed) {
		return refuse(errcode.BadData, "/missed", "it must be skip, last or all")
	}
	if in.JitterS < 0 || in.JitterS > maxJitter {
		return refuse(errcode.BadData, "/jitter_s", "it must be from 0 to %d", maxJitter)
	}
	return s.checkTask(ctx, tenant, in.Task)
}

func specOf(in schemas.ScheduleSpec) (cron.Spec, error) {
	zone, err := cron.Zone(in.Zone)
	if err != nil {
		return cron.Spec{}, err
	}
	return cron.Parse(in.Cron, zone)
}

// Schedules lists a tenant's schedules, sorted by name.
func (s *Service) Schedules(ctx context.Context, tenant string) ([]schemas.Schedule, error) {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return nil, err
	}
	list, err := readAll[schemas.Schedule](ctx, store, kindSchedule, tenant)
	for i, doc := range list {
		list[i] = withNext(tenant, doc)
	}
	return list, err
}

// Schedule returns a schedule.
func (s *Service) Schedule(ctx context.Context, tenant, name string) (schemas.Schedule, error) {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return schemas.Schedule{}, err
	}
	doc, _, err := readSchedule(ctx, store, tenant, name)
	return withNext(tenant, doc), err
}

// RemoveSchedule deletes a schedule. Tasks that it has submitted continue.
func (s *Service) RemoveSchedule(ctx context.Context, tenant, name string) error {
	return s.remove(ctx, key{kindSchedule, tenant, name})
}

// PauseSchedule pauses or resumes a schedule. Firings during the pause are not missed firings: they never take place.
// With jitter_s, the delayed time counts. A firing that is taking place at this moment may still submit its task.
func (s *Service) PauseSchedule(ctx context.Context, tenant, name string, paused bool) (schemas.Schedule, error) {
	store, now, err := s.open(ctx)
	if err != nil {
		return schemas.Schedule{}, err
	}
	for range swapTries {
		doc, rev, err := readSchedule(ctx, store, tenant, name)
		if err != nil || doc.Paused == paused {
			return withNext(tenant, doc), err
		}
		if doc.Paused = paused; !paused {
			at := now.Add(-delayOf(tenant, doc.ScheduleSpec))     // firings of later times are still to come
			if doc.Handled.Before(at) || doc.Handled.After(now) { // if it is after now, the fleet's time was wrong
				doc.Handled = at
			}
		}
		if _, err = writeSchedule(ctx, store, tenant, doc, rev); !errors.Is(err, jobs.ErrAutomationConflict) {
			return withNext(tenant, doc), err
		}
	}
	return schemas.Schedule{}, refuse(errcode.Busy, "", "the schedule changes too often")
}

// RunSchedule submits the schedule's task now, in addition to its firings. It also works while the schedule is paused.
func (s *Service) RunSchedule(ctx context.Context, tenant, name string) (schemas.Record, error) {
	store, now, err := s.open(ctx)
	if err != nil {
		return schemas.Record{}, err
	}
	doc, _, err := readSchedule(ctx, store, tenant, name)
	if err != nil {
		return schemas.Record{}, err
	}
	ev, err := taskEvent(sourceOf(doc), "run/"+rand.Text(), now, doc.Task)
	if err != nil {
		return schemas.Record{}, err
	}
	return s.queue.Submit(ctx, tenant, ev)
}

func sourceOf(doc schemas.Schedule) string { return "/codefleet/schedules/" + doc.Name }

func readSchedule(
	ctx context.Context, store *jobs.Automations, tenant, name string,
) (schemas.Schedule, uint64, error) {
	return read[schemas.Schedule](ctx, store, key{kindSchedule, tenant, name})
}

func writeSchedule(
	ctx context.Context, store *jobs.Automations, tenant string, doc schemas.Schedule, rev uint64,
) (uint64, error) {
	doc.Next = time.Time{}
	return swap(ctx, store, key{kindSchedule, tenant, doc.Name}, doc, rev)
}

// delayOf returns the delay of a schedule's firings, which is below its jitter.
func delayOf(tenant string, in schemas.ScheduleSpec) time.Duration {
	if in.JitterS <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(tenant + "/" + in.Name)) // never fails
	return time.Duration(h.Sum64()%uint64(in.JitterS)) * time.Second
}

// withNext returns the schedule with Next set: the time of its next firing, or the zero time if there is none.
func withNext(tenant string, doc schemas.Schedule) schemas.Schedule {
	doc.Next = time.Time{}
	spec, err := specOf(doc.ScheduleSpec)
	if err != nil || doc.Paused {
		return doc
	}
	if next := spec.Next(doc.Handled); !next.IsZero() {
		doc.Next = next.Add(delayOf(tenant, doc.ScheduleSpec))
	}
	return doc
}
