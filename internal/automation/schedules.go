package automation

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
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
	if err := s.checkSchedule(tenant, in); err != nil {
		return schemas.Schedule{}, err
	}
	store, now, err := s.open(ctx)
	if err != nil {
		return schemas.Schedule{}, err
	}
	if in.Task, err = compactJSON(in.Task); err != nil {
		return schemas.Schedule{}, err
	}
	doc := schemas.Schedule{ScheduleSpec: in, CreatedAt: now, Handled: now}
	data, err := json.Marshal(doc)
	if err != nil {
		return doc, err
	}
	err = create(ctx, store, jobs.Automation{Kind: kindSchedule, Tenant: tenant, Name: in.Name, Data: data})
	if !errors.Is(err, jobs.ErrAutomationConflict) {
		return withNext(tenant, doc), err
	}
	found, _, err := readSchedule(ctx, store, tenant, in.Name)
	if err != nil {
		return found, err
	}
	if !equalSpec(found.ScheduleSpec, in) {
		r := refuse(errcode.AutomationExists, "name", "there is another schedule with the name %s", in.Name)
		r.Hint = "choose another name, or remove that schedule first"
		return found, r
	}
	return withNext(tenant, found), nil
}

func equalSpec(a, b schemas.ScheduleSpec) bool {
	same := bytes.Equal(a.Task, b.Task)
	a.Task, b.Task = nil, nil
	return same && a.Name == b.Name && a.Cron == b.Cron && a.Zone == b.Zone && a.Missed == b.Missed &&
		a.JitterS == b.JitterS
}

func (s *Service) checkSchedule(tenant string, in schemas.ScheduleSpec) error {
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
	return s.checkTask(tenant, in.Task)
}

func specOf(in schemas.ScheduleSpec) (cron.Spec, error) {
	zone, err := cron.Zone(in.Zone)
	if err != nil {
		return cron.Spec{}, err
	}
	return cron.Parse(in.Cron, zone)
}

// Schedules lists a tenant's schedules by name.
func (s *Service) Schedules(ctx context.Context, tenant string) ([]schemas.Schedule, error) {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return nil, err
	}
	list, err := store.List(ctx, kindSchedule, tenant)
	if err != nil {
		return nil, err
	}
	out := make([]schemas.Schedule, 0, len(list))
	for _, a := range list {
		var doc schemas.Schedule
		if err := json.Unmarshal(a.Data, &doc); err != nil {
			return nil, err
		}
		out = append(out, withNext(tenant, doc))
	}
	slices.SortFunc(out, func(a, b schemas.Schedule) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
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
	return s.remove(ctx, kindSchedule, tenant, name)
}

// PauseSchedule pauses or resumes a schedule. Firings during the pause are not missed firings: they never take place. A
// firing that is taking place at this moment may still submit its task.
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
			doc.Handled = now
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
) (doc schemas.Schedule, rev uint64, err error) {
	if err := checkName(name); err != nil {
		return doc, 0, err
	}
	a, err := store.Get(ctx, kindSchedule, tenant, name)
	if err != nil {
		return doc, 0, unknown(err, kindSchedule, name)
	}
	return doc, a.Revision, json.Unmarshal(a.Data, &doc)
}

func writeSchedule(
	ctx context.Context, store *jobs.Automations, tenant string, doc schemas.Schedule, rev uint64,
) (uint64, error) {
	doc.Next = time.Time{}
	data, err := json.Marshal(doc)
	if err != nil {
		return 0, err
	}
	return store.Swap(ctx, jobs.Automation{
		Kind: kindSchedule, Tenant: tenant, Name: doc.Name, Data: data, Revision: rev,
	})
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

// withNext sets Next.
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
