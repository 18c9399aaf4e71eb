package automation

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/workflow/engine"
)

const (
	// runSweep is the shortest time after which a run with running tasks is advanced, in case an advance was lost. The
	// longest is twice as long.
	runSweep = time.Minute

	runSoon  = 10 * time.Second // within which a process that was away advances a run
	runRetry = time.Second      // after an error
	runLate  = 5 * time.Second  // after which a due run is advanced again, unless its alarm has changed by then
)

// runAlarm is what the cache knows of a workflow run.
type runAlarm struct {
	engine.Alarm
	due     time.Time // when this process advances the run
	learned time.Time // when this process learned of the alarm
}

// next returns when the run is to be advanced next, after now.
func (r runAlarm) next(now time.Time) time.Time {
	if !r.Next.After(now) {
		return now.Add(runLate)
	}
	sweep := now.Add(runSweep + rand.N(runSweep)) //nolint:gosec // spreads processes
	if r.Busy && sweep.Before(r.Next) {
		return sweep
	}
	return r.Next
}

// learnRun updates the cache with the alarm of a run.
func (c *cache) learnRun(d jobs.Automation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{d.Kind, d.Tenant, d.Name}
	now := time.Now().Add(c.runSkew)
	r := runAlarm{learned: now}
	if json.Unmarshal(d.Data, &r.Alarm) != nil { // it was deleted
		delete(c.runs, k)
		return
	}
	r.due = r.Next
	switch {
	case r.Busy && now.Sub(d.ChangedAt) > runSweep: // this process is new, or was away
		r.due = now.Add(rand.N(runSoon)) //nolint:gosec // spreads runs
	case r.Busy:
		r.due = r.next(now)
	}
	c.runs[k] = r
	select {
	case c.runWoken <- struct{}{}:
	default:
	}
}

// runsDue returns the runs that are due, and how long it takes until the next one is due. It makes the returned runs
// due again later. now is the queue's time, as in the alarms.
func (c *cache) runsDue(now time.Time) (due map[key]runAlarm, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runSkew = now.Sub(time.Now().Round(0))
	due = map[key]runAlarm{}
	next := now.Add(runSweep)
	for k, r := range c.runs {
		if !r.due.After(now) {
			due[k] = r
			r.due = r.next(now)
			c.runs[k] = r
		}
		if r.due.Before(next) {
			next = r.due
		}
	}
	return due, max(next.Sub(now), 0)
}

// retryRun makes a run due again soon.
func (c *cache) retryRun(k key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.runs[k]; ok {
		r.due = time.Now().Add(c.runSkew + runRetry)
		c.runs[k] = r
	}
}

// runsWaiting returns the runs of a tenant that wait for events of a type.
func (c *cache) runsWaiting(tenant, eventType string) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, r := range c.runs {
		if k.tenant != tenant {
			continue
		}
		if slices.ContainsFunc(r.EventTypes(), func(pattern string) bool {
			return names.MatchPattern(pattern, eventType)
		}) {
			ids = append(ids, k.name)
		}
	}
	return ids
}

// wakeRuns passes an event on to the workflow runs that wait for it. It may be called again.
func (s *Service) wakeRuns(ctx context.Context, c *cache, tenant string, e *incoming) error {
	ids := c.runsWaiting(tenant, e.Type())
	if len(ids) == 0 {
		return nil
	}
	attributes, err := engine.Attributes(e.Event)
	if err != nil {
		return err
	}
	var failed error
	for _, id := range ids { // also after an error: it may be that of one run
		failed = errors.Join(failed, s.runs.Occurred(ctx, tenant, id, attributes, e.inputs()))
	}
	return failed
}

// followRuns advances workflow runs when their waits are due, and those whose advance was lost.
func (s *Service) followRuns(ctx context.Context, c *cache) error {
	for ctx.Err() == nil {
		due, wait := c.runsDue(s.runs.Now(ctx))
		var group errgroup.Group
		group.SetLimit(atOnce)
		for k, r := range due {
			group.Go(func() error {
				if err := s.runs.Tick(ctx, k.tenant, k.name, r.learned); err != nil && ctx.Err() == nil {
					s.log.WarnContext(ctx, "workflow run not advanced", "tenant", k.tenant, "run", k.name, "error", err)
					c.retryRun(k)
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
		case <-c.runWoken:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}
