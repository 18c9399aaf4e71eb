package automation

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// received is a request that a target got.
type received struct {
	id, at, signature string
	body              string
}

// target starts a target that permits the handshake, and responds to the n-th POST with a status.
func target(t *testing.T, status func(n int) int) (string, <-chan received) {
	t.Helper()
	got := make(chan received, 100)
	posts := make(chan int, 1)
	posts <- 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w.Header().Set("WebHook-Allowed-Origin", r.Header.Get("WebHook-Request-Origin"))
			return
		}
		body, _ := io.ReadAll(r.Body)
		n := <-posts
		posts <- n + 1
		w.Header().Set("Location", "http://169.254.169.254/")
		w.WriteHeader(status(n))
		h := r.Header
		got <- received{h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), h.Get("Webhook-Signature"), string(body)}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, got
}

// TestWebhook sends the result of a task to a target that fails at first. Both requests have the same id and a valid
// signature.
func TestWebhook(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	ctx := w.start(t, 2, func(context.Context, *jobs.Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Succeeded, Output: "42"}, nil
	})
	url, got := target(t, func(n int) int { return []int{503, 200, 200}[min(n, 2)] })
	admin := newService(w.queue, loopback)
	hook, err := admin.AddWebhook(ctx, "acme", schemas.WebhookSpec{Name: "h", URL: url})
	if err != nil || !strings.HasPrefix(hook.Secret, "whsec_") || len(hook.Secret) != 38 {
		t.Fatalf("AddWebhook = %+v, %v; want a secret", hook, err)
	}
	rec, err := w.queue.Submit(ctx, "acme", taskOf(t, "first"))
	if err != nil {
		t.Fatal(err)
	}
	var requests []received
	for range 2 {
		select {
		case r := <-got:
			requests = append(requests, r)
		case <-ctx.Done():
			t.Fatalf("received %d requests, want 2", len(requests))
		}
	}
	first, second := requests[0], requests[1]
	if first.id != second.id || first.body != second.body || !strings.HasPrefix(first.id, "msg_") {
		t.Errorf("second request = %+v, want the delivery of the first, %+v", second, first)
	}
	for _, r := range requests {
		if want := sign(hook.Secret, r.id, r.at, []byte(r.body)); r.signature != want {
			t.Errorf("signature = %s, want %s", r.signature, want)
		}
	}
	var ev struct {
		Type, Subject string
		Data          schemas.Result
	}
	if err := json.Unmarshal([]byte(first.body), &ev); err != nil || ev.Type != schemas.TypeResult ||
		ev.Subject != rec.TaskID || ev.Data.Output != "42" {
		t.Errorf("body = %s, %v; want the result of task %s", first.body, err, rec.TaskID)
	}
	list, err := w.Webhooks(ctx, "acme")
	if err != nil || len(list) != 1 || list[0].Secret != "" ||
		list[0].LastError != "the target responded with the status 503" {
		t.Errorf("Webhooks = %+v, %v; want one without a secret, with the error 503", list, err)
	}
	if err := w.RemoveWebhook(ctx, "acme", "h"); err != nil {
		t.Errorf("RemoveWebhook = %v, want nil", err)
	}
}

// TestSign has the example of the Standard Webhooks specification.
func TestSign(t *testing.T) {
	got := sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330",
		[]byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("sign = %s, want %s", got, want)
	}
}

