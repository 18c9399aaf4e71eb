package ingest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// tokenIn is the body of POST /v1/tokens.
type tokenIn struct {
	Name      string    `json:"name,omitempty"`
	Tenant    string    `json:"tenant,omitempty"`
	Scopes    []string  `json:"scopes,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// identifyCreated returns the caller whose token, which an operator has created, has the given secret. A token of a
// tenant that was removed from the settings is unknown.
func (s *Server) identifyCreated(ctx context.Context, secret string) (identity, *apierror.Error) {
	t, life, err := s.queue.Identify(secret)
	if err == nil && t.Tenant != "" {
		err = s.queue.CheckTenant(ctx, t.Tenant)
		if _, refused := errors.AsType[*jobs.RefusedError](err); refused {
			err = jobs.ErrUnknownToken
		}
	}
	switch {
	case err == nil:
		return identity{name: t.Name, tenant: t.Tenant, scopes: t.Scopes, life: life}, nil
	case errors.Is(err, jobs.ErrUnknownToken):
		return identity{}, apierror.New(errcode.Unauthorized, "the bearer token is unknown")
	case errors.Is(err, jobs.ErrTokenExpired):
		e := apierror.New(errcode.Unauthorized, "the bearer token has expired")
		e.Hint = "ask the operator for a new token"
		return identity{}, e
	}
	e := apierror.New(errcode.Unavailable, "the bearer token cannot be checked now")
	e.Cause, e.Hint = err.Error(), "try again"
	return identity{}, e
}

// getTokens lists the tokens of the settings, and those that operators have created, without their secrets.
func (s *Server) getTokens(w http.ResponseWriter, r *http.Request) error {
	tenant := r.URL.Query().Get("tenant")
	list := []schemas.Token{}
	for _, t := range *s.tokens.Load() {
		if tenant == "" || tenant == t.Tenant {
			list = append(list, schemas.Token{Name: t.Name, Tenant: t.Tenant, Scopes: t.Scopes, Settings: true})
		}
	}
	created, err := s.queue.Tokens(r.Context(), tenant)
	return respondList(w, append(list, created...), err)
}

func (s *Server) postToken(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[tokenIn](s, w, r)
	if err != nil {
		return err
	}
	created, err := s.queue.CreateToken(r.Context(), schemas.Token{
		Name: in.Name, Tenant: in.Tenant, Scopes: in.Scopes, ExpiresAt: in.ExpiresAt,
		CreatedBy: identityOf(r.Context()).name,
	})
	return respond(w, created, err)
}

func (s *Server) deleteToken(w http.ResponseWriter, r *http.Request) error {
	err := s.queue.RevokeToken(r.Context(), r.PathValue("token"))
	if errors.Is(err, jobs.ErrUnknownToken) {
		e := apierror.New(errcode.UnknownToken, "there is no token with this id")
		e.Hint = "GET /v1/tokens lists the tokens; those of the settings are removed there"
		return e
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// getTenants lists the tenants of the settings, and those that operators have created.
func (s *Server) getTenants(w http.ResponseWriter, r *http.Request) error {
	list, err := s.queue.ListTenants(r.Context())
	list = slices.DeleteFunc(list, func(t schemas.Tenant) bool { return slices.Contains(s.o.Access.Tenants, t.Name) })
	for _, name := range s.o.Access.Tenants {
		list = append(list, schemas.Tenant{Name: name, Settings: true})
	}
	slices.SortFunc(list, func(a, b schemas.Tenant) int { return cmp.Compare(a.Name, b.Name) })
	return respondList(w, list, err)
}

func (s *Server) putTenant(w http.ResponseWriter, r *http.Request) error {
	t, err := s.queue.CreateTenant(r.Context(), r.PathValue("tenant"), identityOf(r.Context()).name)
	return respond(w, t, err)
}

func (s *Server) deleteTenant(w http.ResponseWriter, r *http.Request) error {
	tenant := r.PathValue("tenant")
	err := s.queue.RemoveTenant(r.Context(), tenant)
	if refused, _ := errors.AsType[*jobs.RefusedError](err); err == nil || refused != nil &&
		refused.Code == errcode.UnknownTenant { // an earlier request may have removed a part
		err = cmp.Or(s.automation.RemoveAll(r.Context(), tenant), err)
	}
	if inSettings, ok := errors.AsType[*jobs.InSettingsError](err); ok {
		e := apierror.New(errcode.InSettings, "%s", inSettings.Error())
		e.Hint = "remove it from `tenants` in the settings of every part, and restart them"
		return e
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (s *Server) postDrain(w http.ResponseWriter, r *http.Request) error {
	worker, err := s.queue.DrainWorker(r.Context(), r.PathValue("worker"), identityOf(r.Context()).name)
	switch {
	case errors.Is(err, jobs.ErrUnknownWorker):
		e := apierror.New(errcode.UnknownWorker, "no worker with this name is running")
		e.Hint = "GET /v1/fleet lists the workers"
		return e
	case errors.Is(err, jobs.ErrNotDrainable):
		e := apierror.New(errcode.NotDrainable, "this worker cannot be drained by an order")
		e.Cause = "it is part of a larger process, or its version does not support such orders"
		e.Hint = "end its process with SIGTERM, which drains it"
		return e
	}
	return respond(w, worker, err)
}
