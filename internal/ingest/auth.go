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
)

// Scopes of tokens.
const (
	ScopeSubmit   = "submit"   // submit and cancel tasks, and change workspaces, as tasks do
	ScopeRead     = "read"     // see the tasks of one's tenant, their results, artifacts and dead letters, and its workspaces
	ScopeApprove  = "approve"  // say yes or no to tool calls of one's tenant that wait for it
	ScopeOperator = "operator" // see workers, pools, backlog and metrics
)

// Token is one bearer token, known by its hash. Tenant is empty for an operator who is no tenant.
type Token struct {
	Name   string   // in logs
	SHA256 [32]byte // of the token
	Tenant string
	Scopes []string
}

// identity is who asks.
type identity struct {
	name, tenant string
	scopes       []string
}

// everyone is who asks when authentication is off.
var everyone = identity{name: "anonymous", tenant: "default", scopes: []string{ScopeSubmit, ScopeRead, ScopeApprove, ScopeOperator}}

type identityKey struct{}

func identityOf(ctx context.Context) identity {
	id, _ := ctx.Value(identityKey{}).(identity)
	return id
}

// authenticate finds out who asks. It compares the hashes of all tokens, each in constant time, so
// that the time it takes tells nothing about them.
func (s *Server) authenticate(r *http.Request) (identity, *apierror.Error) {
	if len(s.o.Access.Tokens) == 0 {
		return everyone, nil
	}
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	secret = strings.TrimSpace(secret)
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		e := apierror.New(errcode.Unauthorized, "the request carries no bearer token")
		e.Hint = "send the header Authorization: Bearer TOKEN; a token in the address is not read"
		return identity{}, e
	}
	sum := sha256.Sum256([]byte(secret))
	found := -1
	for i := range s.o.Access.Tokens {
		if subtle.ConstantTimeCompare(sum[:], s.o.Access.Tokens[i].SHA256[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return identity{}, apierror.New(errcode.Unauthorized, "the bearer token is not known")
	}
	t := s.o.Access.Tokens[found]
	return identity{name: t.Name, tenant: t.Tenant, scopes: t.Scopes}, nil
}

// permit says whether id may do what scope is for.
func permit(id identity, scope string) *apierror.Error {
	if !slices.Contains(id.scopes, scope) {
		e := apierror.New(errcode.Forbidden, "this token may not do that")
		e.Cause = "it does not have the scope " + scope
		return e
	}
	if scope != ScopeOperator && id.tenant == "" {
		e := apierror.New(errcode.Forbidden, "this token belongs to no tenant")
		e.Hint = "use a token of the tenant whose task it is"
		return e
	}
	return nil
}
