package config

import (
	"reflect"
	"time"
)

// DefaultTenant is the tenant of a fleet whose settings name none.
const DefaultTenant = "default"

// SingleTenant reports whether the settings configure no tenant. The fleet's only tenant may then do everything.
func (c *Config) SingleTenant() bool {
	t, ok := c.Tenants[DefaultTenant]
	return ok && len(c.Tenants) == 1 && reflect.ValueOf(t).IsZero()
}

// Tenant configures one tenant: its credentials and its permissions.
type Tenant struct {
	// Bearer tokens of the tenant. They can be set in the file only.
	Tokens []Token `yaml:"tokens"`
	// Task pools that the tenant's tasks may use. The default is `default`.
	Pools []string `yaml:"pools"`
	// Priorities that the tenant's tasks may have. The default is normal and low.
	Priorities []string `yaml:"priorities"`
	// Maximum number of concurrent tasks in the whole fleet, for each task pool and priority. 0 selects
	// one less than a worker's slots.
	MaxRunning int `yaml:"max_running"`
	// Share of the slots in relation to other tenants with the same priority, from 1 to 1000, while
	// all have tasks. Shares are measured in slot-seconds. 0 selects 1.
	Weight int `yaml:"weight"`
	// Maximum number of queued, running and delayed tasks, in all task pools. Above it, tasks are refused with
	// the code backlog_full. 0 means that only queue.backlog applies. To tasks that the tenant itself publishes
	// on NATS, only queue.backlog ever applies.
	Backlog int `yaml:"backlog"`
	// How many tasks may start per period, such as 10/s, 600/m or 1000/h. Further tasks stay queued. By
	// default, there is no limit.
	TaskRate string `yaml:"task_rate" sample:"600/m"`
	// How many tokens of models the tenant's tasks may use per period, such as 20000/m. Further tasks that
	// need a model wait for the next period. By default, there is no limit.
	TokenRate string `yaml:"token_rate" sample:"20000/m"`
	// How many calls of a tool may begin per period, by server/tool or server/*, also with the names that
	// programs import. Further calls wait for the next period. By default, there is no limit.
	ToolRates map[string]string `yaml:"tool_rates"`
	// Tools that the tenant may see and call, as server/tool, server/* or *, with the names that
	// `codefleet tools list` prints. By default, it may call all tools. Tools that run in the box
	// (filesystem, database, and your own Python tools) are code like the program itself: a program can
	// import them even if they are not listed.
	Tools []string `yaml:"tools"`
	// The weakest sandbox that may run the tenant's programs, gvisor or microsandbox. Workers with a
	// weaker sandbox do not run them. By default, any sandbox may.
	MinTier string `yaml:"min_tier" sample:"microsandbox"`
	// Hosts that the tenant's tasks may request, such as example.org, *.example.org,
	// example.org:443, or "*". Private addresses and this host cannot be reached. By default, tasks
	// have no network.
	Network []string `yaml:"network"`
	// Model tokens that the tenant may spend per day (UTC). 0 selects llm.daily_tokens.
	DailyTokens int `yaml:"daily_tokens"`
	// Encryption of the tenant's workspaces, instead of workspaces.encryption. Destroying the
	// secrets erases the workspaces.
	Encryption Encryption `yaml:"encryption"`
	// Guardrails for the tenant's programs, in addition to the fleet's.
	Guardrails TenantGuardrails `yaml:"guardrails"`
	// Privacy of the tenant's tasks, in addition to the fleet's.
	Privacy TenantPrivacy `yaml:"privacy"`
	// Upper limits of one execution. 0 selects the fleet's default.
	Limits TenantLimits `yaml:"limits"`
}

// TenantGuardrails make the fleet's guardrails stricter for a tenant.
type TenantGuardrails struct {
	// off, advise or strict. The fleet's level applies if it is stricter.
	Level string `yaml:"level" sample:"strict"`
	// Modules that the tenant's programs should not import.
	BlockedImports []string `yaml:"blocked_imports"`
	// Functions that the tenant's programs should not use.
	BlockedCalls []string `yaml:"blocked_calls"`
	// Regular expressions (RE2) that the text of the tenant's programs should not match.
	BlockedPatterns []string `yaml:"blocked_patterns"`
	// Conditions on the inputs, tool arguments and results of the tenant's tasks.
	Rules []GuardrailCondition `yaml:"rules"`
}

// TenantLimits are the upper limits of one execution of a tenant's program.
type TenantLimits struct {
	// Time of one execution.
	Timeout time.Duration `yaml:"timeout"`
	// Memory of one execution.
	MemoryMB int `yaml:"memory_mb"`
	// Number of processors, from 0.01. 0 selects limits.cpus.
	CPUs float64 `yaml:"cpus"`
	// Bytes of standard output, and of standard error, of one execution.
	OutputBytes int64 `yaml:"output_bytes"`
	// Size of a workspace while a program runs. limits.workspace_mb is the upper bound, and the only bound
	// of what is pushed.
	WorkspaceMB int64 `yaml:"workspace_mb"`
}

// Token is a bearer token, stored as its hash.
type Token struct {
	// Name of the token in logs.
	Name string `yaml:"name" sample:"ci"`
	// SHA-256 of the token, 64 hexadecimal digits (`printf %s "$TOKEN" | sha256sum`). Set either
	// sha256 or file.
	SHA256 Secret `yaml:"sha256" sample:"HASH-OF-YOUR-TOKEN"`
	// File with the token itself.
	File string `yaml:"file"`
	// read (tasks and results), submit (and cancel), approve (tool calls that wait for approval),
	// tools (serve functions as tools over HTTP), operator (see and control the whole fleet: workers,
	// pauses, limits, tenants, tokens, metrics). The default of a tenant's token is read and submit, that
	// of an operator's token is operator.
	Scopes []string `yaml:"scopes"`
}
