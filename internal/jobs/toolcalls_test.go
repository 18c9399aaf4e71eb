package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/errcode"
)

// tenantClients are clients of one server: the fleet's and those of the tenants acme and other.
type tenantClients struct{ fleet, acme, other *Client }

func newTenants(t *testing.T) (f tenantClients, dial func(user string) *Client) {
	t.Helper()
	users := map[string]embedded.NATSUser{
		"acme":  {User: "acme", Password: "a"},
		"other": {User: "other", Password: "o"},
	}
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Tenants: users, Log: noLog})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	users["fleet"] = srv.Fleet()
	dial = func(user string) *Client {
		t.Helper()
		u := users[user]
		c, err := Connect(t.Context(), Options{
			Server: Server{URL: srv.URL()}, Credentials: Credentials{User: u.User, Password: u.Password}, Log: noLog,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	return tenantClients{dial("fleet"), dial("acme"), dial("other")}, dial
}

// serve serves fn as the tenant's tool crm.find.
func serve(
	t *testing.T, c *Client, tenant, instance string, fn func(ctx context.Context, data []byte) []byte,
) (stop func()) {
	t.Helper()
	stop, err := c.ServeTools(ToolService{
		Tenant: tenant, Instance: instance, Tools: []ToolName{{"crm", "find"}}, Offer: []byte("offer of " + instance),
		Handle: func(ctx context.Context, _ ToolName, data []byte) []byte { return fn(ctx, data) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return stop
}

var find = ToolName{"crm", "find"}

func TestToolCalls(t *testing.T) {
	f, dial := newTenants(t)
	if _, err := f.fleet.CallTool(t.Context(), "acme", find, []byte("x")); !errors.Is(err, ErrNoResponders) {
		t.Errorf("call of a tool without a server = %v, want %v", err, ErrNoResponders)
	}
	var first, second atomic.Int32
	count := func(n *atomic.Int32) func(context.Context, []byte) []byte {
		return func(_ context.Context, data []byte) []byte {
			n.Add(1)
			return []byte("response to " + string(data))
		}
	}
	stop := serve(t, f.acme, "acme", "one", count(&first))
	serve(t, dial("acme"), "acme", "two", count(&second))
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			got, err := f.fleet.CallTool(t.Context(), "acme", find, fmt.Append(nil, i))
			if want := fmt.Sprint("response to ", i); err != nil || string(got) != want {
				t.Errorf("CallTool = %q, %v, want %q", got, err, want)
			}
		})
	}
	calls.Wait()
	if a, b := first.Load(), second.Load(); a+b != 100 || a == 0 || b == 0 {
		t.Errorf("the processes handled %d and %d calls, want both to share 100", a, b)
	}
	// When one process stops, no call is lost, and all reach the other.
	stop()
	for range 20 {
		if _, err := f.fleet.CallTool(t.Context(), "acme", find, nil); err != nil && !errors.Is(err, ErrToolNotBegun) {
			t.Errorf("call after one process stopped = %v, want nil or %v", err, ErrToolNotBegun)
		}
	}
	// Another tenant may have a tool of the same name.
	if _, err := f.fleet.CallTool(t.Context(), "other", find, nil); !errors.Is(err, ErrNoResponders) {
		t.Errorf("call of another tenant = %v, want %v", err, ErrNoResponders)
	}
}

func TestToolCallLimits(t *testing.T) {
	f, _ := newTenants(t)
	late, release := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	serve(t, f.acme, "acme", "slow", func(ctx context.Context, data []byte) []byte {
		switch string(data) {
		case "wait":
			<-ctx.Done()
			ended <- ctx.Err()
			<-late // until the caller no longer waits
			return nil
		case "release":
			<-release
		}
		return []byte("done")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := f.fleet.CallTool(ctx, "acme", find, []byte("wait")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("call of a tool that does not respond = %v, want %v", err, context.DeadlineExceeded)
	}
	close(late)
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the tool's context ended with %v, want %v", err, context.DeadlineExceeded)
		}
	case <-time.After(hangTime):
		t.Error("the tool's context has not ended, or the call arrived too late to be begun")
	}
	if _, err := f.fleet.CallTool(t.Context(), "acme", find, make([]byte, 2<<20)); !errors.Is(err, ErrNoResponders) {
		t.Errorf("arguments over the limit = %v, want %v because the call was not sent", err, ErrNoResponders)
	}
	for _, bad := range []ToolName{
		{"crm", "a.b"},
		{"crm", "*"},
		{">", "find"},
		{"", "find"},
		{"crm", strings.Repeat("x", 65)},
		{"crm", "a b"},
	} {
		if _, err := f.fleet.CallTool(t.Context(), "acme", bad, nil); !errors.Is(err, ErrNoResponders) {
			t.Errorf("CallTool(%q) = %v, want %v", bad, err, ErrNoResponders)
		}
		if stop, err := f.acme.ServeTools(ToolService{
			Tenant: "acme", Instance: "x",
			Tools: []ToolName{bad},
		}); err == nil {
			stop()
			t.Errorf("ServeTools(%q) = nil, want an error", bad)
		}
	}
	_, err := f.acme.ServeTools(ToolService{Tenant: "acme", Instance: "x", Offer: make([]byte, MaxToolOffer+1)})
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Code != errcode.TooLarge {
		t.Errorf("ServeTools of an offer over the limit = %v, want %s", err, errcode.TooLarge)
	}
	close(release)
	if got, err := f.fleet.CallTool(t.Context(), "acme", find, []byte("release")); err != nil || string(got) != "done" {
		t.Errorf("CallTool after the errors = %q, %v, want done", got, err)
	}
}

// An offer is published at the start, at intervals and on request; at the end, an empty one is published.
func TestToolOffers(t *testing.T) {
	f, dial := newTenants(t)
	type offer struct{ tenant, instance, data string }
	offers := make(chan offer, 100)
	watch := func(c *Client) {
		t.Helper()
		stop, err := c.WatchOffers(func(tenant, instance string, data []byte) {
			offers <- offer{tenant, instance, string(data)}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	next := func() offer {
		t.Helper()
		select {
		case s := <-offers:
			return s
		case <-time.After(hangTime):
			t.Fatal("no offer arrived")
			return offer{}
		}
	}
	watch(f.fleet)
	stop := serve(t, f.acme, "acme", "one", nil)
	want := offer{"acme", "one", "offer of one"}
	for range 2 { // at the start, and some seconds later
		if got := next(); got != want {
			t.Errorf("offers = %v, want %v", got, want)
		}
	}
	watch(dial("fleet")) // requests offers
	if got := next(); got != want {
		t.Errorf("offer to a new watcher = %v, want %v", got, want)
	}
	stop()
	for got := next(); got != (offer{"acme", "one", ""}); got = next() {
		if got != want {
			t.Fatalf("offer = %v, want an empty one", got)
		}
	}
}

// A process that stops while a call runs does not offer its tools again.
func TestStoppedToolsAreNotOffered(t *testing.T) {
	f, _ := newTenants(t)
	offers := make(chan string, 100)
	unwatch, err := f.fleet.WatchOffers(func(_, instance string, data []byte) {
		offers <- fmt.Sprintf("%s: %s", instance, data)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unwatch()
	started, release := make(chan struct{}), make(chan struct{})
	stop := serve(t, f.acme, "acme", "one", func(context.Context, []byte) []byte {
		close(started)
		<-release
		return []byte("done")
	})
	var both sync.WaitGroup
	both.Go(func() {
		if got, err := f.fleet.CallTool(t.Context(), "acme", find, nil); err != nil || string(got) != "done" {
			t.Errorf("the call = %q, %v, want done", got, err)
		}
	})
	<-started
	both.Go(stop)
	for got := range offers {
		if got == "one: " {
			break
		}
	}
	serve(t, f.acme, "acme", "two", nil)
	for range 2 { // the second one comes at an interval, in which the first process would have offered its tools
		if got := <-offers; got != "two: offer of two" {
			t.Errorf("offer = %q, want one of the process that serves", got)
		}
	}
	close(release)
	both.Wait()
}

// A call whose caller no longer waits is not handled, however long it waited for its turn.
func TestLateCallsAreNotHandled(t *testing.T) {
	f, _ := newTenants(t)
	started, release := make(chan struct{}), make(chan struct{})
	done := make(chan struct{}, maxAccepted)
	var handled []string
	stop, err := f.acme.ServeTools(ToolService{
		Tenant: "acme", Instance: "one", Tools: []ToolName{find}, Concurrency: 1,
		Handle: func(_ context.Context, _ ToolName, data []byte) []byte {
			if handled = append(handled, string(data)); len(handled) == 1 {
				close(started)
				<-release
			} else {
				done <- struct{}{}
			}
			return data
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	call := func(text string) {
		if _, err := f.fleet.CallTool(t.Context(), "acme", find, []byte(text)); err != nil {
			t.Errorf("the call %q = %v, want nil", text, err)
		}
	}
	var first sync.WaitGroup
	first.Go(func() { call("first") })
	<-started
	if err := f.fleet.nc.Publish(find.subject("acme"), []byte("second")); err != nil {
		t.Fatal(err)
	}
	for _, ms := range []string{"1", "0", "-9223372036854775808"} {
		late := nats.NewMsg(find.subject("acme"))
		late.Data = []byte("late")
		late.Header.Set(timeoutHeader, ms)
		response, err := f.fleet.nc.RequestMsg(late, hangTime)
		if err != nil || response.Header.Get(notBegunHeader) == "" {
			t.Errorf("a call with %s ms that waited for longer = %+v, %v, want the response that it was not begun",
				ms, response, err)
		}
	}
	for range maxAccepted - 2 {
		if err := f.fleet.nc.Publish(find.subject("acme"), []byte("more")); err != nil {
			t.Fatal(err)
		}
	}
	_, err = f.fleet.CallTool(t.Context(), "acme", find, nil)
	if want := ErrToolNotBegun.Error() + ": too many calls wait for it"; !errors.Is(err, ErrToolNotBegun) ||
		err.Error() != want {
		t.Errorf("a call above the limit of calls that wait = %v, want %s", err, want)
	}
	close(release)
	first.Wait()
	want := append([]string{"first", "second"}, slices.Repeat([]string{"more"}, maxAccepted-2)...)
	for range want[1:] {
		<-done
	}
	slices.Sort(handled)
	if slices.Sort(want); !slices.Equal(handled, want) {
		t.Errorf("handled = %d calls, want %d, and not the late one", len(handled), len(want))
	}
}

// A tenant can neither serve, offer nor call tools of another tenant, nor receive its calls.
func TestToolsOfAnotherTenant(t *testing.T) {
	f, _ := newTenants(t)
	offers := make(chan string, 10)
	stop, err := f.fleet.WatchOffers(func(tenant, instance string, _ []byte) { offers <- tenant + " " + instance })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := errors.Join(f.other.nc.Publish("offer.acme.forged", []byte("x")), f.other.nc.Flush()); err != nil {
		t.Fatal(err)
	}
	sub, err := f.other.nc.SubscribeSync("tool.acme.*.*")
	if err := errors.Join(err, f.other.nc.Flush()); err != nil { // after it, a refusal has arrived
		t.Fatal(err)
	}
	serve(t, f.acme, "acme", "mine", func(_ context.Context, data []byte) []byte { return data })
	if got, err := f.fleet.CallTool(t.Context(), "acme", find, []byte("secret")); err != nil ||
		string(got) != "secret" {
		t.Errorf("CallTool = %q, %v, want secret", got, err)
	}
	if m, err := sub.NextMsg(100 * time.Millisecond); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("another tenant receives %v, %v, want %v", m, err, nats.ErrPermissionViolation)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := f.other.CallTool(ctx, "acme", find, nil); err == nil {
		t.Error("another tenant's call = nil, want an error")
	}
	if got := <-offers; got != "acme mine" {
		t.Errorf("first offer = %q, want acme mine", got)
	}
}

// A second response to a call is dropped: the next call does not get it.
func TestToolRespondsTwice(t *testing.T) {
	f, _ := newTenants(t)
	sub, err := f.acme.nc.Subscribe(find.subject("acme"), func(m *nats.Msg) {
		_ = m.Respond([]byte("first"))
		_ = m.Respond([]byte("second"))
		_ = f.acme.nc.Publish("_INBOX.fleet.x", []byte("third"))
	})
	if err := errors.Join(err, f.acme.nc.Flush()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for range 20 {
		if got, err := f.fleet.CallTool(t.Context(), "acme", find, nil); err != nil || string(got) != "first" {
			t.Errorf("CallTool = %q, %v, want first", got, err)
		}
	}
}
