package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Tokens that operators create at run time are in the bucket TOKENS, with the hashes of their secrets. Every interface
// that checks tokens follows the bucket.

// Keys of TOKENS.
const (
	tokenKey = "token." // token.<id>
	usedKey  = "used."  // used.<id>: the hour of the token's latest use
)

const (
	tokenPrefix = "cf_"
	usedStep    = time.Hour        // how exactly the latest use is recorded
	usedEvery   = 15 * time.Second // how often uses are written
)

// Errors of tokens.
var (
	ErrUnknownToken = errors.New("unknown token")
	ErrTokenExpired = errors.New("the token has expired")
	errTokensUnread = errors.New("the tokens have not been read yet")
)

// storedToken is a value of TOKENS.
type storedToken struct {
	schemas.Token
	SHA256 string `json:"sha256"`
}

// heldToken is a token in a process's copy.
type heldToken struct {
	storedToken
	life context.Context //nolint:containedctx // ends when the token expires or is revoked
	end  context.CancelFunc
}

// tokenSet is what TOKENS contains.
type tokenSet struct {
	byID, byHash map[string]*heldToken
	uses         map[string]time.Time // by id: the latest recorded use
	rev          uint64               // revision of the latest change
}

// tokenCopy is a process's copy of TOKENS.
type tokenCopy struct {
	mu        sync.Mutex
	following bool
	set       *tokenSet            // nil until the bucket was read
	fresh     map[string]time.Time // by id: uses that are not written yet
	changed   chan struct{}        // closed at the next change
}

func (c *Client) provisionTokens(ctx context.Context, replicas int) error {
	return c.provisionBucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketTokens, Description: "hashes of the tokens that operators have created",
		Storage: jetstream.FileStorage, History: 1, Replicas: replicas,
	})
}

// Identify returns the token whose secret is given, and a context that ends when the token expires or is revoked. The
// error is ErrUnknownToken or ErrTokenExpired, or another one while the tokens have not been read.
func (c *Client) Identify(secret string) (schemas.Token, context.Context, error) {
	sum := sha256.Sum256([]byte(secret))
	now := time.Now()
	t := &c.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.following {
		return schemas.Token{}, nil, ErrUnknownToken
	}
	if t.set == nil {
		return schemas.Token{}, nil, errTokensUnread
	}
	held := t.set.byHash[hex.EncodeToString(sum[:])]
	switch {
	case held == nil:
		return schemas.Token{}, nil, ErrUnknownToken
	case expired(held.Token, now):
		return schemas.Token{}, nil, ErrTokenExpired
	}
	if hour := now.UTC().Truncate(usedStep); t.set.uses[held.ID].Before(hour) {
		t.fresh[held.ID] = hour
	}
	return held.Token, held.life, nil
}

func expired(t schemas.Token, now time.Time) bool {
	return !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt)
}

// FollowTokens keeps the client's copy of the tokens up to date, and records their use, until ctx ends.
func (c *Client) FollowTokens(ctx context.Context) {
	t := &c.tokens
	t.mu.Lock()
	t.following, t.fresh, t.changed = true, map[string]time.Time{}, make(chan struct{})
	t.mu.Unlock()
	defer clock.Repeat(ctx, usedEvery, func() { c.writeUses(ctx) })()
	c.followBucket(ctx, bucketTokens, func() (func(jetstream.KeyValueEntry), func()) {
		next := &tokenSet{
			byID: map[string]*heldToken{}, byHash: map[string]*heldToken{}, uses: map[string]time.Time{},
		}
		apply := func(e jetstream.KeyValueEntry) {
			if err := t.apply(next, e); err != nil {
				c.opts.Log.WarnContext(ctx, "token not understood", "key", e.Key(), "error", err)
			}
		}
		return apply, func() { t.publish(next) }
	})
}

