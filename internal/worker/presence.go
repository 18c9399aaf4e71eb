package worker

import (
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/schemas"
)

// presence returns what the worker publishes about its pool.
func presence(version string, pool *executor.Pool) schemas.Worker {
	box, s := pool.Info(), pool.Stats()
	out := schemas.Worker{
		Version: version, ReadsCarried: true,
		Sandbox: map[string]any{
			"driver": box.Driver, "engine_version": box.EngineVersion, "tier": box.Tier,
			"limits": box.Limits, "environment": box.Environment, "multi_tenant": box.MultiTenant,
		},
		Boxes: map[string]int{
			"warming": s.Warming, "ready": s.Ready, "bound": s.Bound, "acquired": s.Acquired,
			"waiting": s.Waiting, "max": s.Max,
			"idle_memory_mb": s.IdleMemoryMB, "idle_memory_mb_total": s.IdleMemoryMBTotal,
		},
	}
	for _, e := range pool.Environments() {
		out.Environments = append(out.Environments, schemas.Environment{
			Name: e.Name, What: e.Description, Packages: e.Packages,
			Error: e.LastError, Reason: string(e.LastReason),
			Restored: e.Restored, MadeMS: float64(e.CreateTime.Microseconds()) / 1000,
			Boxes: map[string]int{
				"warming": e.Warming, "ready": e.Ready, "bound": e.Bound, "acquired": e.Acquired,
				"waiting": e.Waiting, "waiting_memory": e.WaitingMemory,
			},
		})
	}
	if s.LastError != "" {
		out.Extra = map[string]any{"error": s.LastError, "reason": string(s.LastReason)}
	}
	return out
}
