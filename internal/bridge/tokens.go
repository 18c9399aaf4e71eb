package bridge

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/clock"
)

const (
	principalTTL = 10 * time.Minute // an unused principal without sessions is dropped after this
	sessionTTL   = 24 * time.Hour   // an unused principal with sessions is dropped after this
)

// errBusy is returned while too many tokens are being verified.
var errBusy = errors.New("too many tokens are being verified")

// authenticate returns the principal of a request. It verifies a token with the fleet every Options.Recheck. The fleet
// also checks the token at each call, so a stale principal permits nothing that the fleet refuses.
func (b *Bridge) authenticate(r *http.Request) (*principal, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if (token == "" && b.needToken.Load()) || (token != "" && !strings.EqualFold(scheme, "Bearer")) {
		return nil, &client.APIError{Status: http.StatusUnauthorized, Message: "the request has no bearer token"}
	}
	key, now := sha256.Sum256([]byte(token)), time.Now()
	b.mu.Lock()
	p := b.principals[key]
	if p != nil {
		p.used = now
	}
	fresh := p != nil && now.Sub(p.checked) < b.o.Recheck
	b.mu.Unlock()
	if fresh {
		return p, nil
	}
	select {
	case b.verify <- struct{}{}:
		defer func() { <-b.verify }()
	case <-time.After(time.Second):
		return nil, errBusy
	}
	o := b.o.Fleet
	o.Token, o.Located.Credentials = token, false // never the bridge's own
	found, err := b.newPrincipal(r.Context(), o)
	if err == nil {
		err = found.identify(r.Context())
	}
	if err == nil && found.tenant == "" {
		err = &client.APIError{Status: http.StatusForbidden, Message: "this token does not belong to a tenant"}
	}
	if err != nil {
		if e, ok := errors.AsType[*client.APIError](err); ok && (e.Status == 401 || e.Status == 403) {
			b.forget(key, p)
		}
		return nil, err
	}
	return b.remember(key, found), nil
}

// recheck verifies the tokens of connected clients within Options.Recheck after the last verification, so that the
// streams of a token that was revoked, has expired, or has other scopes end. It runs until the bridge closes.
func (b *Bridge) recheck() {
	clock.Repeat(b.stopping, b.o.Recheck/2, func() {
		now := time.Now()
		b.mu.Lock()
		due := map[[32]byte]*principal{}
		for key, p := range b.principals {
			if now.Sub(p.checked) >= b.o.Recheck/2 { // the next time would be too late
				due[key] = p
			}
		}
		b.mu.Unlock()
		for key, p := range due {
			if p.connected() {
				b.recheckOne(key, p)
			}
		}
	})
}

func (b *Bridge) recheckOne(key [32]byte, p *principal) {
	ctx, cancel := context.WithTimeout(b.stopping, retryTime)
	defer cancel()
	id, err := p.noRetry.WhoAmI(ctx)
	e, refused := errors.AsType[*client.APIError](err)
	switch {
	case refused && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden):
		b.forget(key, p)
	case err == nil && (id.Tenant != p.tenant || !slices.Equal(id.Scopes, *p.scopes.Load())):
		b.forget(key, p)
	case err == nil:
		p.identity.Store(&id)
		p.asked.Store(time.Now().UnixNano())
		b.mu.Lock()
		p.checked = time.Now()
		b.mu.Unlock()
	}
}

// remember caches a principal and returns it. If the cache has an equal principal with the same token, remember
// refreshes and returns the cached one instead. It drops principals that are no longer used.
func (b *Bridge) remember(key [32]byte, found *principal) *principal {
	b.mu.Lock()
	var dropped []*principal
	for k, p := range b.principals {
		unused := found.checked.Sub(p.used)
		if unused > principalTTL && k != key && !p.connected() || unused > sessionTTL {
			dropped = append(dropped, p)
			delete(b.principals, k)
		}
	}
	p := b.principals[key]
	if p != nil && p.tenant == found.tenant && slices.Equal(*p.scopes.Load(), *found.scopes.Load()) &&
		p.identity.Load().Privacy == found.identity.Load().Privacy {
		p.checked = found.checked
		p.asked.Store(found.asked.Load())
	} else {
		if p != nil {
			dropped = append(dropped, p)
		}
		p = found
		b.principals[key] = p
	}
	b.mu.Unlock()
	for _, p := range dropped {
		p.close()
	}
	return p
}

// forget drops a principal of a token, which may be nil, and ends its sessions. It does nothing if the token has
// another principal meanwhile.
func (b *Bridge) forget(key [32]byte, p *principal) {
	b.mu.Lock()
	known := p != nil && b.principals[key] == p
	if known {
		delete(b.principals, key)
	}
	b.mu.Unlock()
	if known {
		p.close()
	}
}
