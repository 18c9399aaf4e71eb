package config

import (
	"reflect"
	"time"
)

// DefaultTenant is the tenant of a fleet whose settings name none.
const DefaultTenant = "default"

// SingleTenant reports whether the settings name no tenant, so that the fleet belongs to whoever
// runs it.
func (c *Config) SingleTenant() bool {
	t, ok := c.Tenants[DefaultTenant]
	return ok && len(c.Tenants) == 1 && reflect.ValueOf(t).IsZero()
}

// Tenant is one identity: who may speak for it, and what it may have.
type Tenant struct {
	// Bearer tokens that speak for it. In the file only.
	Tokens []Token `yaml:"tokens"`
	// Pools that its tasks may go to. Empty: the pool `default` only.
	Pools []string `yaml:"pools"`
	// Priorities that it may ask for. Empty: normal and low.
	Priorities []string `yaml:"priorities"`
	// Tasks running at a time in the whole fleet. 0: one less than the slots of a worker.
	MaxRunning int `yaml:"max_running"`
	// Tools that its programs may call, as server/tool or server/*; it is shown no others. Empty: all.
	// Tools that run in the sandbox (filesystem, database, files of your own) are code like the program's
	// own, and are left out of lists and of its choice only.
	Tools []string `yaml:"tools"`
	// The weakest sandbox that its programs may run in: gvisor or microsandbox. Hosts that have a
	// weaker one leave its tasks to others. Empty: any.
	MinTier string `yaml:"min_tier" sample:"microsandbox"`
	// Hosts that its tasks may ask to reach, as example.org, *.example.org, example.org:443, or "*".
	// Private addresses and this host are never reached. Empty: none.
	Network []string `yaml:"network"`
	// Tokens of models that it may spend in a day of UTC. 0: as llm.daily_tokens says.
	DailyTokens int `yaml:"daily_tokens"`
	// What its workspaces are encrypted with, instead of workspaces.encryption. To destroy its secrets is
	// to erase its workspaces.
	Encryption Encryption `yaml:"encryption"`
	// The most that one run may ask for. 0: the fleet's default and no more.
	Limits TenantLimits `yaml:"limits"`
}

// TenantLimits are the most that one run of a tenant may ask for.
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

// Token is one bearer token, known by its hash.
type Token struct {
	// Name in logs.
	Name string `yaml:"name" sample:"ci"`
	// SHA-256 of the token, 64 hexadecimal digits (`printf %s "$TOKEN" | sha256sum`); or
	SHA256 Secret `yaml:"sha256" sample:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	// a file that holds the token itself. Load reads it and fills sha256.
	File string `yaml:"file"`
	// read (tasks and results), submit (and cancel), approve (tool calls that wait for approval),
	// operator (workers, pools, metrics). Empty: read and submit.
	Scopes []string `yaml:"scopes"`
}
