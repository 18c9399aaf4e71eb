package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
)

// unkeyed returns a delivery to the webhook hook without a partition key.
func unkeyed(tenant, id string) Delivery {
	ev := keyedEvent(id, "")
	ev.SetExtension(attrPartition, nil)
	return Delivery{Tenant: tenant, Webhook: "hook", ID: "msg_" + id, Event: ev}
}

// sendDeliveries follows all deliveries until the test ends.
func (f *fleet) sendDeliveries(t *testing.T, send func(d Delivery) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	fn := func(_ context.Context, d Delivery) error { return send(d) }
	running.Go(func() {
		if err := f.FollowDeliveries(ctx, fn); err != nil {
			t.Error(err)
		}
	})
}

// TestFailingWebhookDelaysNoOther has a webhook with a thousand deliveries that fail. A delivery of another tenant,
// which was stored last, is sent before a tenth of them were tried.
func TestFailingWebhookDelaysNoOther(t *testing.T) {
	f := newFleet(t)
	const failing = 1000
	for i := range failing {
		d := unkeyed("acme", strconv.Itoa(i))
		m, err := deliveryMessage(d)
		if err == nil {
			m.Subject = orderedWaiting + "acme.hook." + waitingToken(0, d.ID)
			_, err = f.js.PublishMsgAsync(m, jetstream.WithStallWait(hangTime))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	<-f.js.PublishAsyncComplete()
	for _, d := range []Delivery{unkeyed("acme", "last"), unkeyed("beta", "b")} {
		if err := f.DeliverWebhook(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	var tries atomic.Int32
	sent := make(chan struct{})
	f.sendDeliveries(t, func(d Delivery) error {
		if d.Tenant == "acme" {
			tries.Add(1)
			return &RetryError{After: time.Hour}
		}
		close(sent)
		return nil
	})
	select {
	case <-sent:
	case <-time.After(hangTime):
		t.Fatal("the delivery of the other tenant was not sent")
	}
	if n := tries.Load(); n > failing/10 {
		t.Errorf("%d deliveries of the failing webhook were tried first", n)
	}
}

// TestRetriesOfDeliveries has two deliveries that fail. One is due in an hour; the other is tried again after each of
// its delays, also if the process that sends is busy at first, and is sent at the fourth try.
func TestRetriesOfDeliveries(t *testing.T) {
	f := newFleet(t)
	type try struct {
		id    string
		at    time.Time
		since time.Time
	}
	tries := make(chan try, 20)
	n := map[string]int{}
	var mu sync.Mutex
	f.sendDeliveries(t, func(d Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		n[d.ID]++
		switch {
		case d.ID == "msg_late":
			return &RetryError{After: 50 * time.Minute}
		case n[d.ID] == 3:
			return &RetryError{After: 10 * time.Millisecond, Busy: true}
		}
		tries <- try{d.ID, time.Now(), d.Since}
		if n[d.ID] < 5 {
			return &RetryError{After: time.Duration(n[d.ID]) * 500 * time.Millisecond}
		}
		return nil
	})
	for _, id := range []string{"late", "soon"} {
		if err := f.DeliverWebhook(t.Context(), unkeyed("acme", id)); err != nil {
			t.Fatal(err)
		}
	}
	var all []try
	for range 4 {
		select {
		case next := <-tries:
			all = append(all, next)
		case <-time.After(hangTime):
			t.Fatalf("tries = %+v, want 4", all)
		}
	}
	for i, delay := range []time.Duration{time.Second, time.Second, 2 * time.Second} {
		if got := all[i+1].at.Sub(all[i].at); got < delay {
			t.Errorf("delay before try %d = %s, want %s", i+2, got, delay)
		}
	}
	for i := range all {
		if all[i].id != "msg_soon" || !all[i].since.Equal(all[0].since) {
			t.Errorf("try %d = %+v, want the delivery msg_soon, stored at %s", i+1, all[i], all[0].since)
		}
	}
	stream, err := f.js.Stream(t.Context(), streamOrdered)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "one delivery left", func() error {
		waiting := waitingSubjects(t, stream)
		if len(waiting) != 1 {
			return fmt.Errorf("subjects of deliveries that wait = %v", waiting)
		}
		for subject := range waiting {
			m, err := stream.GetLastMsgForSubject(t.Context(), subject)
			if err != nil {
				return err
			}
			life, err := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
			if err != nil || m.Header.Get(deliveryIDHeader) != "msg_late" || life > DeliveryTime ||
				life < DeliveryTime-hangTime {
				t.Errorf("delivery = %v, %v; want msg_late, which expires %s after it was stored", m.Header, err,
					DeliveryTime)
			}
		}
		return nil
	})
}

// TestOldDeliveriesAreDropped checks that a delivery whose try failed is kept until it is older than DeliveryTime.
func TestOldDeliveriesAreDropped(t *testing.T) {
	f := newFleet(t)
	now := time.Now()
	for i, age := range []time.Duration{DeliveryTime - time.Hour, DeliveryTime} {
		d := unkeyed("acme", strconv.Itoa(i))
		d.Since = now.Add(-age)
		if err := f.retryDelivery(t.Context(), d, time.Second, streamOrdered, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := f.js.Stream(t.Context(), streamOrdered)
	if err != nil {
		t.Fatal(err)
	}
	waiting := waitingSubjects(t, stream)
	for subject := range waiting {
		m, err := stream.GetLastMsgForSubject(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		life, err := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
		if err != nil || m.Header.Get(deliveryIDHeader) != "msg_0" || life > time.Hour || life < time.Hour-hangTime {
			t.Errorf("delivery = %v, %v; want msg_0, which expires in an hour", m.Header, err)
		}
	}
	if len(waiting) != 1 {
		t.Errorf("subjects of deliveries that wait = %v, want one", waiting)
	}
}

func TestRetryDelay(t *testing.T) {
	got := map[time.Duration]time.Duration{}
	want := map[time.Duration]time.Duration{
		0: time.Second, time.Second: time.Second, 1001 * time.Millisecond: 2 * time.Second,
		33 * time.Second: 64 * time.Second, 50 * time.Minute: time.Hour, 2 * time.Hour: time.Hour,
	}
	for after := range want {
		got[after] = retryDelay(after)
		delay, ok := delayOf(fmt.Sprintf("acme.hook.retry-%s-3", got[after]))
		if !ok || delay != got[after] {
			t.Errorf("delay of the subject = %s, %t; want %s", delay, ok, got[after])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	if _, ok := delayOf("acme.retry-1s-0." + hashToken("key")); ok {
		t.Error("the deliveries of a partition key have the delay of retries")
	}
}

// TestMoveDeliveries has a delivery that an earlier version has stored. It is sent.
func TestMoveDeliveries(t *testing.T) {
	f := newFleet(t)
	d := unkeyed("acme", "old")
	m, err := deliveryMessage(d)
	if err != nil {
		t.Fatal(err)
	}
	m.Subject = deliverPrefix + "acme.hook"
	if _, err := f.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	sent := make(chan Delivery, 1)
	f.sendDeliveries(t, func(d Delivery) error { sent <- d; return nil })
	ctx, stop := context.WithTimeout(t.Context(), hangTime)
	defer stop()
	go func() {
		if got := <-sent; got.ID != d.ID || got.Event.ID() != "old" || time.Since(got.Since) > hangTime {
			t.Errorf("delivery = %+v, want the stored one", got)
		}
		stop()
	}()
	if err := f.MoveDeliveries(ctx); err != nil || !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("MoveDeliveries = %v, %v, want that the delivery is sent", err, context.Cause(ctx))
	}
}

// TestDeliveryIsRemovedWhileItIsSent removes a delivery while it is sent, as happens above the limit of a webhook. The
// permit is used again, without a warning; after a failed try, others have a turn first.
func TestDeliveryIsRemovedWhileItIsSent(t *testing.T) {
	f := newFleet(t)
	stream, err := f.js.Stream(t.Context(), streamOrdered)
	if err != nil {
		t.Fatal(err)
	}
	suffix := "acme.hook." + waitingToken(0, unkeyed("acme", "1").ID)
	for range 3 {
		m, err := deliveryMessage(unkeyed("acme", "1"))
		if err == nil {
			m.Subject = orderedWaiting + suffix
			_, err = f.js.PublishMsg(t.Context(), m)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sent, err := f.sendWaiting(t.Context(), stream, suffix, time.Now(), func(ctx context.Context, _ Delivery) error {
		m, err := first(ctx, stream, suffix)
		if err != nil {
			return err
		}
		if m.Sequence == 1 {
			return &RetryError{After: time.Minute}
		}
		return stream.DeleteMsg(ctx, m.Sequence)
	})
	if later, ok := errors.AsType[*RetryError](err); sent != 1 || !ok || later.After != failedDelay {
		t.Errorf("sendWaiting = %d, %v, want 1 and a RetryError after %s", sent, err, failedDelay)
	}
}

// TestDeliveriesStopWithTheProcess ends the work of a process during a delivery. It sends no further one.
func TestDeliveriesStopWithTheProcess(t *testing.T) {
	f := newFleet(t)
	subject := waitingToken(0, unkeyed("acme", "0").ID)
	for i := range 8 * retrySubjects {
		d := unkeyed("acme", strconv.Itoa(i))
		if waitingToken(0, d.ID) != subject { // it could be sent at the same time
			continue
		}
		if err := f.DeliverWebhook(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var late atomic.Int32
	err := f.FollowDeliveries(ctx, func(context.Context, Delivery) error {
		if ctx.Err() != nil {
			late.Add(1)
		}
		cancel()
		return nil
	})
	if err != nil || late.Load() != 0 {
		t.Errorf("FollowDeliveries = %v, %d deliveries after its end, want none", err, late.Load())
	}
}
