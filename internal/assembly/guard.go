package assembly

import (
	"fmt"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/guardrails"
)

// guard returns the rules for each tenant's programs.
func guard(c *config.Config) (func(tenant string) *guardrails.Rules, error) {
	g := c.Guardrails
	fleet := guardrails.Options{
		Level: levels[g.EffectiveLevel()], BlockedImports: g.BlockedImports, BlockedCalls: g.BlockedCalls,
		BlockedPatterns: g.BlockedPatterns,
	}
	others, err := guardrails.New(fleet, guardrails.Options{})
	if err != nil {
		return nil, fmt.Errorf("guardrails: %w", err)
	}
	byTenant := map[string]*guardrails.Rules{}
	for name, tenant := range c.Tenants {
		t := tenant.Guardrails
		byTenant[name], err = guardrails.New(fleet, guardrails.Options{
			Level: levels[t.Level], BlockedImports: t.BlockedImports, BlockedCalls: t.BlockedCalls,
			BlockedPatterns: t.BlockedPatterns,
		})
		if err != nil {
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

// levels maps the settings' names. A tenant that sets none has the weakest level, so that the fleet's applies.
var levels = map[string]guardrails.Level{
	"": guardrails.Off, config.GuardrailsOff: guardrails.Off, config.GuardrailsAdvise: guardrails.Advise,
	config.GuardrailsStrict: guardrails.Strict,
}