// apply applies a change of the bucket to a set.
func (t *tokenCopy) apply(set *tokenSet, e jetstream.KeyValueEntry) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	set.rev = e.Revision()
	if id, ok := strings.CutPrefix(e.Key(), usedKey); ok {
		if set.uses[id], _ = time.Parse(time.RFC3339, string(valueOf(e))); valueOf(e) == nil {
			delete(set.uses, id)
		}
		return nil
	}
	id, ok := strings.CutPrefix(e.Key(), tokenKey)
	if !ok {
		return nil // a key of a later version
	}
	if old := set.byID[id]; old != nil {
		old.end()
		delete(set.byID, id)
		delete(set.byHash, old.SHA256)
	}
	value := valueOf(e)
	if value == nil {
		return nil
	}
	var stored storedToken
	if err := json.Unmarshal(value, &stored); err != nil {
		return err
	}
	var held *heldToken
	if t.set != nil {
		held = t.set.byID[id]
	}
	if held == nil || held.SHA256 != stored.SHA256 || held.life.Err() != nil { // else the bucket was read again
		held = &heldToken{storedToken: stored}
		if stored.ExpiresAt.IsZero() {
			held.life, held.end = context.WithCancel(context.Background())
		} else {
			held.life, held.end = context.WithDeadline(context.Background(), stored.ExpiresAt)
		}
	}
	set.byID[id], set.byHash[stored.SHA256] = held, held
	return nil
}

// publish makes set the current one, and ends the contexts of tokens that it lacks.
func (t *tokenCopy) publish(set *tokenSet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.set != nil && t.set != set {
		for id, old := range t.set.byID {
			if set.byID[id] != old {
				old.end()
			}
		}
	}
	t.set = set
	close(t.changed)
	t.changed = make(chan struct{})
}

