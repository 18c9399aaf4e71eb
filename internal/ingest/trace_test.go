package ingest_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	parent  = "00-" + traceID + "-b7ad6b7169203331-01"
)

func TestRequestTraceContinuesInTask(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Telemetry.Tracer = provider.Tracer("ingest")
	})
	_, got := request(t, f, "POST", "/v1/tasks",
		map[string]string{"Content-Type": "application/json", "Traceparent": parent},
		strings.NewReader(`{"code":"1"}`))
	if r := decode[schemas.Record](t, got); r.TraceID != traceID {
		t.Errorf("trace of the task = %q, want %q", r.TraceID, traceID)
	}
	f.HTTP.Close()
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans, want 1", len(ended))
	}
	span := ended[0]
	if span.Name() != "POST /v1/tasks" || span.Parent().TraceID().String() != traceID ||
		span.Parent().SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("span %q has the parent %v, want POST /v1/tasks with the caller's span", span.Name(), span.Parent())
	}
}

func TestEventTrace(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	const origin = "11111111111111111111111111111111"
	for name, tt := range map[string]struct{ header, want string }{
		"continues if the request has none": {"", origin}, "loses to that of the request": {parent, traceID},
	} {
		t.Run(name, func(t *testing.T) {
			header := map[string]string{"Content-Type": structured, "Traceparent": tt.header}
			body := `{"specversion":"1.0","type":"codefleet.task.v1","source":"/t","id":"` + name +
				`","traceparent":"00-` + origin + `-2222222222222222-01","data":{"code":"1"}}`
			_, got := request(t, f, "POST", "/v1/events", header, strings.NewReader(body))
			if r := decode[schemas.Record](t, got); r.TraceID != tt.want {
				t.Errorf("trace of the task = %q, want %q", r.TraceID, tt.want)
			}
		})
	}
}
