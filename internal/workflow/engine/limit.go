package engine

import (
	"context"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

const (
	defaultMaxRuns = 10_000          // most runs of a tenant that have not ended
	countFor       = 2 * time.Second // how long a process uses the number that it counted
)

// active is how many runs of a tenant have not ended: those that were counted, and those that this process has begun
// since.
type active struct {
	runs    int
	counted time.Time
}

// admit counts another run of a tenant, or refuses it if the tenant has too many runs that have not ended. Runs that
// begin at the same time, or in other processes within countFor, may exceed the limit by a few.
func (e *Engine) admit(ctx context.Context, tenant string) error {
	limit := e.MaxRuns
	if limit == 0 {
		limit = defaultMaxRuns
	}
	e.mu.Lock()
	known := e.active[tenant]
	e.mu.Unlock()
	if now := time.Now(); now.Sub(known.counted) > countFor {
		store, err := e.automations(ctx)
		if err != nil {
			return err
		}
		n, err := store.Count(ctx, KindAlarm, tenant)
		if err != nil {
			return err
		}
		known = active{n, now}
	}
	if known.runs >= limit {
		r := refuse(errcode.AutomationLimit, "",
			"the tenant has %d workflow runs that have not ended, which is the limit", known.runs)
		r.Hint = "answer or cancel some: codefleet workflow runs"
		return r
	}
	known.runs++
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.active) >= tenantsKnown {
		clear(e.active)
	}
	e.active[tenant] = known
	return nil
}
