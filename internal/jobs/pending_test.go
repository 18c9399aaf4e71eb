package jobs

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

// inFlight is more messages than the server's default limit of those that a consumer delivers without acknowledgement.
const inFlight = 1001

// TestFullBacklogHoldsUpNoEvents has a tenant whose events cannot become tasks, because its backlog is full.
func TestFullBacklogHoldsUpNoEvents(t *testing.T) {
	f := newFleet(t)
	ctx, stop := context.WithCancel(t.Context())
	got, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- f.FollowEvents(ctx, func(_ context.Context, tenant string, ev event.Event) error {
			if tenant == "acme" {
				return ErrBacklogFull
			}
			got <- ev.ID()
			return nil
		})
	}()
	ev := taskEvent("1", `{"code":"x"}`)
	ev.SetType("order.created")
	for i := range inFlight {
		ev.SetID(strconv.Itoa(i))
		if err := f.PublishEvent(ctx, "acme", ev); err != nil {
			t.Fatal(err)
		}
	}
	ev.SetID("last")
	if err := f.PublishEvent(ctx, "other", ev); err != nil {
		t.Fatal(err)
	}
	select {
	case id := <-got:
		if id != "last" {
			t.Errorf("event of the other tenant = %s, want last", id)
		}
	case <-time.After(hangTime):
		t.Error("the event of the other tenant did not arrive")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("FollowEvents = %v, want nil", err)
	}
}

// TestFullLaneHoldsUpNoTimers has a lane that cannot take its due tasks, because it is full.
func TestFullLaneHoldsUpNoTimers(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.MaxBacklog = 1 })
	f.submit(t, "full", `{"code":"x","pool":"gpu"}`)
	full, ok := laneOf("tasks.gpu.normal.acme")
	if !ok {
		t.Fatal("laneOf refuses a lane")
	}
	for i := range inFlight {
		due := storedRecord{Record: schemas.Record{Tenant: "acme", TaskID: fmt.Sprintf("due%023d", i)}}
		if _, err := f.delay(t.Context(), full, due, nats.Header{}, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	soon := time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
	rec, err := f.Submit(t.Context(), "other", taskEvent("due", fmt.Sprintf(`{"code":"x","not_before":%q}`, soon)))
	if err != nil {
		t.Fatal(err)
	}
	f.work(t, WorkerOptions{Handler: succeed})
	ctx, cancel := context.WithTimeout(t.Context(), hangTime)
	defer cancel()
	if rec, err := f.Wait(ctx, "other", rec.TaskID); err != nil || !rec.Status.Terminal() {
		t.Errorf("task of the other tenant = %+v, %v; want its end", rec.Status, err)
	}
}
