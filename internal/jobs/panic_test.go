package jobs

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/logtest"
	"github.com/codefleet/codefleet/schemas"
)

// TestHandlerOfEventsThatPanics checks that an event at which the handler panics is logged and delivered again, and
// does not end the process.
func TestHandlerOfEventsThatPanics(t *testing.T) {
	var log logtest.Log
	f := newFleet(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	ctx, stop := context.WithCancel(t.Context())
	calls, ended := make(chan int), make(chan error, 1)
	go func() {
		n := 0
		ended <- f.FollowEvents(ctx, func(context.Context, string, event.Event) error {
			n++
			calls <- n
			if n == 1 {
				panic("bad event")
			}
			return nil
		})
	}()
	ev := event.New()
	ev.SetID("1")
	ev.SetSource("/test")
	ev.SetType("told")
	if err := f.PublishEvent(t.Context(), "acme", ev); err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 2; want++ {
		if n := <-calls; n != want {
			t.Errorf("call %d, want %d", n, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("FollowEvents() = %v, want nil", err)
	}
	if text := log.String(); !strings.Contains(text, "bad event") || !strings.Contains(text, "panic_test.go") {
		t.Errorf("log does not have the panic and its stack:\n%s", text)
	}
}

// TestHookThatPanics checks that a task whose hook Ended panics keeps its result, and is announced again: the worker
// goes on.
func TestHookThatPanics(t *testing.T) {
	f := newFleet(t)
	calls := make(chan int, 10)
	n := 0
	f.work(t, WorkerOptions{Handler: succeed, Hooks: Hooks{Ended: func(context.Context, schemas.Record) error {
		n++
		calls <- n
		if n == 1 {
			panic("bad run")
		}
		return nil
	}}})
	ev := taskEvent("a/-1/1", `{"code":"x"}`)
	ev.SetSource(RunSource("r", 0))
	rec, err := f.Submit(t.Context(), "acme", ev)
	if err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 2; want++ {
		if got := <-calls; got != want {
			t.Errorf("call %d of the hook, want %d", got, want)
		}
	}
	if end := f.await(t, rec.TaskID); end.Status != schemas.Succeeded || end.Run != 1 {
		t.Errorf("record = %+v, want succeeded in run 1", end)
	}
	f.awaitEmpty(t)
}

// TestMessageThatPanics checks that a message at which the worker panics does not end the process.
func TestMessageThatPanics(t *testing.T) {
	var log logtest.Log
	f := newFleet(t)
	w := NewWorker(f.Client, WorkerOptions{Handler: succeed, Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer w.lanes.close()
	broken := &message{lane: lane{pool: "default", priority: "normal", tenant: "acme"}, seq: 7} // it has no msg
	if w.process(t.Context(), t.Context(), broken, func(lane, time.Duration) {}) {
		t.Error("process = true, want false: no run began")
	}
	if text := log.String(); !strings.Contains(text, "seq=7") || !strings.Contains(text, "claim.go") {
		t.Errorf("log does not have the message and the stack:\n%s", text)
	}
}