// TestHostileTargets checks the errors for targets that the fleet cannot or may not reach, and that an endless response
// is a success.
func TestHostileTargets(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	url, _ := target(t, func(int) int { return 200 })
	allowed := newService(w.queue, loopback)
	redirecting, _ := target(t, func(int) int { return 302 })
	gone, _ := target(t, func(int) int { return 410 })
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		for r.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 1<<16))
		}
	}))
	t.Cleanup(endless.Close)
	// The target resets the connection: the error of the system names the addresses of both ends.
	resetting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
	}))
	t.Cleanup(resetting.Close)
	refusing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(refusing.Close)

	for target, want := range map[string]string{
		url:                         "an address that is not on the public internet",
		"http://169.254.169.254/":   "an address that is not on the public internet",
		"http://[::1]:80/":          "an address that is not on the public internet",
		"http://10.0.0.1/":          "an address that is not on the public internet",
		"ftp://example.org/":        "it must be an http or https URL",
		"https://u:p@example.org/":  "it must be an http or https URL",
		"https://":                  "it must be an http or https URL",
		"https://:443/":             "it must be an http or https URL",
		"https://example.org:0/":    "the port must be from 1 to 65535",
		"https://x.invalid:65536/":  "the port must be from 1 to 65535",
		"http://x.invalid/?key=abc": "has no address",
	} {
		_, err := w.AddWebhook(t.Context(), "acme", schemas.WebhookSpec{Name: "h", URL: target})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "abc") {
			t.Errorf("AddWebhook(%s) = %v, want %q", target, err, want)
		}
	}
	_, err := allowed.AddWebhook(t.Context(), "acme", schemas.WebhookSpec{Name: "h", URL: refusing.URL})
	if err == nil || !strings.Contains(err.Error(), "does not permit the fleet to send") {
		t.Errorf("AddWebhook without a handshake = %v, want that the target does not permit it", err)
	}
	for target, want := range map[string]string{
		url: "", endless.URL: "", refusing.URL: "the target responded with the status 404",
		redirecting:   "the target responded with a redirect (302), which the fleet does not follow",
		gone:          "the target is gone (410)",
		resetting.URL: "connection reset by peer",
	} {
		problem, _, isGone := allowed.post(t.Context(), schemas.Webhook{
			WebhookSpec: schemas.WebhookSpec{URL: target}, Secret: "whsec_AAAA",
		}, jobs.Delivery{ID: "msg_1", Event: taskOf(t, "1")})
		if problem != want || isGone != (target == gone) {
			t.Errorf("post to %s = %q, gone %v; want %q", target, problem, isGone, want)
		}
	}
}

// TestRequestsAtOnce checks how many requests to the webhooks of a tenant a process sends at once.
func TestRequestsAtOnce(t *testing.T) {
	c := newCache()
	begun := map[string]int{}
	for _, name := range []string{"a", "b", "c"} {
		for c.beginRequest("acme", name) {
			begun[name]++
		}
	}
	if begun["a"] != 4 || begun["b"] != 4 || begun["c"] != 0 {
		t.Errorf("requests at once = %v, want 4 to a and 4 to b", begun)
	}
	if !c.beginRequest("other", "a") {
		t.Error("no request of another tenant may begin, want one")
	}
	c.endRequest("other", "a")
	c.endRequest("acme", "a")
	if !c.beginRequest("acme", "c") {
		t.Error("no request may begin after another has ended, want one")
	}
	for range 3 {
		c.endRequest("acme", "a")
		c.endRequest("acme", "b")
	}
	c.endRequest("acme", "b")
	c.endRequest("acme", "c")
	if len(c.sending) != 0 {
		t.Errorf("sending = %v after all requests have ended, want none", c.sending)
	}
}

// TestOrderedWebhooks submits tasks and sends events, some with a partition key, while two processes deliver to a
// target that fails at times and refuses one key. The other keys' results and events arrive in order, and those without
// a key arrive as well.
func TestOrderedWebhooks(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	ctx := w.start(t, 2, func(context.Context, *jobs.Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Succeeded}, nil
	})
	type sent struct{ ID, Subject, PartitionKey string }
	got, failed := make(chan sent, 1000), make(chan string, 1000)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var ev sent
		if err := json.NewDecoder(r.Body).Decode(&ev); err != nil {
			t.Error(err)
		}
		if ev.PartitionKey == "refused" || rand.N(20) == 0 {
			failed <- ev.PartitionKey
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		got <- ev
	}))
	t.Cleanup(srv.Close)
	admin := newService(w.queue, loopback)
	if _, err := admin.AddWebhook(ctx, "acme", schemas.WebhookSpec{
		Name: "h", Type: "*", URL: srv.URL, NoHandshake: true,
	}); err != nil {
		t.Fatal(err)
	}
	want, n := map[string][]string{}, 0
	expect := func(key, id string) {
		if key != "refused" {
			want[key] = append(want[key], id)
			n++
		}
	}
	for i := range 15 {
		for _, key := range []string{"", "a", "b", "refused"} {
			ev := order(fmt.Sprint(key, i), "{}")
			task := taskOf(t, fmt.Sprint(key, i))
			if key != "" {
				ev.SetExtension("partitionkey", key)
				task.SetExtension("partitionkey", "task "+key)
			}
			if err := w.queue.PublishEvent(ctx, "acme", ev); err != nil {
				t.Fatal(err)
			}
			expect(key, ev.ID())
			if key == "refused" {
				continue
			}
			rec, err := w.queue.Submit(ctx, "acme", task)
			if err == nil {
				rec, err = w.queue.Wait(ctx, "acme", rec.TaskID)
			}
			if err != nil {
				t.Fatal(err)
			}
			expect(extensionOf(task), rec.TaskID)
		}
	}
	accepted, seen := map[string][]string{}, map[string]bool{}
	for len(seen) < n {
		select {
		case ev := <-got:
			id := ev.ID
			if ev.Subject != "" {
				id = ev.Subject // the id of the task
			}
			if !seen[id] {
				seen[id] = true
				accepted[ev.PartitionKey] = append(accepted[ev.PartitionKey], id)
			}
		case <-ctx.Done():
			t.Fatalf("accepted %d events, want %d", len(seen), n)
		}
	}
	slices.Sort(accepted[""]) // in any order
	slices.Sort(want[""])
	if diff := cmp.Diff(want, accepted); diff != "" {
		t.Errorf("accepted events by key (-want +got):\n%s", diff)
	}
	for key := ""; key != "refused"; {
		select {
		case key = <-failed:
		case <-ctx.Done():
			t.Fatal("no event with the key refused was tried")
		}
	}
}

