package config

// The coming features that give settings a reader.
const (
	guardrailsAndPrivacy = "guardrails and privacy"
	sessionsAndSkills    = "sessions and skills"
	speed                = "speed"
)

// noEffectYet lists the settings that no code reads, each with the coming feature that will. The manual
// marks them, and a test keeps the list true.
var noEffectYet = map[string]string{
	"execution.skills_dir":             sessionsAndSkills,
	"guardrails.enabled":               guardrailsAndPrivacy,
	"guardrails.strict_mode":           guardrailsAndPrivacy,
	"guardrails.security_checks":       guardrailsAndPrivacy,
	"optimizations.tool_cache":         speed,
	"optimizations.parallel_discovery": speed,
}
