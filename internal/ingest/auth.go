package ingest

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// Scopes of tokens.
const (
	ScopeSubmit   = schemas.ScopeSubmit
	ScopeRead     = schemas.ScopeRead
	ScopeApprove  = schemas.ScopeApprove
	ScopeTools    = schemas.ScopeTools
	ScopeOperator = schemas.ScopeOperator
)

// Scopes of routes that are not scopes of tokens.
const (
	anyScope = "any"    // requires a valid token with any scopes
	public   = "public" // requires no token, unless the handler checks one itself
)

// Token is an accepted bearer token. It contains the token's hash, not its secret.
type Token struct {
	Name   string // identifies the token in logs
	SHA256 [32]byte
	Tenant string // empty for an operator without a tenant
	Scopes []string
}

// identity is the caller of a request.
type identity struct {
	name, tenant string
	scopes       []string
	life         context.Context //nolint:containedctx // ends with the token; nil for a token of the settings
}

// anonymous is the caller of every request while authentication is off.
var anonymous = identity{
	name:   "anonymous",
	tenant: "default",
	scopes: []string{ScopeSubmit, ScopeRead, ScopeApprove, ScopeTools, ScopeOperator},
}

type identityKey struct{}

func identityOf(ctx context.Context) identity {
	id, _ := ctx.Value(identityKey{}).(identity)
	return id
}

// authenticate returns the caller of a request. It compares the hashes of all tokens of the settings, each in constant
// time, so that the duration reveals nothing about them. A token that is not in the settings may be one that an
// operator has created.
func (s *Server) authenticate(r *http.Request) (identity, *apierror.Error) {
	tokens := *s.tokens.Load()
	if len(tokens) == 0 {
		return anonymous, nil
	}
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	secret = strings.TrimSpace(secret)
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		e := apierror.New(errcode.Unauthorized, "the request has no bearer token")
		e.Hint = "send the header Authorization: Bearer TOKEN; a token in the URL is ignored"
		return identity{}, e
	}
	sum := sha256.Sum256([]byte(secret))
	found := -1
	for i := range tokens {
		if subtle.ConstantTimeCompare(sum[:], tokens[i].SHA256[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return s.identifyCreated(r.Context(), secret)
	}
	t := tokens[found]
	return identity{name: t.Name, tenant: t.Tenant, scopes: t.Scopes}, nil
}

// permit returns an error unless the caller has the scope and, except for ScopeOperator, a tenant. It permits anyScope.
func permit(id identity, scope string) *apierror.Error {
	if scope == anyScope {
		return nil
	}
	if !slices.Contains(id.scopes, scope) {
		e := apierror.New(errcode.Forbidden, "this token does not permit the request")
		e.Cause = "it lacks the scope " + scope
		return e
	}
	if scope != ScopeOperator && id.tenant == "" {
		e := apierror.New(errcode.Forbidden, "this token does not belong to a tenant")
		e.Hint = "use a token of the tenant"
		return e
	}
	return nil
}
