package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/logtest"
	"github.com/codefleet/codefleet/schemas"
)

// onlyAcme sets the policy of settings that name only the tenant acme.
func onlyAcme(o *Options) {
	o.Policy = func(tenant string) (TenantPolicy, bool) {
		return TenantPolicy{Pools: []string{"default"}}, tenant == "acme"
	}
}

// followTokens follows the tokens until the test ends or stop is called.
func followTokens(t *testing.T, c *Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.FollowTokens(ctx) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	eventually(t, "read of the tokens", func() error {
		if _, _, err := c.Identify("x"); !errors.Is(err, ErrUnknownToken) {
			return err
		}
		c.tokens.mu.Lock()
		defer c.tokens.mu.Unlock()
		if c.tokens.set == nil {
			return errTokensUnread
		}
		return nil
	})
	return stop
}

// A token works in every process as soon as it is created, until it is revoked or expires, also after a restart.
func TestTokens(t *testing.T) {
	f := newFleet(t, onlyAcme)
	other := connect(t, f.opts)
	followTokens(t, f.Client)
	followTokens(t, other)
	in := schemas.Token{Name: "ci", Tenant: "acme", CreatedBy: "root"}
	created, err := f.CreateToken(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	want := schemas.Token{
		ID: created.ID, Name: "ci", Tenant: "acme", CreatedBy: "root", CreatedAt: created.CreatedAt,
		Scopes: []string{schemas.ScopeRead, schemas.ScopeSubmit},
	}
	if diff := cmp.Diff(want, created.Token); diff != "" || !strings.HasPrefix(created.Secret, tokenPrefix) {
		t.Errorf("CreateToken (-want +got):\n%s", diff)
	}
	random := strings.TrimPrefix(created.Secret, tokenPrefix) // in base32: 5 bits a character
	if len(random)*5 < 128 {
		t.Errorf("the secret has %d random characters, want at least 26", len(random))
	}
	got, life, err := f.Identify(created.Secret)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Identify at once = %v (-want +got):\n%s", err, diff)
	}
	var otherLife context.Context
	eventually(t, "the token in another process", func() error {
		_, otherLife, err = other.Identify(created.Secret)
		return err
	})
	late := connect(t, f.opts)
	followTokens(t, late)
	if _, _, err := late.Identify(created.Secret); err != nil {
		t.Errorf("Identify of a later process = %v, want nil", err)
	}
	f.writeUses(t.Context())
	hour := time.Now().UTC().Truncate(time.Hour)
	list, err := f.Tokens(t.Context(), "acme")
	want.UsedAt = hour
	if diff := cmp.Diff([]schemas.Token{want}, list); err != nil || diff != "" {
		t.Errorf("Tokens = %v (-want +got):\n%s", err, diff)
	}
	if list, err := f.Tokens(t.Context(), "other"); err != nil || len(list) > 0 {
		t.Errorf("Tokens of another tenant = %v, %v, want none", list, err)
	}

	if err := f.RevokeToken(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Identify(created.Secret); !errors.Is(err, ErrUnknownToken) || life.Err() == nil {
		t.Errorf("after the revocation: Identify = %v, streams ended: %v, want ErrUnknownToken, true", err, life.Err())
	}
	<-otherLife.Done() // the other process learns of it
	for _, id := range []string{created.ID, "x", "", "a.b", "*", ">"} {
		if err := f.RevokeToken(t.Context(), id); !errors.Is(err, ErrUnknownToken) {
			t.Errorf("RevokeToken(%q) = %v, want ErrUnknownToken", id, err)
		}
	}
}

// TestTokensOfALaterVersion checks that keys of a later version are ignored, and a revoked token leaves no use behind.
func TestTokensOfALaterVersion(t *testing.T) {
	f := newFleet(t, onlyAcme)
	followTokens(t, f.Client)
	kv, err := f.js.KeyValue(t.Context(), bucketTokens)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"group.a": "x", "group.b": "{}"} {
		if _, err := kv.PutString(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	created, err := f.CreateToken(t.Context(), schemas.Token{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Tokens(t.Context(), "")
	if diff := cmp.Diff([]schemas.Token{created.Token}, got); err != nil || diff != "" {
		t.Errorf("Tokens = %v (-want +got):\n%s", err, diff)
	}
	if _, _, err := f.Identify(created.Secret); err != nil {
		t.Fatal(err)
	}
	f.writeUses(t.Context())
	if err := f.RevokeToken(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	f.tokens.mu.Lock()
	defer f.tokens.mu.Unlock()
	if diff := cmp.Diff(map[string]time.Time{}, f.tokens.set.uses); diff != "" {
		t.Errorf("uses after the token was revoked (-want +got):\n%s", diff)
	}
}

// A token that expires is refused from that moment on, and its streams end.
func TestTokenExpires(t *testing.T) {
	f := newFleet(t, onlyAcme)
	followTokens(t, f.Client)
	soon := time.Now().Add(3 * time.Second)
	created, err := f.CreateToken(t.Context(), schemas.Token{Tenant: "acme", ExpiresAt: soon})
	if err != nil {
		t.Fatal(err)
	}
	_, life, err := f.Identify(created.Secret)
	if err != nil {
		t.Fatal(err)
	}
	<-life.Done()
	if _, _, err := f.Identify(created.Secret); !errors.Is(err, ErrTokenExpired) {
		t.Errorf("Identify after the expiry = %v, want ErrTokenExpired", err)
	}
}

// A token stays valid, and a revoked one ends, when the tokens are read again after the connection was restored.
func TestTokensAfterReconnect(t *testing.T) {
	f := newFleet(t, onlyAcme)
	keep, err := f.CreateToken(t.Context(), schemas.Token{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	drop, err := f.CreateToken(t.Context(), schemas.Token{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	followTokens(t, f.Client)
	_, kept, err := f.Identify(keep.Secret)
	if err != nil {
		t.Fatal(err)
	}
	_, dropped, err := f.Identify(drop.Secret)
	if err != nil {
		t.Fatal(err)
	}
	current := func() *tokenSet {
		f.tokens.mu.Lock()
		defer f.tokens.mu.Unlock()
		return f.tokens.set
	}
	before := current()
	if err := f.nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	if err := connect(t, f.opts).RevokeToken(t.Context(), drop.ID); err != nil {
		t.Fatal(err)
	}
	<-dropped.Done()
	eventually(t, "the second read", func() error {
		if current() == before {
			return errors.New("the tokens have not been read again")
		}
		return nil
	})
	if _, _, err := f.Identify(keep.Secret); err != nil || kept.Err() != nil {
		t.Errorf("the other token = %v, streams ended: %v, want nil, nil", err, kept.Err())
	}
}

func TestTokenStoresOnlyTheHash(t *testing.T) {
	f := newFleet(t, onlyAcme)
	created, err := f.CreateToken(t.Context(), schemas.Token{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := f.js.KeyValue(t.Context(), bucketTokens)
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), tokenKey+created.ID)
	if err != nil {
		t.Fatal(err)
	}
	if secret := strings.TrimPrefix(created.Secret, tokenPrefix); strings.Contains(string(e.Value()), secret) {
		t.Errorf("stored value %s has the secret, want only its hash", e.Value())
	}
}

func TestTokenRefused(t *testing.T) {
	f := newFleet(t, onlyAcme)
	past := time.Now().Add(-time.Second)
	for name, c := range map[string]struct {
		in         schemas.Token
		code, path string
	}{
		"tenant":        {schemas.Token{Tenant: "other"}, errcode.UnknownTenant, "/tenant"},
		"scope":         {schemas.Token{Tenant: "acme", Scopes: []string{"root"}}, errcode.BadData, "/scopes"},
		"no tenant":     {schemas.Token{Scopes: []string{"submit"}}, errcode.BadData, "/tenant"},
		"name":          {schemas.Token{Name: "a b"}, errcode.BadName, "/name"},
		"empty":         {schemas.Token{}, errcode.BadData, "/tenant"},
		"expired":       {schemas.Token{Tenant: "acme", ExpiresAt: past}, errcode.BadData, "/expires_at"},
		"tenant's name": {schemas.Token{Tenant: "a.b"}, errcode.BadName, "/tenant"},
	} {
		_, err := f.CreateToken(t.Context(), c.in)
		r, ok := errors.AsType[*RefusedError](err)
		if !ok || r.Code != c.code || r.Path != c.path {
			t.Errorf("%s: CreateToken = %v, want %s at %s", name, err, c.code, c.path)
		}
	}
}

// A tenant that an operator creates can submit at once, and its tasks run on workers that have not heard of it yet.
// Once it is removed, it is unknown, its tokens are revoked, and a later tenant does not inherit its limits or its
// pause.
func TestCreatedTenant(t *testing.T) {
	f := newFleet(t, onlyAcme)
	worker := connect(t, f.opts)
	g := &fleet{Client: worker, srv: f.srv, opts: f.opts}
	g.work(t, WorkerOptions{Slots: 1, Handler: succeed})
	if _, err := f.Submit(t.Context(), "new", taskEvent("0", `{"code":"x"}`)); codeOf(err) != errcode.UnknownTenant {
		t.Errorf("Submit before the tenant exists = %v, want %s", err, errcode.UnknownTenant)
	}
	made, err := f.CreateTenant(t.Context(), "new", "root")
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.CreateTenant(t.Context(), "new", "other")
	if diff := cmp.Diff(made, again); err != nil || diff != "" {
		t.Errorf("CreateTenant again = %v (-want +got):\n%s", err, diff)
	}
	rec, err := f.Submit(t.Context(), "new", taskEvent("1", `{"code":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	if rec, err = f.Wait(t.Context(), "new", rec.TaskID); err != nil || rec.Status != schemas.Succeeded {
		t.Errorf("task of the new tenant = %s, %v, want succeeded", rec.Status, err)
	}
	for pool, want := range map[string]string{"default": "", "gpu": errcode.NotAllowed} {
		_, err := f.Submit(t.Context(), "new", taskEvent(pool, `{"code":"x","pool":"`+pool+`"}`))
		if codeOf(err) != want {
			t.Errorf("Submit to pool %s = %v, want code %q", pool, err, want)
		}
	}
	token, err := f.CreateToken(t.Context(), schemas.Token{Tenant: "new"})
	if err != nil {
		t.Fatal(err)
	}
	followTokens(t, f.Client)
	list, err := f.ListTenants(t.Context())
	if diff := cmp.Diff([]schemas.Tenant{made}, list); err != nil || diff != "" {
		t.Errorf("ListTenants = %v (-want +got):\n%s", err, diff)
	}
	if _, err := f.SetLimits(t.Context(), "new", schemas.TenantLimits{TaskRate: "1/h"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Pause(t.Context(), schemas.Pause{Target: "tenant/new"}); err != nil {
		t.Fatal(err)
	}
	if err := f.RemoveTenant(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	limits, errLimits := f.AllLimits(t.Context())
	pauses, errPauses := f.Pauses(t.Context())
	if errLimits != nil || errPauses != nil || len(limits)+len(pauses) != 0 {
		t.Errorf("the removed tenant has the limits %v and the pauses %v (%v, %v), want none",
			limits, pauses, errLimits, errPauses)
	}
	if _, _, err := f.Identify(token.Secret); !errors.Is(err, ErrUnknownToken) {
		t.Errorf("Identify of a removed tenant's token = %v, want ErrUnknownToken", err)
	}
	if _, err := f.Submit(t.Context(), "new", taskEvent("2", `{"code":"x"}`)); codeOf(err) != errcode.UnknownTenant {
		t.Errorf("Submit of a removed tenant = %v, want %s", err, errcode.UnknownTenant)
	}
	if err := f.RemoveTenant(t.Context(), "new"); codeOf(err) != errcode.UnknownTenant {
		t.Errorf("RemoveTenant again = %v, want %s", err, errcode.UnknownTenant)
	}
	if err := f.RemoveTenant(t.Context(), "acme"); err == nil {
		t.Error("RemoveTenant of the settings' tenant = nil, want an error")
	}
}

// A process may be lost between any two writes of a removal. A tenant that is removed then has no tokens, and one that
// is not can be removed again.
func TestRemoveTenantLost(t *testing.T) {
	const writes = 7 // two for each token, and those of the tenant, the limits and the pause
	for n := range writes {
		f := newFleet(t, onlyAcme)
		if _, err := f.CreateTenant(t.Context(), "new", ""); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := f.CreateToken(t.Context(), schemas.Token{Tenant: "new"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.SetLimits(t.Context(), "new", schemas.TenantLimits{Weight: new(2)}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Pause(t.Context(), schemas.Pause{Target: "tenant/new"}); err != nil {
			t.Fatal(err)
		}
		js := f.js
		f.js = &lostPurges{JetStream: js, left: n}
		if err := f.RemoveTenant(t.Context(), "new"); !errors.Is(err, errLostPurge) {
			t.Errorf("RemoveTenant with %d of %d writes = %v, want %v", n, writes, err, errLostPurge)
		}
		f.js = js
		tenants, err := f.ListTenants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pauses, err := f.Pauses(t.Context())
		if err != nil || len(tenants) > len(pauses) {
			t.Errorf("after %d writes, the tenant exists without its pause: %v, %v", n, pauses, err)
		}
		if err := f.RemoveTenant(t.Context(), "new"); err != nil {
			t.Errorf("RemoveTenant after %d writes of the first one: %v", n, err)
		}
		tokens, err := f.Tokens(t.Context(), "new")
		if diff := cmp.Diff([]schemas.Token{}, tokens); err != nil || diff != "" {
			t.Errorf("tokens of the removed tenant, %v (-want +got):\n%s", err, diff)
		}
		if tenants, err = f.ListTenants(t.Context()); err != nil || len(tenants) != 0 {
			t.Errorf("ListTenants = %v, %v, want none", tenants, err)
		}
		if pauses, err = f.Pauses(t.Context()); err != nil || len(pauses) != 0 {
			t.Errorf("Pauses = %v, %v, want none", pauses, err)
		}
		if limits, err := f.AllLimits(t.Context()); err != nil || len(limits) != 0 {
			t.Errorf("AllLimits = %v, %v, want none", limits, err)
		}
	}
}

// An event of a tenant that cannot be looked up is not lost.
func TestEventOfATenantThatCannotBeLookedUp(t *testing.T) {
	var log logtest.Log
	f := newFleet(t, onlyAcme, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	ev := taskEvent("1", `{}`)
	ev.SetType("test")
	header, data, err := encodeNATS(ev)
	if err != nil {
		t.Fatal(err)
	}
	f.publish(t, eventsPrefix+"new", header, string(data))
	nc := f.nc
	f.nc = closedConnection(t, f)
	defer func() { f.nc = nc }()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- f.FollowEvents(ctx, func(context.Context, string, event.Event) error { return nil })
	}()
	eventually(t, "the event", func() error {
		if text := log.String(); !strings.Contains(text, "event not handled; it is delivered again") {
			return fmt.Errorf("log = %q, want that the event is delivered again", text)
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Errorf("FollowEvents() = %v, want nil", err)
	}
	if n := streamState(t, f, streamEvents).Msgs; n != 1 {
		t.Errorf("EVENTS has %d messages, want the event", n)
	}
}

// closedConnection returns a connection on which no request succeeds.
func closedConnection(t *testing.T, f *fleet) *nats.Conn {
	t.Helper()
	c := connect(t, f.opts)
	c.nc.Close()
	return c.nc
}

var errLostPurge = errors.New("the process is lost")

// lostPurges is a queue that purges some keys before the process is lost.
type lostPurges struct {
	jetstream.JetStream
	left int
}

// KeyValue implements jetstream.KeyValueManager.
func (l *lostPurges) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	kv, err := l.JetStream.KeyValue(ctx, bucket)
	return lostKeyPurges{kv, l}, err
}

type lostKeyPurges struct {
	jetstream.KeyValue
	of *lostPurges
}

// Purge implements jetstream.KeyValue.
func (l lostKeyPurges) Purge(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	if l.of.left == 0 {
		return errLostPurge
	}
	l.of.left--
	return l.KeyValue.Purge(ctx, key, opts...)
}

func codeOf(err error) string {
	if r, ok := errors.AsType[*RefusedError](err); ok {
		return r.Code
	}
	return ""
}

// A worker whose boxes may serve only one tenant leaves the tasks of created tenants to others, even if it does not
// know yet that the tenant exists.
func TestSettingsOnly(t *testing.T) {
	f := newFleet(t, onlyAcme)
	ran := make(chan string, 10)
	handler := func(name string) Handler {
		return func(ctx context.Context, j *Job) (*schemas.Result, error) {
			ran <- name + " " + j.Record.Tenant
			return succeed(ctx, j)
		}
	}
	f.work(t, WorkerOptions{
		Name: "one", Slots: 2, Tenants: Tenants{SettingsOnly: true}, Handler: handler("one"),
	})
	if _, err := f.CreateTenant(t.Context(), "new", ""); err != nil {
		t.Fatal(err)
	}
	rec, err := f.Submit(t.Context(), "new", taskEvent("1", `{"code":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	f.submit(t, "2", `{"code":"x"}`)
	if got := <-ran; got != "one acme" {
		t.Errorf("first task that ran: %s, want that of acme", got)
	}
	eventually(t, "rule", func() error {
		why, err := f.Why(t.Context(), "new", rec.TaskID)
		if err != nil || why.Rule != schemas.WhyNoWorker || !strings.HasSuffix(why.Message,
			"; one serves only tenants that are in the settings") {
			return fmt.Errorf("%s: %s, %w: want %s and why", why.Rule, why.Message, err, schemas.WhyNoWorker)
		}
		return nil
	})
	f.work(t, WorkerOptions{Name: "many", Slots: 1, Handler: handler("many")})
	if got := <-ran; got != "many new" {
		t.Errorf("the task of the new tenant ran: %s, want on the worker many", got)
	}
}

// An ordered worker finishes its task, exits and is no longer listed. A later worker of the same name is not affected.
func TestDrainWorker(t *testing.T) {
	f := newFleet(t)
	release, begun := make(chan struct{}), make(chan struct{})
	opts := WorkerOptions{Name: "w 1", Slots: 1, Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		close(begun)
		<-release
		return succeed(ctx, j)
	}}
	accept, drain := context.WithCancel(t.Context())
	defer drain()
	opts.Drain = drain
	w := NewWorker(f.Client, opts)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(accept, t.Context()) }()
	long := f.submit(t, "1", `{"code":"x"}`)
	<-begun
	info, err := f.DrainWorker(t.Context(), "w 1", "root")
	if err != nil || info.Name != "w 1" {
		t.Fatalf("DrainWorker = %s, %v, want w 1, nil", info.Name, err)
	}
	<-accept.Done()
	queued := f.submit(t, "2", `{"code":"x"}`)
	close(release)
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if rec := f.await(t, long.TaskID); rec.Status != schemas.Succeeded || len(rec.Attempts) != 1 {
		t.Errorf("the task that ran = %s in %d attempts, want succeeded in 1", rec.Status, len(rec.Attempts))
	}
	if workers, err := f.Workers(t.Context()); err != nil || len(workers) != 0 {
		t.Errorf("Workers = %v, %v, want none", workers, err)
	}
	kv, err := f.js.KeyValue(t.Context(), bucketControls)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Get(t.Context(), drainKeyOf("w 1")); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("order after the drain = %v, want %v", err, jetstream.ErrKeyNotFound)
	}
	if err := f.putControl(t.Context(), drainKeyOf("w 1"), drainOrder{Worker: "w 1", Started: w.started}); err != nil {
		t.Fatal(err) // as if the first worker had been killed
	}
	f.work(t, WorkerOptions{
		Name: "w 1", Handler: succeed,
		Hooks: Hooks{Drain: func() { t.Error("the order to an earlier worker was obeyed") }},
	})
	if rec := f.await(t, queued.TaskID); rec.Status != schemas.Succeeded {
		t.Errorf("task after the restart = %s, want succeeded", rec.Status)
	}
}

func TestDrainRefused(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Name: "part", Handler: succeed})
	eventually(t, "presence", func() error {
		if _, err := f.DrainWorker(t.Context(), "part", ""); !errors.Is(err, ErrNotDrainable) {
			return err
		}
		return nil
	})
	if _, err := f.DrainWorker(t.Context(), "none", ""); !cmp.Equal(err, ErrUnknownWorker, cmpopts.EquateErrors()) {
		t.Errorf("DrainWorker of an unknown worker = %v, want ErrUnknownWorker", err)
	}
}
