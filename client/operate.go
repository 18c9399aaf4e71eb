package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Types for operators. Package schemas documents their fields.
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
	// Tenant is a tenant of the fleet.
	Tenant = schemas.Tenant
	// Token is a bearer token, without its secret.
	Token = schemas.Token
	// NewToken is a token that was just created, with its secret.
	NewToken = schemas.NewToken
	// DeadLetter is a dead-lettered task with its record.
	DeadLetter = schemas.DeadLetter
)

// Why returns what a task waits for: the rule that holds it, its position and an estimate.
func (c *Client) Why(ctx context.Context, id string) (Why, error) {
	return get[Why](ctx, c, nil, "tasks", id, "why")
}

// Pauses returns what is paused. It needs the scope operator, as do Pause and Resume.
func (c *Client) Pauses(ctx context.Context) ([]Pause, error) {
	return get[[]Pause](ctx, c, nil, "pauses")
}

// Pause stops workers from starting tasks of a target: fleet, pool/NAME or tenant/NAME. Running tasks continue. The
// owners of the tasks that wait can read the reason.
func (c *Client) Pause(ctx context.Context, target, reason string) (Pause, error) {
	body := map[string]string{"target": target}
	if reason != "" {
		body["reason"] = reason
	}
	return sendJSON[Pause](ctx, c, http.MethodPost, body, "pause")
}

// Resume ends a pause. It reports whether the target was paused; after a lost response, that may be false.
func (c *Client) Resume(ctx context.Context, target string) (was bool, err error) {
	r, err := sendJSON[struct {
		Was bool `json:"was_paused"`
	}](ctx, c, http.MethodPost, map[string]string{"target": target}, "resume")
	return r.Was, err
}

// AllLimits returns the limits of tenants that were set at run time. It needs the scope operator, as do Limits,
// SetLimits and ChangeLimits.
func (c *Client) AllLimits(ctx context.Context) ([]TenantLimitsInfo, error) {
	return get[[]TenantLimitsInfo](ctx, c, nil, "limits")
}

// Limits returns the limits of a tenant.
func (c *Client) Limits(ctx context.Context, tenant string) (TenantLimitsInfo, error) {
	return get[TenantLimitsInfo](ctx, c, nil, "limits", tenant)
}

// SetLimits replaces the limits of a tenant that were set at run time. With the zero value, the limits
// of the configuration apply again.
func (c *Client) SetLimits(ctx context.Context, tenant string, set TenantLimits) (TenantLimitsInfo, error) {
	return sendJSON[TenantLimitsInfo](ctx, c, http.MethodPut, set, "limits", tenant)
}

// ChangeLimits sets limits of a tenant, and keeps those that change does not set.
func (c *Client) ChangeLimits(ctx context.Context, tenant string, change TenantLimits) (TenantLimitsInfo, error) {
	return sendJSON[TenantLimitsInfo](ctx, c, http.MethodPatch, change, "limits", tenant)
}

// UsageOptions select what Usage returns.
type UsageOptions struct {
	Since, Before string // days in UTC, as in 2026-11-23; the default is the last 30 days
	AllTenants    bool   // needs the scope operator
}

// Usage returns what tasks used, by tenant and day.
func (c *Client) Usage(ctx context.Context, o UsageOptions) ([]TenantUsage, error) {
	q := url.Values{}
	set(q, "since", o.Since)
	set(q, "before", o.Before)
	if o.AllTenants {
		q.Set("all", "true")
	}
	return get[[]TenantUsage](ctx, c, q, "usage")
}

// Tenants returns the tenants of the fleet. It needs the scope operator, as do all methods for tenants and tokens.
func (c *Client) Tenants(ctx context.Context) ([]Tenant, error) {
	return get[[]Tenant](ctx, c, nil, "tenants")
}

// CreateTenant adds a tenant, without a restart, and returns it. It is idempotent.
func (c *Client) CreateTenant(ctx context.Context, name string) (Tenant, error) {
	return sendRequest[Tenant](ctx, c, httpRequest{method: http.MethodPut}, "tenants", name)
}

// RemoveTenant removes a tenant that was created at run time, its tokens, schedules, triggers and webhooks. The
// request is not retried.
func (c *Client) RemoveTenant(ctx context.Context, name string) error {
	return c.remove(ctx, "tenants", name)
}

// Tokens returns the tokens of a tenant, or of all if tenant is empty, without their secrets.
func (c *Client) Tokens(ctx context.Context, tenant string) ([]Token, error) {
	q := url.Values{}
	set(q, "tenant", tenant)
	return get[[]Token](ctx, c, q, "tokens")
}

// TokenOptions describe a token to create.
type TokenOptions struct {
	Name      string    `json:"name,omitempty"`      // in lists and logs; the default is the token's id
	Tenant    string    `json:"tenant,omitempty"`    // empty for an operator's token, which needs Scopes
	Scopes    []string  `json:"scopes,omitempty"`    // the default is submit and read
	ExpiresAt time.Time `json:"expires_at,omitzero"` // the zero time means never
}

// CreateToken creates a token, which works at once. The secret in the result cannot be read again. The request is not
// retried.
func (c *Client) CreateToken(ctx context.Context, o TokenOptions) (NewToken, error) {
	return sendJSONOnce[NewToken](ctx, c, o, "tokens")
}

// RevokeToken revokes a token by its id: requests with the token are refused, and its streams end. The request that
// revokes the token is not retried.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.remove(ctx, "tokens", id)
}

// DrainWorker orders a worker to claim no more tasks, and to exit once its tasks have ended or were requeued. It
// returns at once, with the worker's presence before the order.
func (c *Client) DrainWorker(ctx context.Context, name string) (Worker, error) {
	return sendRequest[Worker](ctx, c, httpRequest{method: http.MethodPost}, "workers", name, "drain")
}

// DeadLetter returns the dead letter of a task, with its record.
func (c *Client) DeadLetter(ctx context.Context, id string) (DeadLetter, error) {
	return get[DeadLetter](ctx, c, nil, "dead", id)
}

// Retry runs a task again that has ended without success. A dead-lettered task runs again under its own id. Any other
// is submitted again as a new task, whose record Retry returns; repeated calls return the same new task. If the task
// has not ended or has succeeded, the error has the code "not_retryable". The request is not retried after a lost
// connection.
func (c *Client) Retry(ctx context.Context, id string) (Record, error) {
	return sendRequest[Record](ctx, c, httpRequest{method: http.MethodPost, once: true}, "tasks", id, "retry")
}

// Submission returns the submission of a task, without its times, reply subject and key.
func (c *Client) Submission(ctx context.Context, id string) (Submission, error) {
	return get[Submission](ctx, c, nil, "tasks", id, "submission")
}

// Rerun submits an old task's submission again, as a new task. If change is not nil, it may modify the submission
// first.
func (c *Client) Rerun(ctx context.Context, id string, change func(*Submission) error) (Record, error) {
	s, err := c.Submission(ctx, id)
	if err == nil && change != nil {
		err = change(&s)
	}
	if err != nil {
		return Record{}, err
	}
	return c.Submit(ctx, s)
}
