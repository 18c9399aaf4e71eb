package config

// Planned features whose settings exist already.
const (
	guardrailsAndPrivacy = "guardrails and privacy"
	sessionsAndSkills    = "sessions and skills"
	speed                = "speed"
)

// noEffectYet maps each setting that no code reads to the planned feature that will read it. The manual marks these
// settings, and a test checks the list.
var noEffectYet = map[string]string{
	"execution.skills_dir":             sessionsAndSkills,
	"guardrails.enabled":               guardrailsAndPrivacy,
	"guardrails.strict_mode":           guardrailsAndPrivacy,
	"guardrails.security_checks":       guardrailsAndPrivacy,
	"optimizations.tool_cache":         speed,
	"optimizations.parallel_discovery": speed,
}