// TestRemovedWebhookLeavesNothing checks that a webhook does not get the delivery that waits for a removed one of its
// name. The later delivery has the same partition key, so it would come second.
func TestRemovedWebhookLeavesNothing(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	ctx := w.start(t, 1, func(context.Context, *jobs.Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Succeeded}, nil
	})
	admin := newService(w.queue, loopback)
	failing, tried := target(t, func(int) int { return 503 })
	working, got := target(t, func(int) int { return 200 })
	publish := func(id string) {
		ev := order(id, "{}")
		ev.SetExtension("partitionkey", "k")
		if err := w.queue.PublishEvent(ctx, "acme", ev); err != nil {
			t.Fatal(err)
		}
	}
	next := func(c <-chan received) (ev struct{ ID string }) {
		select {
		case r := <-c:
			if err := json.Unmarshal([]byte(r.body), &ev); err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatal("no request arrived")
		}
		return ev
	}
	if _, err := admin.AddWebhook(ctx, "acme", schemas.WebhookSpec{Name: "h", Type: "*", URL: failing}); err != nil {
		t.Fatal(err)
	}
	publish("old")
	next(tried)
	if err := admin.RemoveWebhook(ctx, "acme", "h"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.AddWebhook(ctx, "acme", schemas.WebhookSpec{Name: "h", Type: "*", URL: working}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"new", "old"} { // old is sent again
		publish(id)
		if ev := next(got); ev.ID != id {
			t.Errorf("the new webhook got %q, want %s", ev.ID, id)
		}
	}
}

// TestFailedTries checks what a failed try leaves: the delay before the next one, by the fleet's time, and a note in
// the webhook, unless another webhook has its name by then.
func TestFailedTries(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	admin := newService(w.queue, loopback)
	spec := schemas.WebhookSpec{Name: "h", NoHandshake: true}
	spec.URL, _ = target(t, func(n int) int {
		if n == 0 {
			return http.StatusServiceUnavailable
		}
		err := admin.RemoveWebhook(t.Context(), "acme", "h")
		if err == nil {
			_, err = admin.AddWebhook(t.Context(), "acme", spec)
		}
		if err != nil {
			t.Error(err)
		}
		return http.StatusGone
	})
	hook, err := admin.AddWebhook(t.Context(), "acme", spec)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := w.store.Get(t.Context(), kindWebhook, "acme", "h")
	if err != nil {
		t.Fatal(err)
	}
	known := newCache()
	known.learn(stored)
	w.sender = admin.sender
	for _, want := range []struct {
		delay time.Duration
		note  string
	}{
		{2 * time.Minute, "the target responded with the status 503"},
		{0, ""}, // gone, and replaced meanwhile
	} {
		err := w.send(t.Context(), w.store, known, jobs.Delivery{
			Tenant: "acme", Webhook: "h", ID: "msg_1", For: addedAt(hook), Event: order("1", "{}"),
			Since: w.at.Add(-4 * time.Minute),
		})
		var delay time.Duration
		if later, ok := errors.AsType[*jobs.RetryError](err); ok {
			delay = later.After
		} else if err != nil {
			t.Fatal(err)
		}
		list, err := w.Webhooks(t.Context(), "acme")
		if err != nil || len(list) != 1 {
			t.Fatalf("Webhooks = %+v, %v; want one", list, err)
		}
		if got := list[0]; delay != want.delay || got.LastError != want.note || got.Gone {
			t.Errorf("try again after %s, webhook with the error %q, gone %v; want %s, %q and not gone", delay,
				got.LastError, got.Gone, want.delay, want.note)
		}
	}
}

