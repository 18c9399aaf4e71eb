package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// Policy returns what a tenant may do, or false for an unknown tenant. It is called often and concurrently,
// and must not block.
type Policy func(tenant string) (TenantPolicy, bool)

// TenantPolicy bounds a tenant. The zero value allows everything but the network.
type TenantPolicy struct {
	Pools      []string // that it may use; empty: all
	Priorities []string // that it may use; empty: all
	MaxRunning int      // tasks at once per pool and priority, in the whole fleet; 0: 1,024
	MaxTimeout time.Duration
	MaxMemory  int     // MiB
	MaxCPUs    float64 // 0: no limit, as for MaxTimeout and MaxMemory

	Network []allowlist.Pattern // hosts that its tasks may request
	AnyHost bool                // its tasks may request every host
}

// check returns a *RefusedError for a task that the policy does not allow.
func (p TenantPolicy) check(l lane, t *schemas.Task) error {
	if len(p.Pools) > 0 && !slices.Contains(p.Pools, l.pool) {
		return refuse(errcode.NotAllowed, "/pool", "pool %s is not open to tenant %s", l.pool, l.tenant)
	}
	if len(p.Priorities) > 0 && !slices.Contains(p.Priorities, l.priority) {
		return refuse(errcode.NotAllowed, "priority", "priority %s is not open to tenant %s", l.priority, l.tenant)
	}
	limits := t.Limits
	switch {
	case limits == nil:
	case p.MaxTimeout > 0 && limits.TimeoutS > p.MaxTimeout.Seconds():
		return refuse(errcode.NotAllowed, "/limits/timeout_s", "more than the tenant's %v", p.MaxTimeout)
	case p.MaxMemory > 0 && limits.MemoryMB > p.MaxMemory:
		return refuse(errcode.NotAllowed, "/limits/memory_mb", "more than the tenant's %d MiB", p.MaxMemory)
	case p.MaxCPUs > 0 && limits.CPUs > p.MaxCPUs:
		return refuse(errcode.NotAllowed, "/limits/cpus", "more than the tenant's %g", p.MaxCPUs)
	}
	return p.checkNetwork(l.tenant, t.Network)
}

// checkNetwork refuses a task that requests a host which no pattern of its tenant covers. A task that
// passes may reach exactly what it requests.
func (p TenantPolicy) checkNetwork(tenant string, network *schemas.Network) error {
	if network == nil {
		return nil
	}
	for i, s := range network.Allow {
		at := fmt.Sprintf("/network/allow/%d", i)
		requested, err := allowlist.Parse(s)
		if err != nil {
			return refuse(errcode.BadData, at, "%s", err)
		}
		covers := func(allowed allowlist.Pattern) bool { return allowed.Covers(requested) }
		if !p.AnyHost && !slices.ContainsFunc(p.Network, covers) {
			r := refuse(errcode.NotAllowed, at, "tenant %s may not reach %s", tenant, requested)
			r.Hint = fmt.Sprintf("an operator opens hosts to a tenant in tenants.%s.network", tenant)
			return r
		}
	}
	return nil
}
