package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Policy returns what a tenant of the settings may do. For any other tenant it returns false, with the policy of
// tenants that operators create at run time. It is called often and concurrently, and must not block.
type Policy func(tenant string) (TenantPolicy, bool)

// TenantPolicy bounds a tenant. The zero value allows everything but the network.
type TenantPolicy struct {
	Pools      []string // task pools that it may use; empty allows all
	Priorities []string // priorities that it may use; empty allows all
	MaxRunning int      // tasks running at once per task pool and priority, in the whole fleet; default 1,024

	Limits schemas.TenantLimits // without MaxRunning, which is above; limits that are set at run time replace these

	// Limits of one task; 0 means no limit.
	MaxTimeout time.Duration
	MaxMemory  int // MiB
	MaxCPUs    float64
	MaxOutput  int64 // bytes

	Network []allowlist.Pattern // hosts that its tasks may request
	AnyHost bool                // whether its tasks may request every host
}

// check returns a *RefusedError for a task that the policy does not allow.
func (p TenantPolicy) check(l lane, t *schemas.Task) error {
	if len(p.Pools) > 0 && !slices.Contains(p.Pools, l.pool) {
		return refuse(errcode.NotAllowed, "/pool", "task pool %s is not open to tenant %s", l.pool, l.tenant)
	}
	if len(p.Priorities) > 0 && !slices.Contains(p.Priorities, l.priority) {
		return refuse(errcode.NotAllowed, "priority", "priority %s is not open to tenant %s", l.priority, l.tenant)
	}
	limits := t.Limits
	switch {
	case limits == nil:
	case p.MaxTimeout > 0 && limits.TimeoutS > p.MaxTimeout.Seconds():
		return refuse(errcode.NotAllowed, "/limits/timeout_s", "exceeds the tenant's limit of %s",
			text.Duration(p.MaxTimeout))
	case p.MaxMemory > 0 && limits.MemoryMB > p.MaxMemory:
		return refuse(errcode.NotAllowed, "/limits/memory_mb", "exceeds the tenant's limit of %d MiB", p.MaxMemory)
	case p.MaxCPUs > 0 && limits.CPUs > p.MaxCPUs:
		return refuse(errcode.NotAllowed, "/limits/cpus", "exceeds the tenant's limit of %g", p.MaxCPUs)
	case p.MaxOutput > 0 && limits.OutputBytes > p.MaxOutput:
		return refuse(errcode.NotAllowed, "/limits/output_bytes", "exceeds the tenant's limit of %d bytes", p.MaxOutput)
	}
	return p.checkNetwork(l.tenant, t.Network)
}

// checkNetwork refuses a task that requests a host outside its tenant's allow-list. A task that passes may reach
// exactly the hosts that it requests.
func (p TenantPolicy) checkNetwork(tenant string, network *schemas.Network) error {
	if network == nil {
		return nil
	}
	for i, s := range network.Allow {
		path := fmt.Sprintf("/network/allow/%d", i)
		requested, err := allowlist.Parse(s)
		if err != nil {
			return refuse(errcode.BadData, path, "%s", err)
		}
		covers := func(allowed allowlist.Pattern) bool { return allowed.Covers(requested) }
		if !p.AnyHost && !slices.ContainsFunc(p.Network, covers) {
			r := refuse(errcode.NotAllowed, path, "tenant %s may not reach %s", tenant, requested)
			r.Hint = fmt.Sprintf("an operator opens hosts to a tenant in tenants.%s.network", tenant)
			return r
		}
	}
	return nil
}
