package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
)

func keyedEvent(id, key string) event.Event {
	ev := event.New()
	ev.SetID(id)
	ev.SetSource("/shop")
	ev.SetType("order.created")
	ev.SetExtension(attrPartition, key)
	return ev
}

func delivery(id, key string) Delivery {
	return Delivery{Tenant: "acme", Webhook: "hook", ID: "msg_" + id, Event: keyedEvent(id, key)}
}

// TestUnstorableDeliveriesAreDropped checks that a delivery that the queue can never store is no error: it would
// hold up the events of all tenants behind it.
func TestUnstorableDeliveriesAreDropped(t *testing.T) {
	f := newFleet(t)
	wide := delivery("1", "k")
	wide.For = strings.Repeat("x", 64<<10) // stands for headers that are too large
	large := delivery("2", "k")
	large.Event.DataEncoded = make([]byte, f.nc.MaxPayload())
	invalid := delivery("3", "k")
	invalid.Event.SetSubject(strings.Repeat("x", maxAttribute+1))
	unkeyed := Delivery{Tenant: "acme", Webhook: "hook", ID: "msg_4", For: wide.For, Event: taskEvent("4", "{}")}
	for _, d := range []Delivery{wide, large, invalid, unkeyed} {
		if err := f.DeliverWebhook(t.Context(), d); err != nil {
			t.Errorf("DeliverWebhook of %s = %.200v, want nil", d.ID, err)
		}
	}
	stream, err := f.js.Stream(t.Context(), streamOrdered)
	if err != nil || stream.CachedInfo().State.Msgs != 0 {
		t.Errorf("ORDERED has %+v, %v, want no message", stream.CachedInfo().State, err)
	}
}

// target records, by key, the ids of the events whose deliveries it accepts, each once.
type target struct {
	mu       sync.Mutex
	accepted map[string][]string
	n        int
}

func (s *target) accept(d Delivery) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := extension(d.Event, attrPartition)
	if !slices.Contains(s.accepted[key], d.Event.ID()) {
		s.accepted[key] = append(s.accepted[key], d.Event.ID())
		s.n++
	}
	return s.n
}

func (s *target) await(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d deliveries", n), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.n < n {
			return fmt.Errorf("%d were accepted", s.n)
		}
		return nil
	})
}

// deliverOrdered follows events and deliveries with a partition key in a process of its own, until the test ends or the
// connection is closed, which the queue cannot tell from the loss of the process.
func (f *fleet) deliverOrdered(t *testing.T, send func(c *Client, d Delivery) error) {
	t.Helper()
	c := connect(t, f.opts)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	repeat := func(follow func() error) { // also after an error, such as a new leader, as automation.Service does
		for ctx.Err() == nil && !c.nc.IsClosed() {
			if err := follow(); err != nil {
				t.Log(err)
			}
			_ = clock.Sleep(ctx, 100*time.Millisecond)
		}
	}
	running.Go(func() {
		repeat(func() error {
			return c.FollowOrderedEvents(ctx, func(ctx context.Context, tenant string, ev event.Event) error {
				return c.DeliverWebhook(ctx, Delivery{Tenant: tenant, Webhook: "hook", ID: "msg_" + ev.ID(), Event: ev})
			})
		})
	})
	running.Go(func() {
		repeat(func() error {
			return c.FollowDeliveries(ctx, func(_ context.Context, d Delivery) error { return send(c, d) })
		})
	})
}

