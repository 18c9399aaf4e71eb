package config

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/executor/drivers"
	"github.com/codefleet/codefleet/internal/guardrails"
)

// noEffectYet lists the settings that no code reads. Their defaults describe what the fleet does anyway. The manual
// marks these settings, and a test checks that the list is complete.
var noEffectYet = []string{"optimizations.parallel_discovery", "optimizations.tool_cache"}

// dependent is a group of settings that have no effect because of other settings.
type dependent struct {
	keys []string // as patterns of path.Match
	// idle reports whether the settings have no effect. name is that of the tenant, task pool or profile, if they have
	// one.
	idle func(c *Config, name string) bool
	why  string
}

var dependents = []dependent{
	{
		[]string{"privacy.types", "privacy.key_file", "privacy.ttl", "privacy.recognizer.*"},
		func(c *Config, _ string) bool { return !c.PrivacyEnabled() },
		"no effect: nothing is replaced, because privacy.mode is off",
	},
	{
		[]string{"privacy.recognizer.*"},
		func(c *Config, _ string) bool { return c.Privacy.Recognizer.URL == "" },
		"no effect: there is no recognizer without privacy.recognizer.url",
	},
	{
		[]string{"privacy.restore"},
		func(c *Config, _ string) bool { return !c.anyTenant(c.brokers) },
		"no effect: programs and tools get values unless privacy.mode is broker",
	},
	{
		[]string{"tenants.*.privacy.types"},
		func(c *Config, tenant string) bool { return c.PrivacyMode(tenant) == "" },
		"no effect: nothing is replaced, because the mode of the tenant's privacy and privacy.mode are off",
	},
	{
		[]string{"tenants.*.privacy.restore"},
		func(c *Config, tenant string) bool { return !c.brokers(tenant) },
		"no effect: programs and tools get values unless the mode of the tenant's privacy or privacy.mode is broker",
	},
	{
		[]string{"tenants.*.privacy.mode"},
		func(c *Config, tenant string) bool {
			return privacyModes[c.Tenants[tenant].Privacy.Mode] < privacyModes[c.Privacy.Mode]
		},
		"no effect: privacy.mode replaces more, and a tenant's mode cannot weaken it",
	},
	{
		[]string{"guardrails.enabled", "guardrails.strict_mode", "guardrails.security_checks"},
		func(c *Config, _ string) bool { return c.Guardrails.Level != "" },
		"no effect: guardrails.level decides",
	},
	{
		[]string{"guardrails.strict_mode"},
		func(c *Config, _ string) bool {
			return c.Guardrails.Level == "" && c.Guardrails.EffectiveLevel() == GuardrailsOff
		},
		"no effect: programs are not checked, because guardrails.enabled or guardrails.security_checks is false",
	},
	{
		[]string{
			"guardrails.blocked_imports", "guardrails.blocked_calls", "guardrails.blocked_patterns",
			"guardrails.rules",
		},
		func(c *Config, _ string) bool { return !c.anyTenant(c.guarded) },
		"no effect: programs are not checked, because guardrails are off (guardrails.level, enabled, security_checks)",
	},
	{
		[]string{
			"tenants.*.guardrails.blocked_imports", "tenants.*.guardrails.blocked_calls",
			"tenants.*.guardrails.blocked_patterns", "tenants.*.guardrails.rules",
		},
		func(c *Config, tenant string) bool { return !c.guarded(tenant) },
		"no effect: programs are not checked, because the guardrails of the tenant and of the fleet are off",
	},
	{
		[]string{"tenants.*.guardrails.level"},
		func(c *Config, tenant string) bool {
			return guardrailLevels[c.Tenants[tenant].Guardrails.Level] <
				guardrailLevels[c.Guardrails.EffectiveLevel()]
		},
		"no effect: the fleet's guardrails are stricter, and a tenant's level cannot weaken them",
	},
	{
		[]string{"tenants.*.limits.workspace_mb"},
		func(c *Config, tenant string) bool {
			return c.Tenants[tenant].Limits.WorkspaceMB > c.Limits.WorkspaceMB
		},
		"no effect: limits.workspace_mb, the upper bound, is less",
	},
	{
		[]string{
			"workspaces.keep_newest", "workspaces.keep_all", "workspaces.keep_days", "workspaces.inactive",
			"workspaces.keep_deleted", "workspaces.grace",
		},
		func(c *Config, _ string) bool { return c.Workspaces.CleanEvery == 0 },
		"no effect: nothing is removed, because workspaces.clean_every is 0",
	},
	{
		[]string{"telemetry.logs", "telemetry.sample"},
		func(c *Config, _ string) bool { return c.Telemetry.Endpoint == "" },
		"no effect: nothing is sent without telemetry.endpoint",
	},
	{
		[]string{"embeddings.dimensions", "embeddings.base_url", "embeddings.api_key", "embeddings.deadline"},
		func(c *Config, _ string) bool { return c.Embeddings.Model == "" && c.LLM.AzureEmbedderName == "" },
		"no effect: embeddings.model (or llm.azure_embedder_name) is missing",
	},
	{
		[]string{
			"llm.provider", "llm.model", "llm.azure_deployment_name", "llm.azure_api_key", "llm.azure_api_version",
		},
		func(c *Config, _ string) bool { return c.ModelWithoutKey() && !c.borrowsModel() },
		noModel,
	},
	{
		[]string{
			"llm.temperature", "llm.max_tokens", "llm.timeout", "llm.repair_attempts", "llm.daily_tokens",
			"llm.task_tokens", "tenants.*.daily_tokens", "tenants.*.token_rate",
		},
		func(c *Config, _ string) bool { return c.ModelWithoutKey() && len(c.LLM.Profiles) == 0 },
		noModel,
	},
	{
		[]string{"llm.openai_api_key"},
		func(c *Config, _ string) bool { return c.LLM.APIKey != "" && c.LLM.Provider != azureProvider },
		"no effect: llm.api_key takes precedence",
	},
	{
		[]string{"llm.azure_api_key"},
		func(c *Config, _ string) bool { return c.LLM.APIKey != "" && c.LLM.Provider == azureProvider },
		"no effect: llm.api_key takes precedence",
	},
	{
		[]string{
			"llm.azure_endpoint", "llm.azure_deployment_name", "llm.azure_api_key", "llm.azure_api_version",
		},
		func(c *Config, _ string) bool { return !c.usesAzure() },
		"no effect: llm.provider is openai, and neither a profile nor embeddings use azure_openai",
	},
	{
		[]string{"llm.azure_embedder_name"},
		func(c *Config, _ string) bool { return c.Embeddings.Model != "" },
		"no effect: embeddings.model takes precedence",
	},
	{
		[]string{"llm.azure_embedder_version"},
		func(c *Config, _ string) bool { return !c.azureEmbeddings() },
		"no effect: the model of embeddings is not one of azure_openai",
	},
	{
		[]string{"llm.profiles.*.api_version"},
		func(c *Config, profile string) bool { return c.providerOf(c.LLM.Profiles[profile]) != azureProvider },
		"no effect: only azure_openai has API versions, but the provider of the profile is openai",
	},
	{
		[]string{"llm.daily_tokens", "llm.task_tokens", "tenants.*.daily_tokens", "tenants.*.token_rate"},
		func(c *Config, _ string) bool {
			return !c.LLM.Enabled && !c.ModelWithoutKey() && len(c.LLM.Profiles) == 0
		},
		"no effect: the rules write programs, because llm.enabled is false",
	},
	{
		[]string{"execution.rootfs", "execution.runsc"},
		func(c *Config, _ string) bool { return c.Execution.SandboxType == drivers.Microsandbox },
		"no effect: only gVisor uses it, but execution.sandbox_type is microsandbox",
	},
	{
		[]string{"execution.state.auto_save"},
		func(c *Config, _ string) bool { return !c.Execution.State.Enabled },
		"no effect: execution.state.enabled is false",
	},
	{
		[]string{"optimizations.sandbox_pool_size", "pools.*.ready"},
		func(c *Config, _ string) bool { return !c.Optimizations.Pools() },
		"no effect: no boxes are kept ready, because optimizations.enabled or optimizations.sandbox_pooling is false",
	},
	{
		[]string{"tools.approval_timeout"},
		func(c *Config, _ string) bool {
			policies := slices.Collect(maps.Values(c.Tools.Policy))
			return c.Tools.Destructive != approve && !slices.Contains(policies, approve)
		},
		"no effect: no call waits for approval unless tools.destructive or a policy of tools.policy is approve",
	},
	{
		[]string{"tools.approval_timeout"},
		func(c *Config, _ string) bool {
			return c.Tools.ApprovalTimeout > min(c.Tools.CallTimeout, c.maxTimeout())
		},
		"no effect: calls end before this time: raise tools.call_timeout and guardrails.max_execution_time, " +
			"which include it",
	},
	{
		[]string{"page.read_only", "page.prefix"},
		func(c *Config, _ string) bool { return !c.Page.Enabled },
		"no effect: page.enabled is false",
	},
	{
		[]string{"auth.operators", "tenants.*.tokens"},
		func(c *Config, _ string) bool { return !c.Auth.Enabled },
		"no effect: no request needs a token, because auth.enabled is false",
	},
}

