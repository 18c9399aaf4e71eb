package schemas

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/text"
)

// Pause stops workers from starting tasks of a tenant, of a task pool, or of the whole fleet. Running tasks continue,
// and tasks are still accepted.
type Pause struct {
	Target string    `json:"target"` // see CheckTarget
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`     // the name of the token that paused it
	Reason string    `json:"reason,omitempty"` // the owners of the tasks that wait can read it
}

// PauseFleet is the target of a pause of the whole fleet.
const PauseFleet = "fleet"

// CheckTarget returns an error unless s is the target of a pause: fleet, pool/NAME or tenant/NAME.
func CheckTarget(s string) error {
	kind, name, named := strings.Cut(s, "/")
	switch {
	case s == PauseFleet:
		return nil
	case named && kind == "pool":
		return CheckPool(name)
	case named && kind == "tenant":
		return CheckName(kind, name)
	}
	return fmt.Errorf("target %q: want fleet, pool/NAME or tenant/NAME", s)
}

// Why says what a task waits for.
type Why struct {
	TaskID  string `json:"task_id"`
	Status  Status `json:"status"`
	Rule    string `json:"rule"` // WhyEnded, WhyRunning and so on
	Message string `json:"message"`
	// Ahead is how many queued tasks of the same tenant, task pool and priority start before it. It is absent unless
	// the task is queued, and if its place is not known, as after a delay.
	Ahead *int `json:"ahead,omitempty"`
	// Until is when the reason ends by itself, if that is known.
	Until time.Time `json:"until,omitzero"`
	// EstimateS is the number of seconds until the task starts, estimated from the tenant's recent tasks and its share
	// of the slots. It is absent while there is no estimate.
	EstimateS *float64 `json:"estimate_s,omitempty"`
}

// Why.Rule: the reason why a task waits, or that it does not wait.
const (
	WhyEnded    = "ended"       // it does not wait: it has ended
	WhyRunning  = "running"     // it does not wait: it runs
	WhyApproval = "approval"    // it runs, and a tool call waits for a person's approval
	WhySandbox  = "sandbox"     // it has a worker, which has no free box
	WhyMemory   = "memory"      // it has a worker, which has no memory for its box
	WhyAt       = "at"          // the caller asked for a later start
	WhyRetry    = "retry"       // a run failed, and the next one is delayed
	WhyNoKey    = "no_key"      // workers do not have the key of its workspace
	WhyPaused   = "paused"      // an operator has paused its tenant, its task pool or the fleet
	WhyNoWorker = "no_worker"   // no worker serves its task pool and tenant
	WhyRate     = "rate"        // its tenant has started as many tasks as it may in this period
	WhyCap      = "max_running" // its tenant runs as many tasks as it may
	WhyTurn     = "turn"        // other tasks have their turn first
)

// TenantLimits limit a tenant and set its share of the fleet. For an absent field, the limit of the settings applies,
// if there is one.
type TenantLimits struct {
	// Weight is the tenant's share of the slots in relation to the weights of other tenants, from 1 to MaxWeight.
	Weight *int `json:"weight,omitempty"`
	// MaxRunning is how many tasks may run at once per task pool and priority.
	MaxRunning *int `json:"max_running,omitempty"`
	// Backlog is how many unfinished tasks the tenant may have. Above it, tasks are refused.
	Backlog *int `json:"backlog,omitempty"`
	// TaskRate is how many tasks may start per period. Further tasks stay queued.
	TaskRate Rate `json:"task_rate,omitempty"`
	// TokenRate is how many tokens of models the tenant's tasks may use per period. Further tasks that need a model are
	// delayed.
	TokenRate Rate `json:"token_rate,omitempty"`
	// ToolRates is how many calls of a tool may begin per period, by server/tool or server/*. Further calls wait.
	ToolRates map[string]Rate `json:"tool_rates,omitempty"`
}

// MaxWeight is the largest weight of a tenant.
const MaxWeight = 1000

// TenantLimitsInfo are the limits of one tenant.
type TenantLimitsInfo struct {
	Tenant string `json:"tenant"`
	// Set are the limits that were set at run time. They replace those of the settings.
	Set TenantLimits `json:"set"`
	// Limits are those that apply.
	Limits TenantLimits `json:"limits"`
}

// Rate is a number of things per period, such as 10/s, 600/m or 1000/h. A period begins with each second, minute or
// hour of the clock.
type Rate string

// Parse returns the number and the period. The empty rate is 0 per 0, which means no limit.
func (r Rate) Parse() (n int, per time.Duration, err error) {
	if r == "" {
		return 0, 0, nil
	}
	number, unit, _ := strings.Cut(string(r), "/")
	n, err = strconv.Atoi(number)
	per = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	if err != nil || n < 1 || n > maxLimit || per == 0 {
		return 0, 0, fmt.Errorf("rate %q: want a number from 1 to %d and a unit, such as 10/s, 600/m or 1000/h",
			text.Truncate(string(r), 40), maxLimit)
	}
	return n, per, nil
}

const maxLimit = 1_000_000_000

// Check returns the location of the first invalid limit, as a JSON Pointer, and what is wrong with it.
func (l TenantLimits) Check() (path string, err error) {
	for _, v := range []struct {
		path  string
		value *int
		limit int
	}{{"/weight", l.Weight, MaxWeight}, {"/max_running", l.MaxRunning, maxLimit}, {"/backlog", l.Backlog, maxLimit}} {
		if v.value != nil && (*v.value < 1 || *v.value > v.limit) {
			return v.path, fmt.Errorf("%d: want a number from 1 to %d", *v.value, v.limit)
		}
	}
	for _, v := range []struct {
		path string
		rate Rate
	}{{"/task_rate", l.TaskRate}, {"/token_rate", l.TokenRate}} {
		if _, _, err := v.rate.Parse(); err != nil {
			return v.path, err
		}
	}
	if len(l.ToolRates) > maxToolRates {
		return "/tool_rates", fmt.Errorf("%d rates: the limit is %d", len(l.ToolRates), maxToolRates)
	}
	for _, pattern := range slices.Sorted(maps.Keys(l.ToolRates)) {
		if len(pattern) > maxToolPattern {
			return "/tool_rates", fmt.Errorf("tool %.40q… has %d bytes; the limit is %d",
				pattern, len(pattern), maxToolPattern)
		}
		if !names.IsToolPattern(pattern) {
			return "/tool_rates", fmt.Errorf("tool %.40q: want server/tool or server/*", pattern)
		}
		if _, per, err := l.ToolRates[pattern].Parse(); err != nil {
			return "/tool_rates", fmt.Errorf("tool %s: %w", pattern, err)
		} else if per == 0 {
			return "/tool_rates", fmt.Errorf("tool %s has no rate", pattern)
		}
	}
	return "", nil
}

const (
	maxToolRates   = 100
	maxToolPattern = 200
)

// IsZero reports whether l sets no limit.
func (l TenantLimits) IsZero() bool {
	return l.Weight == nil && l.MaxRunning == nil && l.Backlog == nil && l.TaskRate == "" && l.TokenRate == "" &&
		len(l.ToolRates) == 0
}

// Over returns the limits of l, and those of base that l does not set.
func (l TenantLimits) Over(base TenantLimits) TenantLimits {
	return TenantLimits{
		Weight: cmp.Or(l.Weight, base.Weight), MaxRunning: cmp.Or(l.MaxRunning, base.MaxRunning),
		Backlog: cmp.Or(l.Backlog, base.Backlog), TaskRate: cmp.Or(l.TaskRate, base.TaskRate),
		TokenRate: cmp.Or(l.TokenRate, base.TokenRate), ToolRates: mergeRates(l.ToolRates, base.ToolRates),
	}
}

// mergeRates returns the rates of over, and those of base for which over has none.
func mergeRates(over, base map[string]Rate) map[string]Rate {
	if len(over) == 0 {
		return base
	}
	all := maps.Clone(over)
	for pattern, rate := range base {
		if _, set := all[pattern]; !set {
			all[pattern] = rate
		}
	}
	return all
}

// TenantUsage is what the tasks of a tenant used on a day.
type TenantUsage struct {
	Tenant       string  `json:"tenant"`
	Day          string  `json:"day"`           // in UTC, as in 2026-11-23
	Tasks        int     `json:"tasks"`         // tasks that ran and ended
	BoxSeconds   float64 `json:"box_seconds"`   // seconds of their runs, including repeated runs
	Tokens       int     `json:"tokens"`        // tokens of models
	BytesIn      int     `json:"bytes_in"`      // bytes of the tasks' data
	BytesOut     int     `json:"bytes_out"`     // bytes of output, results and artifacts
	NetworkBytes int     `json:"network_bytes"` // bytes of the programs' connections
	WaitP50S     float64 `json:"wait_p50_s"`    // half of its tasks began their first run within this time; approximate
	WaitP99S     float64 `json:"wait_p99_s"`    // 99 % of its tasks began theirs within this time
}

// Token is a bearer token, without its secret.
type Token struct {
	ID        string    `json:"id,omitempty"` // absent for a token of the settings
	Name      string    `json:"name"`         // identifies the token in lists and logs
	Tenant    string    `json:"tenant,omitempty"`
	Scopes    []string  `json:"scopes"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	CreatedBy string    `json:"created_by,omitempty"` // the name of the token that created it
	ExpiresAt time.Time `json:"expires_at,omitzero"`  // absent if it does not expire
	UsedAt    time.Time `json:"used_at,omitzero"`     // its latest use, rounded down to the hour
	Settings  bool      `json:"settings,omitempty"`   // whether it is from the settings
}

// NewToken is a token that was just created. Its secret is not stored and cannot be read again.
type NewToken struct {
	Token
	Secret string `json:"token"`
}

// Scopes of tokens.
const (
	ScopeSubmit   = "submit"   // submit and cancel tasks, and change workspaces
	ScopeRead     = "read"     // read the tenant's tasks, results, artifacts, dead letters and workspaces
	ScopeApprove  = "approve"  // approve or deny the tenant's pending tool calls
	ScopeTools    = "tools"    // serve functions as tools of the tenant
	ScopeOperator = "operator" // operate the fleet
)

// Scopes returns all scopes of tokens.
func Scopes() []string {
	return []string{ScopeSubmit, ScopeRead, ScopeApprove, ScopeTools, ScopeOperator}
}

// Tenant is a tenant of the fleet.
type Tenant struct {
	Name      string    `json:"name"`
	Settings  bool      `json:"settings"` // whether it is from the settings, which have its limits and permissions
	CreatedAt time.Time `json:"created_at,omitzero"`
	CreatedBy string    `json:"created_by,omitempty"` // the name of the token that created it
}
