package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Tenants that operators create at run time are controls. They have the policy of a tenant without settings of its own.

// withCreated returns a policy that also knows the tenant if an operator has created it. A tenant that neither the
// policy nor this process's copy of the controls knows is looked up in the bucket, because it may be new. Call the
// returned policy only with this tenant.
func (c *Client) withCreated(ctx context.Context, policy Policy, tenant string) (Policy, error) {
	if policy == nil {
		return nil, nil
	}
	if _, known := policy(tenant); known {
		return policy, nil
	}
	created, err := c.IsCreated(ctx, tenant)
	return func(tenant string) (TenantPolicy, bool) {
		p, _ := policy(tenant)
		return p, created
	}, err
}

// IsCreated reports whether an operator has created the tenant. It asks the queue only about tenants that this
// process's copy of the controls lacks.
func (c *Client) IsCreated(ctx context.Context, tenant string) (bool, error) {
	if schemas.CheckName("tenant", tenant) != nil {
		return false, nil //nolint:nilerr // no tenant has such a name
	}
	if c.controls.Load().hasTenant(tenant) {
		return true, nil
	}
	last, err := c.keyOfLeader(ctx, bucketControls, tenantKey+tenant)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, fmt.Errorf("look up tenant %s: %w", tenant, err)
	}
	return len(last.Data) > 0, nil
}

// CheckTenant returns a *RefusedError if the tenant is neither in the settings nor created.
func (c *Client) CheckTenant(ctx context.Context, tenant string) error {
	return c.checkTenant(ctx, "tenant", tenant)
}

// hasTenant reports whether an operator has created the tenant.
func (s *controls) hasTenant(tenant string) bool {
	if s == nil {
		return false
	}
	_, ok := s.tenants[tenant]
	return ok
}

// CreatedTenants returns the tenants that operators have created, as far as this process knows.
func (c *Client) CreatedTenants() (names []string) {
	if s := c.controls.Load(); s != nil {
		for name := range s.tenants {
			names = append(names, name)
		}
	}
	return names
}

// CreateTenant adds a tenant, and returns it. It is idempotent. The error is a *RefusedError if the name is not valid.
func (c *Client) CreateTenant(ctx context.Context, name, by string) (schemas.Tenant, error) {
	t := schemas.Tenant{Name: name, CreatedBy: by, CreatedAt: time.Now().UTC().Truncate(time.Millisecond)}
	if err := schemas.CheckName("tenant", name); err != nil {
		return t, refuse(errcode.BadName, "tenant", "%s", text.Truncate(err.Error(), maxText))
	}
	if c.inSettings(name) {
		return schemas.Tenant{Name: name, Settings: true}, nil
	}
	s, err := c.readControls(ctx, tenantKey+name)
	if err != nil {
		return t, err
	}
	if existing, ok := s.tenants[name]; ok {
		return existing, nil
	}
	return t, c.putControl(ctx, tenantKey+name, t)
}

// RemoveTenant removes a tenant that an operator has created, with its tokens, limits and pause. Its workspaces and
// records stay. Its queued tasks, and all later ones, are refused. If the tenant is unknown, because it was removed
// from the settings, what it has of these is removed. The error is an *InSettingsError if the tenant is from the
// settings.
func (c *Client) RemoveTenant(ctx context.Context, name string) error {
	if c.inSettings(name) {
		return &InSettingsError{What: "tenant " + name}
	}
	unknown := c.checkTenant(ctx, "tenant", name)
	if refused, ok := errors.AsType[*RefusedError](unknown); unknown != nil &&
		(!ok || refused.Code == errcode.BadName) {
		return unknown
	}
	tokens, err := c.Tokens(ctx, name)
	if err != nil {
		return err
	}
	// A process that is lost between the writes leaves a tenant that can be removed again: a known one, or an unknown
	// one with limits or a pause. These come last, because without them the tasks of a known tenant would run.
	for _, t := range tokens {
		if err := c.RevokeToken(ctx, t.ID); err != nil && !errors.Is(err, ErrUnknownToken) {
			return err
		}
	}
	found := len(tokens) > 0
	for _, key := range []string{tenantKey + name, limitsKey + name, pauseKeyOf("tenant/" + name)} {
		existed, err := c.dropControl(ctx, key)
		if err != nil {
			return err
		}
		found = found || existed
	}
	if !found {
		return unknown
	}
	return nil
}

// ListTenants returns the tenants that operators have created.
func (c *Client) ListTenants(ctx context.Context) (list []schemas.Tenant, err error) {
	s, err := c.readControls(ctx, tenantKey+">")
	if err != nil {
		return nil, err
	}
	for _, t := range s.tenants {
		list = append(list, t)
	}
	return list, nil
}

// inSettings reports whether the settings name a tenant.
func (c *Client) inSettings(tenant string) bool {
	if c.opts.Policy == nil {
		return false
	}
	_, ok := c.opts.Policy(tenant)
	return ok
}

// InSettingsError says that a tenant or a token cannot be removed, because it is in the settings.
type InSettingsError struct{ What string }

func (e *InSettingsError) Error() string {
	return e.What + " is from the settings, and can be removed only there"
}
