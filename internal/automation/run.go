package automation

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

// Run fires schedules and triggers, sends to webhooks, and advances workflow runs, until ctx ends. All processes of a
// fleet that call it share the work.
func (s *Service) Run(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		begun := time.Now()
		err := s.run(ctx)
		// Only the first failure of a series is logged. A run of a minute or more ends the series.
		failing = failing && time.Since(begun) < time.Minute
		if ctx.Err() == nil && !failing {
			s.log.WarnContext(ctx, "automations failed; they are tried again", "error", err)
		}
		failing = true
		_ = clock.Sleep(ctx, time.Second) // the loop ends with ctx
	}
}

// run runs the parts of Run until one of them fails or ctx ends. It returns the first error, or the cause of ctx, after
// all parts have ended.
func (s *Service) run(ctx context.Context) error {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := newCache()
	var running sync.WaitGroup
	start := func(ctx context.Context, part func(context.Context) error) {
		running.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	results, ordered := &resultFollowers{}, &resultFollowers{}
	start(ctx, func(ctx context.Context) error { return store.Watch(ctx, c.learn) })
	start(ctx, func(ctx context.Context) error {
		return s.queue.FollowEvents(ctx, func(ctx context.Context, tenant string, ev event.Event) error {
			e, err := newIncoming(ev)
			if err != nil {
				s.log.WarnContext(ctx, "event refused", "tenant", tenant, "error", err)
				return nil
			}
			return s.dispatch(ctx, store, c, tenant, e)
		})
	})
	start(ctx, func(ctx context.Context) error {
		return s.queue.FollowOrderedEvents(ctx, func(ctx context.Context, tenant string, ev event.Event) error {
			e, err := newIncoming(ev)
			if err != nil {
				return nil //nolint:nilerr // FollowEvents passes on the same event, and the function above logs it
			}
			return s.deliverOrdered(ctx, store, c, tenant, e)
		})
	})
	send := func(ctx context.Context, d jobs.Delivery) error {
		if err := awaitLatest(ctx, store, c); err != nil {
			return err
		}
		return s.send(ctx, store, c, d)
	}
	start(ctx, func(ctx context.Context) error { return s.queue.MoveDeliveries(ctx) })
	start(ctx, func(ctx context.Context) error { return s.queue.FollowDeliveries(ctx, send) })
	start(ctx, func(ctx context.Context) error { return s.followRuns(ctx, c) })
	start(ctx, func(ctx context.Context) error {
		return s.followSchedules(ctx, store, c, func() {
			results.follow(ctx, c.resultTenants(), func(ctx context.Context, tenant string) {
				start(ctx, func(ctx context.Context) error { return s.followResults(ctx, store, c, tenant) })
			})
			ordered.follow(ctx, c.webhookResultTenants(), func(ctx context.Context, tenant string) {
				start(ctx, func(ctx context.Context) error { return s.followOrderedResults(ctx, store, c, tenant) })
			})
		})
	})
	<-ctx.Done()
	running.Wait()
	return context.Cause(ctx)
}

// awaitLatest waits until the cache has all automations that exist now.
func awaitLatest(ctx context.Context, store *jobs.Automations, c *cache) error {
	_, latest, err := store.Now(ctx)
	if err != nil {
		return err
	}
	return c.awaitRevision(ctx, latest)
}

// followResults dispatches the results of a tenant's tasks until ctx ends.
func (s *Service) followResults(ctx context.Context, store *jobs.Automations, c *cache, tenant string) error {
	for ctx.Err() == nil {
		if err := s.queue.KeepResults(ctx, tenant); err != nil {
			return err
		}
		err := s.queue.FollowResults(ctx, tenant, func(ctx context.Context, rec schemas.Record, ev event.Event) error {
			return s.dispatch(ctx, store, c, tenant, &incoming{Event: ev, depth: engine.Depth(rec)})
		})
		if err != nil {
			return err
		}
		_ = clock.Sleep(ctx, time.Second) // no automation matches results any more, so ctx will end soon
	}
	return nil
}

// followOrderedResults delivers the results of a tenant's tasks that have a partition key, until ctx ends.
func (s *Service) followOrderedResults(
	ctx context.Context, store *jobs.Automations, c *cache, tenant string,
) error {
	for ctx.Err() == nil {
		if err := s.keepWebhookResults(ctx, tenant); err != nil {
			return err
		}
		err := s.queue.FollowOrderedResults(ctx, tenant, func(ctx context.Context, ev event.Event) error {
			return s.deliverOrdered(ctx, store, c, tenant, &incoming{Event: ev})
		})
		if err != nil {
			return err
		}
		_ = clock.Sleep(ctx, time.Second) // no webhook matches results any more, so ctx will end soon
	}
	return nil
}

// keepWebhookResults makes the queue keep a tenant's results for its webhooks, with and without a partition key.
func (s *Service) keepWebhookResults(ctx context.Context, tenant string) error {
	if err := s.queue.KeepResults(ctx, tenant); err != nil {
		return err
	}
	return s.queue.KeepOrderedResults(ctx, tenant)
}

// resultFollowers are the tenants whose results this process follows.
type resultFollowers struct{ stop map[string]context.CancelFunc }

// follow starts to follow the results of new tenants, and stops for those that are gone.
func (r *resultFollowers) follow(
	ctx context.Context, tenants map[string]bool, start func(ctx context.Context, tenant string),
) {
	if r.stop == nil {
		r.stop = map[string]context.CancelFunc{}
	}
	for tenant, stop := range r.stop {
		if !tenants[tenant] {
			stop()
			delete(r.stop, tenant)
		}
	}
	for tenant := range tenants {
		if r.stop[tenant] == nil {
			following, stop := context.WithCancel(ctx)
			r.stop[tenant] = stop
			start(following, tenant)
		}
	}
}

// followSchedules fires schedules when they are due. It calls changed after changes of the cache.
func (s *Service) followSchedules(ctx context.Context, store *jobs.Automations, c *cache, changed func()) error {
	var synced time.Time // when the fleet's time was read
	for ctx.Err() == nil {
		next, found := c.next()
		wait := resync
		if found {
			if time.Since(synced) >= resync {
				now, err := s.now(ctx, store)
				if err != nil {
					return err
				}
				c.sync(now)
				synced = time.Now()
			}
			wait = min(wait, next.Sub(c.now()))
		}
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-timer.C:
			if found && wait < resync {
				_ = clock.Sleep(ctx, rand.N(spread)) //nolint:gosec // spreads processes; ends early with ctx
				// If fireDue cannot read the time, the next round reads it again and returns the error.
				synced = time.Time{}
				s.fireDue(ctx, store, c)
			}
		case <-c.woken:
			changed()
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}
