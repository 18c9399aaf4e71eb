package engine

import (
	"context"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
)

const askTime = time.Minute // after which a process asks again for the time

// Now returns the time of the queue, which is the same for all processes, in the precision of records. If the queue
// does not respond, Now uses the last known difference to this host's time.
func (e *Engine) Now(ctx context.Context) time.Time {
	host := time.Now().Round(0)
	if e.HostTime != nil {
		host = e.HostTime()
	}
	e.mu.Lock()
	ahead, asked := e.ahead, e.asked
	e.mu.Unlock()
	if asked.IsZero() || host.Sub(asked).Abs() > askTime {
		if now, err := e.queueTime(ctx); err != nil {
			e.log.WarnContext(ctx, "time of the queue not read", "error", err)
		} else {
			ahead = now.Sub(host)
			e.mu.Lock()
			e.ahead, e.asked = ahead, host
			e.mu.Unlock()
		}
	}
	return host.Add(ahead).UTC().Truncate(time.Millisecond)
}

func (e *Engine) queueTime(ctx context.Context) (time.Time, error) {
	store, err := e.automations(ctx)
	if err != nil {
		return time.Time{}, err
	}
	now, _, err := store.Now(ctx)
	return now, err
}

// automations opens the bucket with the alarms, once.
func (e *Engine) automations(ctx context.Context) (*jobs.Automations, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.alarms == nil {
		store, err := e.queue.Automations(ctx)
		if err != nil {
			return nil, err
		}
		e.alarms = store
	}
	return e.alarms, nil
}