// TestConcurrentChanges adds and removes webhooks and triggers of results at the same time: each may be the first or
// the last one for which the queue keeps results. A webhook that stays gets the result of a task that ended before any
// process looked for results.
func TestConcurrentChanges(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	s := newService(w.queue, loopback)
	url, got := target(t, func(int) int { return http.StatusOK })
	var changes errgroup.Group
	for i := range 4 {
		changes.Go(func() error {
			name := fmt.Sprintf("a%d", i)
			for range 25 {
				_, err := s.AddWebhook(t.Context(), "acme", schemas.WebhookSpec{
					Name: name, URL: "https://127.0.0.1:1/", NoHandshake: true,
				})
				if err == nil {
					err = s.RemoveWebhook(t.Context(), "acme", name)
				}
				if err != nil {
					return err
				}
				_, err = s.AddTrigger(t.Context(), "acme", schemas.TriggerSpec{
					Name: name, Type: schemas.TypeResult, Task: json.RawMessage(`{"code":"1"}`),
				})
				if err == nil {
					err = s.RemoveTrigger(t.Context(), "acme", name)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	changes.Go(func() error {
		_, err := s.AddWebhook(t.Context(), "acme", schemas.WebhookSpec{Name: "stays", URL: url})
		return err
	})
	if err := changes.Wait(); err != nil {
		t.Errorf("a change failed: %v", err)
	}
	handler := func(context.Context, *jobs.Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Succeeded}, nil
	}
	ctx := w.start(t, 0, handler)
	rec, err := w.queue.Submit(ctx, "acme", taskOf(t, "1"))
	if err == nil {
		_, err = w.queue.Wait(ctx, "acme", rec.TaskID)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.start(t, 1, handler)
	select {
	case <-got:
	case <-ctx.Done():
		t.Error("the webhook that stays did not get the result of a task")
	}
}

func extensionOf(ev event.Event) string {
	key, _ := ev.Extensions()["partitionkey"].(string)
	return key
}

// TestSlowTargets sends to targets that take longer than the time limit of a request.
func TestSlowTargets(t *testing.T) {
	for name, c := range map[string]struct {
		respond func(w io.Writer) error // called each second until it fails
		first   string                  // of the response
		problem string
	}{
		"mute":         {func(io.Writer) error { return nil }, "", "the target did not respond in time"},
		"slow headers": {writeText("X-A: a\r\n"), "HTTP/1.1 200 OK\r\n", "the target did not respond in time"},
		"slow body":    {writeText("x"), "HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			stop := make(chan struct{})
			sender := newSender(nil)
			sender.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					_, err := http.ReadRequest(bufio.NewReader(theirs))
					if err == nil {
						_, err = io.WriteString(theirs, c.first)
					}
					for err == nil {
						select {
						case <-stop:
							return
						case <-time.After(time.Second):
							err = c.respond(theirs)
						}
					}
				}()
				return ours, nil
			}
			s := &Service{sender: sender}
			begun := time.Now()
			problem, _, gone := s.post(t.Context(), schemas.Webhook{
				WebhookSpec: schemas.WebhookSpec{URL: "http://target.example/"}, Secret: "whsec_AAAA",
			}, jobs.Delivery{ID: "msg_1", Event: taskOf(t, "1")})
			if took := time.Since(begun); problem != c.problem || gone || took != sendTimeout {
				t.Errorf("%s: post = %q, gone %v, after %v; want %q after %v", name, problem, gone, took, c.problem,
					sendTimeout)
			}
			close(stop)
			sender.CloseIdleConnections()
			synctest.Wait()
		})
	}
}

func writeText(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}
