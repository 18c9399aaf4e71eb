package engine

import (
	"context"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

const (
	defaultMaxRuns = 10_000          // the maximum number of a tenant's runs that have not ended
	countFor       = 2 * time.Second // how long a process uses the number that it counted
)

// active is how many runs of a tenant have not ended: those that were counted, and those that this process has begun
// since.
type active struct {
	runs    int
	counted time.Time
}

// admit counts another run of a tenant, or refuses it if the tenant has too many runs that have not ended. Each process
// counts only its own new runs, so those that several processes begin within countFor may together exceed the limit.
func (e *Engine) admit(ctx context.Context, tenant string) error {
	limit := e.MaxRuns
	if limit == 0 {
		limit = defaultMaxRuns
	}
	now := time.Now()
	e.mu.Lock()
	known := e.active[tenant]
	e.mu.Unlock()
	if now.Sub(known.counted) > countFor {
		store, err := e.automations(ctx)
		if err != nil {
			return err
		}
		n, err := store.Count(ctx, KindAlarm, tenant) // each run has one alarm until it ends
		if err != nil {
			return err
		}
		known = active{n, now}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if latest := e.active[tenant]; now.Sub(latest.counted) <= countFor { // other calls may have begun runs
		known = latest
	}
	if known.runs >= limit {
		r := refuse(errcode.AutomationLimit, "",
			"the tenant has %d workflow runs that have not ended; the limit is %d", known.runs, limit)
		r.Hint = "GET /v1/workflows/runs lists them: cancel some"
		return r
	}
	known.runs++
	if len(e.active) >= tenantsKnown {
		clear(e.active)
	}
	e.active[tenant] = known
	return nil
}
