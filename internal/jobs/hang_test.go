package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/faulttest"
)

// relayed returns a connection to the fleet's queue through a relay.
func (f *fleet) relayed(t *testing.T) (*faulttest.Relay, *Client) {
	t.Helper()
	relay := faulttest.StartRelay(t, strings.TrimPrefix(f.srv.URL(), "nats://"))
	opts := f.opts
	opts.Server = Server{URL: relay.Through(f.srv.URL())}
	c := connect(t, opts)
	t.Cleanup(func() { relay.Set(faulttest.Forward) }) // before the connection closes
	return relay, c
}

// A worker whose drain is over does not wait for a queue that hangs while the worker promotes a delayed task.
func TestHangDuringPromotion(t *testing.T) {
	f := newFleet(t)
	relay, c := f.relayed(t)
	hangs := relay.SetOn(".due", faulttest.Hang) // the end of the message's id
	w := NewWorker(c, WorkerOptions{Handler: succeed})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, ctx) }()
	at := time.Now().Add(time.Second).UTC()
	f.submit(t, "later", fmt.Sprintf(`{"code":"x","not_before":%q}`, at.Format(time.RFC3339Nano)))
	<-hangs
	began, endLag := time.Now(), faulttest.MeasureLag()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
	if took := time.Since(began) - endLag(); took > time.Second {
		t.Errorf("Run() ended %v after the drain, want %v", took, 2*FinishTime)
	}
}

// A process that stops does not wait twice, for the handler of an event and then for a queue that hangs.
func TestHangDuringEvent(t *testing.T) {
	f := newFleet(t)
	relay, c := f.relayed(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var handled time.Time
	go func() {
		ended <- c.FollowEvents(ctx, func(ctx context.Context, _ string, _ event.Event) error {
			stop()
			<-ctx.Done()
			relay.Set(faulttest.Hang)
			handled = time.Now()
			return nil
		})
	}()
	ev := taskEvent("1", `{}`)
	ev.SetType("test")
	if err := f.PublishEvent(t.Context(), "acme", ev); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("FollowEvents() = %v, want nil", err)
	}
	if took := time.Since(handled); took >= followGrace {
		t.Errorf("FollowEvents() ended %v after its handler, want at once", took)
	}
}
