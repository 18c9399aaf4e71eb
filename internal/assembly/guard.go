package assembly

import (
	"fmt"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/guardrails"
)

// guard returns a function that returns the guardrails for a tenant's tasks.
func guard(c *config.Config) (func(tenant string) *guardrails.Rules, error) {
	fleet := c.Guardrails.Options()
	others, err := guardrails.New(fleet, guardrails.Options{})
	if err != nil {
		return nil, fmt.Errorf("guardrails: %w", err)
	}
	byTenant := map[string]*guardrails.Rules{}
	for name, tenant := range c.Tenants {
		if byTenant[name], err = guardrails.New(fleet, tenant.Guardrails.Options()); err != nil {
			return nil, fmt.Errorf("tenants.%s.guardrails: %w", name, err)
		}
	}
	return func(tenant string) *guardrails.Rules {
		if r, ok := byTenant[tenant]; ok {
			return r
		}
		return others
	}, nil
}
