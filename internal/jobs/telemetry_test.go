package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/schemas"
)

// The handler's trace is the publisher's, which comes from the context, the headers or the event.
func TestTraceContext(t *testing.T) {
	f := newFleet(t)
	traceIDs := make(chan string, 3)
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		traceIDs <- traceID(ctx)
		return succeed(ctx, j)
	}})
	const (
		byContext = "0af7651916cd43dd8448eb211c80319c"
		byEvent   = "1af7651916cd43dd8448eb211c80319c"
		byHeader  = "2af7651916cd43dd8448eb211c80319c"
	)
	parent := func(id string) string { return "00-" + id + "-b7ad6b7169203331-01" }
	check := func(rec schemas.Record, want string) {
		t.Helper()
		if rec = f.await(t, rec.TaskID); rec.TraceID != want || rec.Result.TraceID != want {
			t.Errorf("trace of the record = %s, of the result = %s, want %s", rec.TraceID, rec.Result.TraceID, want)
		}
		if got := <-traceIDs; got != want {
			t.Errorf("trace of the handler = %s, want %s", got, want)
		}
	}
	id, err := trace.TraceIDFromHex(byContext)
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
	rec, err := f.Submit(ctx, "acme", taskEvent("1", `{"code":"x"}`, "traceparent", parent(byEvent)))
	if err != nil {
		t.Fatal(err)
	}
	check(rec, byContext)
	check(f.submit(t, "2", `{"code":"x"}`, "traceparent", parent(byEvent)), byEvent)
	f.publish(t, "tasks.default.normal.acme", ceHeader("3", "traceparent", parent(byHeader),
		"ce-traceparent", parent(byEvent)), `{"code":"x"}`)
	check(f.awaitForeign(t, "/foreign", "3"), byHeader)
}

func TestConnectErrors(t *testing.T) {
	f := newFleet(t)
	opts := f.opts
	opts.Server, opts.Credentials.Password = Server{URL: f.srv.URL()}, "wrong"
	if c, err := Connect(t.Context(), opts); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("Connect with a wrong password = %v, %v", c, err)
	}
	opts.Server.URL = "nats://127.0.0.1:1"
	if c, err := Connect(t.Context(), opts); !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("Connect without a server = %v, %v", c, err)
	}
	opts.Server.Wait = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if c, err := Connect(ctx, opts); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Connect that waits = %v, %v", c, err)
	}
}
