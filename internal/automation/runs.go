package automation

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/workflow/engine"
)

const (
	runSweep = time.Minute      // after which a run whose tasks run is looked at, in case that an advance was lost
	runSoon  = 10 * time.Second // within which a process that was away advances a run
	runRetry = time.Second
	runLate  = 5 * time.Second
)

// runAlarm is what the agenda knows of a workflow run.
type runAlarm struct {
	engine.Alarm
	due     time.Time
	learned time.Time
}

// next returns when the run is advanced after now.
func (r runAlarm) next(now time.Time) time.Time {
	if !r.Next.After(now) { // the clock of the process that set it is ahead
		return now.Add(runLate)
	}
	sweep := now.Add(runSweep + rand.N(runSweep)) //nolint:gosec // spreads processes
	if r.Busy && sweep.Before(r.Next) {
		return sweep
	}
	return r.Next
}

// learnRun updates the agenda with the alarm of a run.
func (a *agenda) learnRun(d jobs.Automation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := key{d.Kind, d.Tenant, d.Name}
	now := time.Now().Add(a.runSkew)
	r := runAlarm{learned: now}
	if json.Unmarshal(d.Data, &r.Alarm) != nil { // it was deleted
		delete(a.runs, k)
		return
	}
	r.due = r.Next
	switch {
	case r.Busy && now.Sub(d.ChangedAt) > runSweep: // this process is new, or was away
		r.due = now.Add(rand.N(runSoon)) //nolint:gosec // spreads runs
	case r.Busy:
		r.due = r.next(now)
	}
	a.runs[k] = r
	select {
	case a.runWoken <- struct{}{}:
	default:
	}
}

// runsDue returns the runs that are due, and how long it is until the next one is. Those that are due are due again
// later. now is the queue's time, which the alarms have.
func (a *agenda) runsDue(now time.Time) (due map[key]runAlarm, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runSkew = now.Sub(time.Now().Round(0))
	due = map[key]runAlarm{}
	next := now.Add(runSweep)
	for k, r := range a.runs {
		if !r.due.After(now) {
			due[k] = r
			r.due = r.next(now)
			a.runs[k] = r
		}
		if r.due.Before(next) {
			next = r.due
		}
	}
	return due, max(next.Sub(now), 0)
}

// retryRun makes a run due again soon.
func (a *agenda) retryRun(k key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, ok := a.runs[k]; ok {
		r.due = time.Now().Add(a.runSkew + runRetry)
		a.runs[k] = r
	}
}

// runsWaiting returns the runs of a tenant that wait for events of a type.
func (a *agenda) runsWaiting(tenant, eventType string) (ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, r := range a.runs {
		if k.tenant != tenant {
			continue
		}
		for pattern := range strings.FieldsSeq(r.Types) {
			if names.MatchPattern(pattern, eventType) {
				ids = append(ids, k.name)
				break
			}
		}
	}
	return ids
}

// wakeRuns passes an event on to the workflow runs that wait for it. It may be called again.
func (s *Service) wakeRuns(ctx context.Context, a *agenda, tenant string, e *incoming) error {
	ids := a.runsWaiting(tenant, e.Type())
	if len(ids) == 0 {
		return nil
	}
	attributes, err := engine.Attributes(e.Event)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.runs.Occurred(ctx, tenant, id, attributes, e.inputs()); err != nil {
			return err
		}
	}
	return nil
}

// followRuns advances workflow runs when their waits are due, and those whose advance was lost.
func (s *Service) followRuns(ctx context.Context, a *agenda) error {
	for ctx.Err() == nil {
		due, wait := a.runsDue(s.runs.Now(ctx))
		var group errgroup.Group
		group.SetLimit(atOnce)
		for k, r := range due {
			group.Go(func() error {
				if err := s.runs.Tick(ctx, k.tenant, k.name, r.learned); err != nil && ctx.Err() == nil {
					s.log.WarnContext(ctx, "workflow run not advanced", "tenant", k.tenant, "run", k.name, "error", err)
					a.retryRun(k)
				}
				return nil
			})
		}
		_ = group.Wait() // returns nil
		if len(due) > 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			_ = clock.Sleep(ctx, rand.N(spread)) //nolint:gosec // spreads processes; the loop ends with ctx
		case <-a.runWoken:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}