const (
	approve       = "approve" // a policy for calls of tools
	azureProvider = "azure_openai"
	noModel       = "no effect: the rules write programs; to use a model, " // ends with ModelKeys
)

// ModelKeys says which settings enable a model of the provider.
func (c *Config) ModelKeys() string {
	switch {
	case c.LLM.Provider == azureProvider:
		return "set llm.azure_endpoint"
	case c.Origin("llm.provider").Layer != LayerDefault:
		return "set OPENAI_API_KEY or llm.base_url"
	}
	return "set OPENAI_API_KEY, llm.base_url or llm.azure_endpoint"
}

// ModelWithoutKey reports whether the rules write programs only because the settings have no key and no address of a
// model.
func (c *Config) ModelWithoutKey() bool {
	return !c.LLM.Enabled && c.Origin("llm.enabled").Layer == LayerDefault
}

// borrowsModel reports whether profiles or embeddings use settings of the section llm.
func (c *Config) borrowsModel() bool {
	return len(c.LLM.Profiles) > 0 || c.Embeddings.Model != "" || c.LLM.AzureEmbedderName != ""
}

// providerOf returns the provider of a profile.
func (c *Config) providerOf(p LLMProfile) string { return cmp.Or(p.Provider, c.LLM.Provider) }

// usesAzure reports whether the provider of the section llm, of a profile or of embeddings is azure_openai.
func (c *Config) usesAzure() bool {
	azure := c.LLM.Provider == azureProvider || c.azureEmbeddings()
	for _, p := range c.LLM.Profiles {
		azure = azure || c.providerOf(p) == azureProvider
	}
	return azure
}

