package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/codefleet/codefleet/schemas"
)

// Types of what operators see and set. Package schemas documents their fields.
type (
	// Pause stops workers from starting tasks of a tenant, of a task pool, or of the whole fleet.
	Pause = schemas.Pause
	// TenantLimits limit a tenant and set its share of the fleet.
	TenantLimits = schemas.TenantLimits
	// TenantLimitsInfo are the limits of one tenant: those set at run time, and those that apply.
	TenantLimitsInfo = schemas.TenantLimitsInfo
	// TenantUsage is what the tasks of a tenant used on a day.
	TenantUsage = schemas.TenantUsage
	// Why says what a task waits for.
	Why = schemas.Why
)

// Why returns what a task waits for: the rule that holds it, its position and an estimate.
func (c *Client) Why(ctx context.Context, id string) (Why, error) {
	return get[Why](ctx, c, nil, "v1", "tasks", id, "why")
}

// Pauses returns what is paused. It needs the scope operator, as do Pause and Resume.
func (c *Client) Pauses(ctx context.Context) ([]Pause, error) {
	return get[[]Pause](ctx, c, nil, "v1", "pauses")
}

// Pause stops workers from starting tasks of a target: fleet, pool/NAME or tenant/NAME. Running tasks continue. The
// owners of the tasks that wait can read the reason.
func (c *Client) Pause(ctx context.Context, target, reason string) (Pause, error) {
	body := map[string]string{"target": target, "reason": reason}
	return sendJSON[Pause](ctx, c, http.MethodPost, body, "pause")
}

// Resume ends a pause. It reports whether the target was paused.
func (c *Client) Resume(ctx context.Context, target string) (was bool, err error) {
	r, err := sendJSON[struct {
		Was bool `json:"was_paused"`
	}](ctx, c, http.MethodPost, map[string]string{"target": target}, "resume")
	return r.Was, err
}

// AllLimits returns the limits of tenants that were set at run time. It needs the scope operator, as do Limits and
// SetLimits.
func (c *Client) AllLimits(ctx context.Context) ([]TenantLimitsInfo, error) {
	return get[[]TenantLimitsInfo](ctx, c, nil, "v1", "limits")
}

// Limits returns the limits of a tenant.
func (c *Client) Limits(ctx context.Context, tenant string) (TenantLimitsInfo, error) {
	return get[TenantLimitsInfo](ctx, c, nil, "v1", "limits", tenant)
}

// SetLimits replaces the limits of a tenant that were set at run time. The zero value restores the settings.
func (c *Client) SetLimits(ctx context.Context, tenant string, set TenantLimits) (TenantLimitsInfo, error) {
	return sendJSON[TenantLimitsInfo](ctx, c, http.MethodPut, set, "limits", tenant)
}

// UsageOptions select what Usage returns.
type UsageOptions struct {
	Since, Before string // days in UTC, as in 2026-11-23; the default is the last 30 days
	AllTenants    bool   // needs the scope operator
}

// Usage returns what tasks used, by tenant and day.
func (c *Client) Usage(ctx context.Context, o UsageOptions) ([]TenantUsage, error) {
	q := url.Values{}
	for name, value := range map[string]string{"since": o.Since, "before": o.Before} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if o.AllTenants {
		q.Set("all", "true")
	}
	return get[[]TenantUsage](ctx, c, q, "v1", "usage")
}

// sendJSON is change with a JSON body. It may be retried.
func sendJSON[T any](ctx context.Context, c *Client, method string, body any, path ...string) (v T, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return v, fmt.Errorf("encode request: %w", err)
	}
	return change[T](ctx, c, httpRequest{method: method, header: jsonHeader(), body: data}, path...)
}
