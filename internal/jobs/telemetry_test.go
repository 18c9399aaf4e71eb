package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
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
		t.Errorf("Connect with a wrong password = %v, %v, want %v", c, err, nats.ErrAuthorization)
	}
	opts.Server.URL = "nats://127.0.0.1:1"
	if c, err := Connect(t.Context(), opts); !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("Connect without a server = %v, %v, want %v", c, err, nats.ErrNoServers)
	}
	opts.Server.Wait = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if c, err := Connect(ctx, opts); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Connect that waits = %v, %v, want %v", c, err, context.DeadlineExceeded)
	}
}

// The status of a span has the code of a refusal, but no values of the refused event.
func TestRefusedValuesAreNotTraced(t *testing.T) {
	f := newFleet(t)
	spans := tracetest.NewSpanRecorder()
	opts := f.opts
	opts.Server, opts.Tracer = Server{URL: f.srv.URL()}, sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(spans)).Tracer("")
	opts.Policy = func(string) (TenantPolicy, bool) { return TenantPolicy{}, true }
	c, err := Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	refused := []string{
		`{"code":"x","network":{"allow":["jane-doe.example.org"]}}`, `{"code":"x","files":[{"path":"../jane-doe"}]}`,
		`{"code":"x","jane-doe":1}`, `{"code":"x","not_before":"jane-doe"}`, `{"code":"x","pool":"jane-doe!"}`,
	}
	for _, data := range refused {
		if rec, err := c.Submit(t.Context(), "acme", taskEvent("1", data)); err == nil {
			t.Errorf("Submit(%s) = %+v, want an error", data, rec)
		}
	}
	if _, err := c.Submit(t.Context(), "acme", taskEvent("1", `{"code":"x"}`, "session", "jane-doe!")); err == nil {
		t.Error("Submit with an invalid session = nil, want an error")
	}
	ended := spans.Ended()
	if len(ended) != len(refused)+1 {
		t.Errorf("%d spans, want %d", len(ended), len(refused)+1)
	}
	for _, s := range ended {
		if all := fmt.Sprint(s.Name(), s.Attributes(), s.Events(), s.Status()); strings.Contains(all, "jane-doe") ||
			s.Status().Code != codes.Error || s.Status().Description == "" {
			t.Errorf("span %s; want an error status without the event's values", all)
		}
	}
}
