package config

import (
	"github.com/codefleet/codefleet/internal/guardrails"
)

// Levels of guardrails, from the weakest.
const (
	GuardrailsOff    = "off"
	GuardrailsAdvise = "advise"
	GuardrailsStrict = "strict"
)

// EffectiveLevel returns the level that the settings select.
func (g Guardrails) EffectiveLevel() string {
	switch {
	case g.Level != "":
		return g.Level
	case !g.Enabled || !g.SecurityChecks:
		return GuardrailsOff
	case g.StrictMode:
		return GuardrailsStrict
	}
	return GuardrailsAdvise
}

// Options returns the settings of the fleet's guardrails.
func (g Guardrails) Options() guardrails.Options {
	return guardrails.Options{
		Level: guardrailLevels[g.EffectiveLevel()], BlockedImports: g.BlockedImports, BlockedCalls: g.BlockedCalls,
		BlockedPatterns: g.BlockedPatterns, Conditions: conditions(g.Rules),
	}
}

// Options returns the settings of a tenant's guardrails. The level is the weakest if none is set.
func (g TenantGuardrails) Options() guardrails.Options {
	return guardrails.Options{
		Level: guardrailLevels[g.Level], BlockedImports: g.BlockedImports, BlockedCalls: g.BlockedCalls,
		BlockedPatterns: g.BlockedPatterns, Conditions: conditions(g.Rules),
	}
}

var guardrailLevels = map[string]guardrails.Level{
	"": guardrails.Off, GuardrailsOff: guardrails.Off, GuardrailsAdvise: guardrails.Advise,
	GuardrailsStrict: guardrails.Strict,
}

func conditions(rules []GuardrailCondition) []guardrails.Condition {
	var list []guardrails.Condition
	for _, r := range rules {
		list = append(list, guardrails.Condition{
			Name: r.Name, On: r.On, Tools: r.Tools, Require: r.Require, Message: r.Message,
		})
	}
	return list
}

// guardrails checks the guardrails of the fleet or of a tenant.
func (k *checker) guardrails(key, level string, o guardrails.Options) {
	if level != "" {
		k.oneOf(key+".level", level, GuardrailsOff, GuardrailsAdvise, GuardrailsStrict)
	}
	for _, c := range o.Conditions {
		for _, id := range c.Tools {
			k.toolPattern(key+".rules", id)
		}
	}
	_, err := guardrails.New(o, guardrails.Options{})
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range list.Unwrap() {
			k.bad(key, "%v", err)
		}
	} else if err != nil {
		k.bad(key, "%v", err)
	}
}
