package config

import (
	"reflect"
	"time"
)

// DefaultTenant is the tenant of a fleet whose settings name none.
const DefaultTenant = "default"

// SingleTenant reports whether the settings name no tenant. Its one tenant may do everything.
func (c *Config) SingleTenant() bool {
	t, ok := c.Tenants[DefaultTenant]
	return ok && len(c.Tenants) == 1 && reflect.ValueOf(t).IsZero()
}

// Tenant configures one tenant: who may act for it, and what it may use.
type Tenant struct {
	// Bearer tokens that authenticate the tenant. In the file only.
	Tokens []Token `yaml:"tokens"`
	// Pools that its tasks may use. Empty: `default` only.
	Pools []string `yaml:"pools"`
	// Priorities that its tasks may have. Empty: normal and low.
	Priorities []string `yaml:"priorities"`
	// Concurrent tasks in the whole fleet. 0: one less than the slots of a worker.
	MaxRunning int `yaml:"max_running"`
	// Tools that its programs may call and its users see, as server/tool or server/*. Empty: all.
	// Tools that run in the sandbox (filesystem, database, your own files) are code like the
	// program itself: they are only left out of lists and of selection.
	Tools []string `yaml:"tools"`
	// The weakest sandbox that may run its programs: gvisor or microsandbox. Workers with a weaker
	// one leave its tasks to others. Empty: any.
	MinTier string `yaml:"min_tier" sample:"microsandbox"`
	// Hosts that its tasks may request, as example.org, *.example.org, example.org:443, or "*".
	// Private addresses and this host cannot be reached. Empty: none.
	Network []string `yaml:"network"`
	// Tokens of models that it may spend in a day (UTC). 0: llm.daily_tokens.
	DailyTokens int `yaml:"daily_tokens"`
	// Encryption of its workspaces, instead of workspaces.encryption. Destroying the secrets erases
	// its workspaces.
	Encryption Encryption `yaml:"encryption"`
	// Upper limits of one run. 0: the default of the fleet.
	Limits TenantLimits `yaml:"limits"`
}

// TenantLimits are the upper limits of one run of a tenant.
type TenantLimits struct {
	// Time of one run.
	Timeout time.Duration `yaml:"timeout"`
	// Memory of one run.
	MemoryMB int `yaml:"memory_mb"`
	// Processors.
	CPUs float64 `yaml:"cpus"`
	// Output of one run.
	OutputBytes int64 `yaml:"output_bytes"`
	// Size of a workspace.
	WorkspaceMB int64 `yaml:"workspace_mb"`
}

// Token is a bearer token, stored as its hash.
type Token struct {
	// Name in logs.
	Name string `yaml:"name" sample:"ci"`
	// SHA-256 of the token, 64 hexadecimal digits (`printf %s "$TOKEN" | sha256sum`). Either this
	// or file.
	SHA256 Secret `yaml:"sha256" sample:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	// File with the token itself.
	File string `yaml:"file"`
	// read (tasks and results), submit (and cancel), approve (tool calls that wait for approval),
	// operator (workers, pools, metrics). Empty: read and submit.
	Scopes []string `yaml:"scopes"`
}
