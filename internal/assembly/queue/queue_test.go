package queue_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/assembly/queue"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
)

func settings(tenants map[string]config.Tenant) *config.Config {
	c := config.Default()
	c.Tenants = tenants
	c.Worker.Slots = 4
	return c
}

func TestPolicy(t *testing.T) {
	single := queue.Policy(settings(map[string]config.Tenant{"default": {}}))
	if p, ok := single("default"); !ok || cmp.Diff(jobs.TenantPolicy{AnyHost: true}, p) != "" {
		t.Errorf("policy(default) of a single-tenant fleet = %+v, %v; want no bounds", p, ok)
	}
	if _, ok := single("acme"); ok {
		t.Error("policy(acme) of a single-tenant fleet: known, want unknown")
	}

	policy := queue.Policy(settings(map[string]config.Tenant{
		"default": {},
		"acme": {
			Pools: []string{"gpu"}, Priorities: []string{"high"}, MaxRunning: 9, Network: []string{"Example.org"},
			Limits: config.TenantLimits{Timeout: time.Hour, MemoryMB: 4096, CPUs: 2, OutputBytes: 4096},
		},
	}))
	for tenant, want := range map[string]jobs.TenantPolicy{
		"default": {
			Pools: []string{"default"}, Priorities: []string{"normal", "low"}, MaxRunning: 3,
			MaxTimeout: 5 * time.Minute, MaxMemory: 512, MaxCPUs: 1, MaxOutput: 1 << 20,
		},
		"acme": {
			Pools: []string{"gpu"}, Priorities: []string{"high"}, MaxRunning: 9,
			MaxTimeout: time.Hour, MaxMemory: 4096, MaxCPUs: 2, MaxOutput: 4096,
			Network: []allowlist.Pattern{{Name: "example.org"}},
		},
	} {
		got, ok := policy(tenant)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("policy(%s): known %v (-want +got):\n%s", tenant, ok, diff)
		}
	}
	if _, ok := policy("other"); ok {
		t.Error("policy(other): known, want unknown")
	}
}
