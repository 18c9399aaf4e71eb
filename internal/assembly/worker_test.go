package assembly

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/environments"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// Tasks of a tenant that requires a stronger sandbox are left to other workers.
func TestMinTier(t *testing.T) {
	c := config.Default()
	c.Tenants = map[string]config.Tenant{"any": {}, "some": {MinTier: "gvisor"}, "strict": {MinTier: "microsandbox"}}
	for tier, want := range map[string][]string{"gvisor": {"strict"}, "microsandbox": {}, "": {"some", "strict"}} {
		if diff := cmp.Diff(want, unserved(c, tier)); diff != "" {
			t.Errorf("unserved(%q) (-want +got):\n%s", tier, diff)
		}
	}
	serve := serves(c, "gvisor")
	for tenant, want := range map[string]bool{"any": true, "unknown": true, "strict": false} {
		if got := serve(tenant); got != want {
			t.Errorf("serves(gvisor)(%s) = %v, want %v", tenant, got, want)
		}
	}
}

// A worker whose boxes see the host's files refuses to start with several tenants.
func TestSeveralTenantsNeedTheirOwnFiles(t *testing.T) {
	c := config.Default()
	o := WorkerOptions{Config: c, Telemetry: &telemetry.Telemetry{Logger: slog.New(slog.DiscardHandler)}}
	hostFiles := executor.Info{Driver: "gvisor", Tier: "gvisor", Environment: "host /usr", ImageMultiTenant: true}
	check := func() error {
		return checkTenants(t.Context(), o, hostFiles,
			environments.New(environments.Options{Config: c, Info: hostFiles}).SharedWithHost())
	}
	c.Tenants = map[string]config.Tenant{"acme": {}}
	if err := check(); err != nil {
		t.Errorf("one tenant: %v, want nil", err)
	}
	c.Tenants["beta"] = config.Tenant{}
	if err := check(); err == nil || !strings.Contains(err.Error(), "may serve only one") {
		t.Errorf("two tenants: %v, want an error", err)
	}
	c.Execution.SandboxImage = "/srv/python.tar"
	if err := check(); err != nil {
		t.Errorf("two tenants with an image: %v, want nil", err)
	}
}
