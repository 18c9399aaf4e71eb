package assembly_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/jobs"
)

func settings(tenants map[string]config.Tenant) *config.Config {
	c := config.Default()
	c.Tenants = tenants
	c.Worker.Slots = 4
	return c
}

func TestPolicy(t *testing.T) {
	single := assembly.Policy(settings(map[string]config.Tenant{"default": {}}))
	if p, ok := single("default"); !ok || cmp.Diff(jobs.TenantPolicy{AnyHost: true}, p) != "" {
		t.Errorf("the only tenant = %+v, %v; want no bounds", p, ok)
	}
	if _, ok := single("acme"); ok {
		t.Error("acme is known to a fleet that names no tenant")
	}

	policy := assembly.Policy(settings(map[string]config.Tenant{
		"default": {},
		"acme": {
			Pools: []string{"gpu"}, Priorities: []string{"high"}, MaxRunning: 9, Network: []string{"Example.org"},
			Limits: config.TenantLimits{Timeout: time.Hour, MemoryMB: 4096, CPUs: 2},
		},
	}))
	for tenant, want := range map[string]jobs.TenantPolicy{
		"default": {Pools: []string{"default"}, Priorities: []string{"normal", "low"}, MaxRunning: 3, MaxTimeout: 5 * time.Minute, MaxMemory: 512, MaxCPUs: 1},
		"acme":    {Pools: []string{"gpu"}, Priorities: []string{"high"}, MaxRunning: 9, MaxTimeout: time.Hour, MaxMemory: 4096, MaxCPUs: 2, Network: []allowlist.Pattern{{Name: "example.org"}}},
	} {
		got, ok := policy(tenant)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("policy(%s): known %v (-want +got):\n%s", tenant, ok, diff)
		}
	}
	if _, ok := policy("other"); ok {
		t.Error("policy(other): known")
	}
}

func TestTokens(t *testing.T) {
	sum := sha256.Sum256([]byte("secret"))
	hash := config.Secret(hex.EncodeToString(sum[:]))
	c := settings(map[string]config.Tenant{"acme": {Tokens: []config.Token{{Name: "ci", SHA256: hash}, {Name: "ro", SHA256: hash, Scopes: []string{"read"}}}}})
	c.Auth.Operators = []config.Token{{Name: "ops", SHA256: hash}}
	got, err := assembly.Tokens(c)
	want := []ingest.Token{
		{Name: "ops", SHA256: sum, Scopes: []string{"operator"}},
		{Name: "ci", SHA256: sum, Tenant: "acme", Scopes: []string{"submit", "read"}},
		{Name: "ro", SHA256: sum, Tenant: "acme", Scopes: []string{"read"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Tokens: %v (-want +got):\n%s", err, diff)
	}

	c = settings(map[string]config.Tenant{"default": {}})
	if _, err := assembly.Tokens(c); err == nil {
		t.Error("authentication without a token: no error")
	}
	c.Auth.Enabled = false
	if got, err := assembly.Tokens(c); got != nil || err != nil {
		t.Errorf("authentication off: %v, %v", got, err)
	}
}
