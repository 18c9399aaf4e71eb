package assembly

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/config"
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