// await waits until the copy has a revision of the bucket, so that a process that changes the tokens obeys its own
// change at once. It gives up after tryTimeout.
func (t *tokenCopy) await(ctx context.Context, rev uint64) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	for {
		t.mu.Lock()
		current := !t.following || t.set != nil && t.set.rev >= rev
		changed := t.changed
		t.mu.Unlock()
		if current {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// writeUses records the latest uses of tokens.
func (c *Client) writeUses(ctx context.Context) {
	t := &c.tokens
	t.mu.Lock()
	uses := t.fresh
	t.fresh = map[string]time.Time{}
	for id := range uses {
		if t.set == nil || t.set.byID[id] == nil {
			delete(uses, id)
		}
	}
	t.mu.Unlock()
	if len(uses) == 0 {
		return
	}
	kv, err := c.js.KeyValue(ctx, bucketTokens)
	for id, hour := range uses {
		if err == nil {
			_, err = kv.Put(ctx, usedKey+id, []byte(hour.Format(time.RFC3339)))
		}
	}
	if err != nil && ctx.Err() == nil { // the next use is written instead
		c.opts.Log.WarnContext(ctx, "use of tokens not recorded", "error", err)
	}
}

// CreateToken creates a token with the given name, tenant, scopes and expiry. By default, it may submit and read. A
// token without a tenant is an operator's, and has the scope operator. The error is a *RefusedError if a value is not
// valid.
func (c *Client) CreateToken(ctx context.Context, t schemas.Token) (created schemas.NewToken, err error) {
	if t, err = c.checkToken(ctx, t); err != nil {
		return created, err
	}
	created = schemas.NewToken{Token: t, Secret: tokenPrefix + rand.Text()}
	sum := sha256.Sum256([]byte(created.Secret))
	data, err := json.Marshal(storedToken{Token: t, SHA256: hex.EncodeToString(sum[:])})
	if err != nil {
		return created, err
	}
	kv, err := c.js.KeyValue(ctx, bucketTokens)
	var rev uint64
	if err == nil {
		rev, err = kv.Create(ctx, tokenKey+t.ID, data)
	}
	if err != nil {
		return schemas.NewToken{}, fmt.Errorf("create token %s: %w", t.Name, err)
	}
	c.tokens.await(ctx, rev)
	return created, nil
}

// checkToken returns the token as it is to be stored.
func (c *Client) checkToken(ctx context.Context, t schemas.Token) (schemas.Token, error) {
	t.ID, t.Settings, t.UsedAt = strings.ToLower(rand.Text()[:12]), false, time.Time{}
	t.CreatedAt = time.Now().UTC().Truncate(time.Millisecond)
	t.Name = cmp.Or(t.Name, t.ID)
	if err := schemas.CheckName("token", t.Name); err != nil {
		return t, refuse(errcode.BadName, "/name", "%s", text.Truncate(err.Error(), maxText))
	}
	if t.Tenant != "" {
		if err := c.checkTenant(ctx, "/tenant", t.Tenant); err != nil {
			return t, err
		}
	}
	if len(t.Scopes) == 0 && t.Tenant == "" { // an empty request must not create an operator
		return t, refuse(errcode.BadData, "/tenant", "name a tenant, or the scope operator for a token of an operator")
	}
	if len(t.Scopes) == 0 {
		t.Scopes = []string{schemas.ScopeSubmit, schemas.ScopeRead}
	}
	t.Scopes = slices.Compact(slices.Sorted(slices.Values(t.Scopes)))
	for _, scope := range t.Scopes {
		if !slices.Contains(schemas.Scopes(), scope) {
			return t, refuse(errcode.BadData, "/scopes", "scope %q: want some of %s", text.Truncate(scope, maxText),
				strings.Join(schemas.Scopes(), ", "))
		}
		if t.Tenant == "" && scope != schemas.ScopeOperator {
			return t, refuse(errcode.BadData, "/tenant", "a token with the scope %s needs a tenant", scope)
		}
	}
	t.ExpiresAt = t.ExpiresAt.UTC()
	if expired(t, time.Now()) {
		return t, refuse(errcode.BadData, "/expires_at", "the time has passed")
	}
	return t, nil
}

// RevokeToken removes a token. The error is ErrUnknownToken if no token has this id.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	if !isTokenID(id) {
		return ErrUnknownToken
	}
	last, err := c.keyOfLeader(ctx, bucketTokens, tokenKey+id)
	if err == nil && len(last.Data) == 0 {
		return ErrUnknownToken
	}
	var kv jetstream.KeyValue
	if err == nil {
		kv, err = c.js.KeyValue(ctx, bucketTokens)
	}
	for _, key := range []string{usedKey + id, tokenKey + id} {
		if err == nil {
			err = kv.Purge(ctx, key)
		}
	}
	var s jetstream.KeyValueStatus
	if err == nil {
		s, err = kv.Status(ctx)
	}
	if err != nil {
		return fmt.Errorf("revoke token %s: %w", id, err)
	}
	if b, ok := s.(*jetstream.KeyValueBucketStatus); ok {
		c.tokens.await(ctx, b.StreamInfo().State.LastSeq)
	}
	return nil
}

// isTokenID reports whether s may be the id of a token.
func isTokenID(s string) bool {
	return s != "" && len(s) <= 32 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

// Tokens returns the tokens that operators have created, for a tenant or all, the newest first.
func (c *Client) Tokens(ctx context.Context, tenant string) ([]schemas.Token, error) {
	kv, err := c.js.KeyValue(ctx, bucketTokens)
	var entries []jetstream.KeyValueEntry
	if err == nil {
		entries, err = keysOf(ctx, kv, ">")
	}
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	list, uses := []schemas.Token{}, map[string]time.Time{}
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Key(), usedKey); ok {
			uses[id], _ = time.Parse(time.RFC3339, string(e.Value()))
			continue
		}
		id, ok := strings.CutPrefix(e.Key(), tokenKey)
		if !ok {
			continue // a key of a later version
		}
		var t storedToken
		if err := json.Unmarshal(e.Value(), &t); err != nil {
			return nil, fmt.Errorf("read token %s: %w", id, err)
		}
		if tenant == "" || t.Tenant == tenant {
			list = append(list, t.Token)
		}
	}
	for i := range list {
		list[i].UsedAt = uses[list[i].ID]
	}
	slices.SortFunc(list, func(a, b schemas.Token) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return list, nil
}