// azureEmbeddings reports whether azure_openai computes embeddings.
func (c *Config) azureEmbeddings() bool {
	if c.Embeddings.Model == "" {
		return c.LLM.AzureEmbedderName != ""
	}
	return c.LLM.Provider == azureProvider && c.Embeddings.BaseURL == ""
}

// brokers reports whether the mode of a tenant is broker.
func (c *Config) brokers(tenant string) bool { return c.PrivacyMode(tenant) == PrivacyBroker }

// guarded reports whether the programs of a tenant are checked.
func (c *Config) guarded(tenant string) bool {
	return max(guardrailLevels[c.Guardrails.EffectiveLevel()],
		guardrailLevels[c.Tenants[tenant].Guardrails.Level]) > guardrails.Off
}

// anyTenant reports whether ok is true for a tenant.
func (c *Config) anyTenant(ok func(tenant string) bool) bool {
	for name := range c.Tenants {
		if ok(name) {
			return true
		}
	}
	return false
}

// maxTimeout returns the longest time that a task of any tenant can have.
func (c *Config) maxTimeout() time.Duration {
	longest := c.Guardrails.MaxExecutionTime
	for _, t := range c.Tenants {
		longest = max(longest, t.Limits.Timeout)
	}
	return longest
}

// match reports whether a key belongs to the group.
func (d dependent) match(key string) bool {
	return slices.ContainsFunc(d.keys, func(pattern string) bool {
		ok, _ := path.Match(pattern, key) // the patterns are valid
		return ok
	})
}

// warnNoEffect warns of each given setting that changes nothing. A default value is not worth a warning.
func (l *loader) warnNoEffect() {
	defaults, seen := Default().byKey(), map[string]bool{}
	for _, v := range l.cfg.Values() {
		key, _, isItem := strings.Cut(v.Key, "[")
		from := l.cfg.Origin(key)
		if from.Layer == LayerDefault || !isItem && v.Value == defaults[v.Key] || seen[key] {
			continue
		}
		seen[key] = true
		if slices.Contains(noEffectYet, key) {
			l.warn(settingOf(from, key), "no effect yet")
		}
		for _, d := range dependents {
			ofModel := d.why == noModel || strings.HasPrefix(key, "llm.")
			if !d.match(key) || !d.idle(l.cfg, nameIn(key)) || ofModel && l.cfg.source.NoModel {
				continue
			}
			why := d.why
			if why == noModel {
				why += l.cfg.ModelKeys()
			}
			l.warn(settingOf(from, key), why)
			break
		}
	}
}

// nameIn returns the name of the tenant, task pool or profile of a setting, or "" for the settings of the fleet.
func nameIn(key string) string {
	for _, section := range []string{"tenants.", "pools.", "llm.profiles."} {
		if rest, ok := strings.CutPrefix(key, section); ok {
			name, _, _ := strings.Cut(rest, ".")
			return name
		}
	}
	return ""
}

// settingOf returns where a setting was given, and its key if the place does not name it.
func settingOf(from Origin, key string) string {
	if from.Layer == LayerFile {
		return from.Where + ": " + key
	}
	return from.Where
}