// awaitFollowers waits until n processes follow, and then shortens the ack wait, so that messages of a lost process are
// soon delivered again.
func (f *fleet) awaitFollowers(t *testing.T, n int) {
	t.Helper()
	for _, name := range []string{orderedMatcher, orderedSender} {
		var info *jetstream.ConsumerInfo
		eventually(t, "followers of "+name, func() error {
			consumer, err := f.js.Consumer(t.Context(), streamOrdered, name)
			if err != nil {
				return err
			}
			if info = consumer.CachedInfo(); info.NumWaiting < n {
				return fmt.Errorf("%d follow", info.NumWaiting)
			}
			return nil
		})
		info.Config.AckWait = time.Second
		if _, err := f.js.UpdateConsumer(t.Context(), streamOrdered, info.Config); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOrderOfKeys sends 200 events with 10 keys through two processes, one of which is lost while it sends the 60th or
// a later one. A tenth of the tries fail. Each key's events arrive in order.
func TestOrderOfKeys(t *testing.T) {
	f := newFleet(t)
	got := target{accepted: map[string][]string{}}
	var lost sync.Once
	send := func(mortal bool) func(*Client, Delivery) error {
		return func(c *Client, d Delivery) error {
			if rand.N(10) == 0 {
				return &RetryError{After: 10 * time.Millisecond}
			}
			if n := got.accept(d); n >= 60 && mortal {
				lost.Do(c.nc.Close)
			}
			return nil
		}
	}
	f.deliverOrdered(t, send(true))
	f.deliverOrdered(t, send(false))
	f.awaitFollowers(t, 2)
	want := map[string][]string{}
	for i := range 200 {
		key, id := fmt.Sprint("key ", i%10, " ä.*>"), strconv.Itoa(i)
		want[key] = append(want[key], id)
		if err := f.PublishEvent(t.Context(), "acme", keyedEvent(id, key)); err != nil {
			t.Fatal(err)
		}
	}
	got.await(t, 200)
	lost.Do(func() { t.Error("no process was lost") })
	if diff := cmp.Diff(want, got.accepted); diff != "" {
		t.Errorf("accepted events (-want +got):\n%s", diff)
	}
	f.awaitAllSent(t)
}

// TestWaitingEventsAreBounded checks that an event with a partition key is refused while as many wait for webhooks as
// the queue keeps, and that the event was not stored.
func TestWaitingEventsAreBounded(t *testing.T) {
	f := newFleet(t)
	f.maxOrdered = 2
	var refused atomic.Int64
	var events sync.WaitGroup
	for i := range 20 {
		events.Go(func() {
			err := f.PublishEvent(t.Context(), "acme", keyedEvent(strconv.Itoa(i), "k"))
			if errors.Is(err, ErrBacklogFull) {
				refused.Add(1)
			} else if err != nil {
				t.Errorf("PublishEvent = %v, want nil or ErrBacklogFull", err)
			}
		})
	}
	events.Wait()
	if err := f.PublishEvent(t.Context(), "acme", keyedEvent("20", "k")); !errors.Is(err, ErrBacklogFull) {
		t.Errorf("event above the limit = %v, want ErrBacklogFull", err)
	}
	// An event that was refused waits neither for triggers nor for webhooks.
	for stream, subject := range map[string]string{streamEvents: "events.acme", streamOrdered: orderedEvents + "acme"} {
		n, err := f.subjectCounts(t.Context(), stream, subject)
		if want := int(20 - refused.Load()); err != nil || n[subject] != want {
			t.Errorf("%s has %v, %v, want %d events", stream, n, err, want)
		}
	}
	ev := taskEvent("2", `{}`)
	ev.SetType("test")
	err := errors.Join(
		f.PublishEvent(t.Context(), "acme", ev), f.PublishEvent(t.Context(), "other", keyedEvent("1", "k")),
	)
	if err != nil {
		t.Errorf("events without a key and of another tenant = %v, want nil", err)
	}

	stream, err := f.js.Stream(t.Context(), streamEvents)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	if config.MaxMsgsPerSubject != 100_000 {
		t.Errorf("%s has room for %d events of a tenant, want 100,000", streamEvents, config.MaxMsgsPerSubject)
	}
	config.MaxMsgsPerSubject = 1
	if _, err := f.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	ev.SetID("3")
	if err := f.PublishEvent(t.Context(), "other", ev); !errors.Is(err, ErrBacklogFull) {
		t.Errorf("event without a key above the limit = %v, want ErrBacklogFull", err)
	}
}

// TestFullBacklogIsFoundFirst checks that an event that was published without PublishEvent, and for which there is no
// room, starts nothing: it is delivered again, and would start the same at each delivery.
func TestFullBacklogIsFoundFirst(t *testing.T) {
	s := startServer(t, &server.Options{JetStream: true, StoreDir: t.TempDir()}) // its users may read responses
	f := connect(t, Options{Server: Server{URL: s.ClientURL()}, Log: noLog})
	provision(t, f)
	f.maxOrdered = 0
	header, data, err := encodeNATS(keyedEvent("1", "k"))
	if err != nil {
		t.Fatal(err)
	}
	responses, err := f.nc.SubscribeSync("$JS.ACK." + streamEvents + ".>")
	if err != nil {
		t.Fatal(err)
	}
	stored := &nats.Msg{Subject: "events.acme", Header: header, Data: data}
	if _, err := f.js.PublishMsg(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var calls atomic.Int64
	go func() {
		ended <- f.FollowEvents(ctx, func(context.Context, string, event.Event) error {
			calls.Add(1)
			return nil
		})
	}()
	m, err := responses.NextMsg(hangTime)
	if err != nil || !strings.HasPrefix(string(m.Data), "-NAK") {
		t.Errorf("response to the event = %+v, %v, want that it is delivered again", m, err)
	}
	cancel()
	if err := <-ended; err != nil || calls.Load() != 0 {
		t.Errorf("FollowEvents() = %v after %d calls of its function, want nil and none", err, calls.Load())
	}
}

// awaitAllSent waits until ORDERED has no message.
func (f *fleet) awaitAllSent(t *testing.T) {
	t.Helper()
	eventually(t, "empty stream", func() error {
		s, err := f.js.Stream(t.Context(), streamOrdered)
		if err == nil && s.CachedInfo().State.Msgs > 0 {
			err = fmt.Errorf("%d messages are stored", s.CachedInfo().State.Msgs)
		}
		return err
	})
}

// TestFailingKey has a key whose deliveries fail. Those of other keys are sent meanwhile. The key's next deliveries
// are sent when the first one has expired.
func TestFailingKey(t *testing.T) {
	f := newFleet(t)
	got := target{accepted: map[string][]string{}}
	f.deliverOrdered(t, func(_ *Client, d Delivery) error {
		if d.Event.ID() == "bad-0" {
			return &RetryError{After: 20 * time.Millisecond}
		}
		got.accept(d)
		return nil
	})
	want := map[string][]string{"good": {"good-0", "good-1", "good-2"}}
	for i := range 3 {
		for _, key := range []string{"bad", "good"} {
			if err := f.DeliverWebhook(t.Context(), delivery(fmt.Sprint(key, "-", i), key)); err != nil {
				t.Fatal(err)
			}
		}
	}
	got.await(t, 3)
	if diff := cmp.Diff(want, got.accepted); diff != "" {
		t.Errorf("accepted events while a key fails (-want +got):\n%s", diff)
	}
	stream, err := f.js.Stream(t.Context(), streamOrdered)
	if err != nil {
		t.Fatal(err)
	}
	m, err := first(t.Context(), stream, "acme.hook."+hashToken("bad"))
	if err != nil || m.Header.Get(jetstream.MsgTTLHeader) != DeliveryTime.String() {
		t.Fatalf("first delivery of the key = %+v, %v; want one with the time to live %s", m, err, DeliveryTime)
	}
	if err := stream.DeleteMsg(t.Context(), m.Sequence); err != nil { // as when it expires
		t.Fatal(err)
	}
	got.await(t, 5)
	want["bad"] = []string{"bad-1", "bad-2"}
	if diff := cmp.Diff(want, got.accepted); diff != "" {
		t.Errorf("accepted events after the failing delivery has expired (-want +got):\n%s", diff)
	}
	f.awaitAllSent(t)
}

// TestRenewedPermits has a cluster of servers, where acknowledged messages are removed after the response. Each fourth
// try fails, after which the key's permit is renewed: each delivery is sent nevertheless.
func TestRenewedPermits(t *testing.T) {
	_, opts := startCluster(t, 3)
	f := &fleet{opts: opts, Client: connect(t, opts)}
	if err := f.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := target{accepted: map[string][]string{}}
	for range 2 {
		tries := make(chan int, 1)
		tries <- 0
		f.deliverOrdered(t, func(_ *Client, d Delivery) error {
			n := <-tries
			tries <- n + 1
			if n%4 == 3 {
				return &RetryError{After: 10 * time.Millisecond}
			}
			got.accept(d)
			return nil
		})
	}
	want := map[string][]string{}
	for i := range 80 {
		key, id := strconv.Itoa(i%4), strconv.Itoa(i)
		want[key] = append(want[key], id)
		if err := f.DeliverWebhook(t.Context(), delivery(id, key)); err != nil {
			t.Fatal(err)
		}
	}
	got.await(t, 80)
	if diff := cmp.Diff(want, got.accepted); diff != "" {
		t.Errorf("accepted events (-want +got):\n%s", diff)
	}
}

// TestDelaysOfKeys checks that Since is when the turn of a delivery came, and that a renewed permit keeps the delay
// until the next try.
func TestDelaysOfKeys(t *testing.T) {
	f := newFleet(t)
	type try struct {
		id        string
		at, since time.Time
	}
	tries := make(chan try, 10)
	failed := map[string]bool{}
	const delay = 200 * time.Millisecond
	f.deliverOrdered(t, func(_ *Client, d Delivery) error { // one at a time
		tries <- try{d.Event.ID(), time.Now(), d.Since}
		if !failed[d.Event.ID()] {
			failed[d.Event.ID()] = true
			return &RetryError{After: delay}
		}
		return nil
	})
	for _, id := range []string{"0", "1"} {
		if err := f.DeliverWebhook(t.Context(), delivery(id, "a")); err != nil {
			t.Fatal(err)
		}
	}
	var all []try
	for range 4 {
		all = append(all, <-tries)
	}
	for i, id := range []string{"0", "0", "1", "1"} {
		if all[i].id != id {
			t.Fatalf("tries = %+v, want two of each delivery", all)
		}
		if i%2 == 1 && all[i].at.Sub(all[i-1].at) < delay {
			t.Errorf("delay before the second try of %s = %s, want %s", id, all[i].at.Sub(all[i-1].at), delay)
		}
	}
	for _, i := range []int{2, 3} {
		if all[i].since.Before(all[1].at) {
			t.Errorf("Since of try %d = %s, want a time after the first delivery, %s", i, all[i].since, all[1].at)
		}
	}
	f.awaitAllSent(t)
}

func waitingSubjects(t *testing.T, stream jetstream.Stream) map[string]uint64 {
	t.Helper()
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(orderedWaiting+">"))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Subjects
}

// TestPermits stores deliveries while two processes send, which find none waiting again and again: each delivery is
// sent nevertheless. The first one has no permit, as if the process that stored the delivery was lost before it stored
// the permit.
func TestPermits(t *testing.T) {
	f := newFleet(t)
	if err := f.DeliverWebhook(t.Context(), delivery("0", "a")); err != nil {
		t.Fatal(err)
	}
	stream, err := f.js.Stream(t.Context(), streamOrdered)
	if err == nil {
		err = stream.Purge(t.Context(), jetstream.WithPurgeSubject(orderedPermits+">"))
	}
	if err != nil {
		t.Fatal(err)
	}
	got := target{accepted: map[string][]string{}}
	for range 2 {
		f.deliverOrdered(t, func(_ *Client, d Delivery) error { got.accept(d); return nil })
	}
	got.await(t, 1)
	var storing sync.WaitGroup
	for key := range 4 {
		storing.Go(func() {
			for i := range 100 {
				err := f.DeliverWebhook(t.Context(), delivery(fmt.Sprint(key, "-", i), strconv.Itoa(key)))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	storing.Wait()
	got.await(t, 401)
	f.awaitAllSent(t)
}

// TestOrderedResults checks that results with a key are followed in the order in which the tasks ended, beginning
// when the queue began to keep them, and that they have the key of the submitted event.
func TestOrderedResults(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Name: "w", Slots: 4, Handler: succeed})
	if err := submitKeyed(t, f, taskEvent("earlier", `{"code":"x"}`), "a b"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wait(t.Context(), "acme", TaskID("acme", "/test", "earlier")); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []func(context.Context, string) error{f.KeepResults, f.KeepOrderedResults} {
		for range 2 {
			if err := keep(t.Context(), "acme"); err != nil {
				t.Fatal(err)
			}
		}
	}
	var ended []string
	for i := range 6 {
		ev := taskEvent(strconv.Itoa(i), `{"code":"x"}`)
		if i%3 != 0 {
			ev.SetExtension(attrPartition, "a b")
		}
		rec, err := f.Submit(t.Context(), "acme", ev)
		if err == nil {
			rec, err = f.Wait(t.Context(), "acme", rec.TaskID)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%3 != 0 {
			ended = append(ended, rec.TaskID)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 15*time.Second)
	defer stop()
	var followed []string
	err := f.FollowOrderedResults(ctx, "acme", func(_ context.Context, ev event.Event) error {
		if key := extension(ev, attrPartition); key != "a b" {
			t.Errorf("partition key = %q, want that of the task", key)
		}
		if followed = append(followed, ev.Subject()); len(followed) == len(ended) {
			stop()
		}
		return nil
	})
	if diff := cmp.Diff(ended, followed); diff != "" || err != nil {
		t.Errorf("FollowOrderedResults = %v, results (-want +got):\n%s", err, diff)
	}
	for range 2 {
		err := errors.Join(f.ForgetOrderedResults(t.Context(), "acme"), f.ForgetResults(t.Context(), "acme"))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPartitionKeys checks which values of the attribute are accepted and refused.
func TestPartitionKeys(t *testing.T) {
	f := newFleet(t)
	const bad = "bad_event partitionkey"
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"longest": {strings.Repeat("x", maxKey), ""}, "subject tokens": {"a.*.>", ""}, "text": {"ä ☃ \u00a0", ""},
		"empty": {"", bad}, "number": {int32(7), bad}, "too long": {strings.Repeat("x", maxKey+1), bad},
		"control character": {"a\nb", "bad_event "}, "not UTF-8": {"\xff", "bad_event "},
	} {
		task, other := taskEvent(name, `{"code":"x"}`), keyedEvent(name, "x")
		for what, err := range map[string]error{
			"Submit":       submitKeyed(t, f, task, c.value),
			"PublishEvent": publishKeyed(t, f, other, c.value),
		} {
			got := ""
			if r, ok := errors.AsType[*RefusedError](err); ok {
				got = r.Code + " " + r.Path
			} else if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%s of a key that is %s = %q (%v), want %q", what, name, got, err, c.want)
			}
		}
	}
}

func submitKeyed(t *testing.T, f *fleet, ev event.Event, key any) error {
	t.Helper()
	ev.SetExtension(attrPartition, key)
	_, err := f.Submit(t.Context(), "acme", ev)
	return err
}

func publishKeyed(t *testing.T, f *fleet, ev event.Event, key any) error {
	t.Helper()
	ev.SetExtension(attrPartition, key)
	return f.PublishEvent(t.Context(), "acme", ev)
}
