package up_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/logtest"
)

// TestToolCallsAreRecorded checks that each tool call has an audit record and a span in its task's trace, and that
// audit records, spans and the log do not contain arguments or results.
func TestToolCallsAreRecorded(t *testing.T) {
	spans, log := tracetest.NewSpanRecorder(), &logtest.Log{}
	f, c, stop := startFleet(t, spans, log)
	const code = `
from client.mcp_client import ToolError, call_mcp_tool
from servers.calculator import add, calculate
from servers.filesystem import write_file
add(270915, 1)
for call in lambda: calculate("270915/0"), lambda: call_mcp_tool("calculator", "ad270915", {"a": 270915}):
    try:
        call()
    except ToolError:
        pass
write_file("a", "270915")
`
	rec, err := c.Run(t.Context(), client.Submission{Task: client.Task{Code: code}})
	if err != nil || rec.Status != client.Succeeded {
		t.Fatalf("Run = %+v, %v; want succeeded", rec, err)
	}
	var calls []string
	for _, call := range rec.Result.Tools.Calls {
		calls = append(calls, fmt.Sprintf("%s/%s %t", call.Server, call.Tool, call.OK))
	}
	if d := cmp.Diff([]string{
		"calculator/add true", "calculator/calculate false", "calculator/ad270915 false",
		"filesystem/write_file true",
	}, calls); d != "" {
		t.Errorf("calls of the result (-want +got):\n%s", d)
	}
	queue, err := jobs.Connect(t.Context(), jobs.Options{
		Server:      jobs.Server{URL: f.File.NATS.URL},
		Credentials: jobs.Credentials{User: f.File.NATS.User, Password: f.File.NATS.Password},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	records, err := queue.AuditTrail(t.Context(), rec.Tenant, jobs.AuditOptions{Task: rec.TaskID})
	var trail []string
	for _, e := range slices.Backward(records) {
		trail = append(trail, fmt.Sprintf("%s %s/%s %t %s", e.Event, e.Server, e.Tool, e.OK, e.Code))
		if e.Tenant != rec.Tenant || len(e.ArgsHash) != 64 {
			t.Errorf("audit record = %+v, want the tenant and a hash of the arguments", e)
		}
	}
	if data, err := json.Marshal(records); err != nil || strings.Contains(string(data), "270915") {
		t.Errorf("an audit record contains an argument or a result: %s, %v", data, err)
	}
	want := []string{
		"end calculator/add true ", "end calculator/calculate false tool_failed",
		"end calculator/(unknown) false unknown",
	}
	if d := cmp.Diff(want, trail); d != "" || err != nil {
		t.Errorf("AuditTrail: %v (-want +got):\n%s", err, d)
	}
	stop()
	var statuses []string
	run := map[string]bool{} // span ids
	ended := spans.Ended()
	for _, s := range ended {
		if s.Name() == "sandbox.run" {
			run[s.SpanContext().SpanID().String()] = true
		}
	}
	for _, s := range ended {
		if s.Name() == "tool.call" {
			if s.SpanContext().TraceID().String() != rec.TraceID || !run[s.Parent().SpanID().String()] {
				t.Errorf("span %v is not a child of the run's span", s)
			}
			statuses = append(statuses, fmt.Sprintf("%v %s", s.Status().Code == codes.Error, s.Status().Description))
		}
		if strings.Contains(fmt.Sprint(s.Attributes(), s.Events(), s.Status()), "270915") {
			t.Errorf("span %s contains an argument or a result", s.Name())
		}
	}
	slices.Sort(statuses)
	if d := cmp.Diff([]string{"false ", "true tool_failed", "true unknown"}, statuses); d != "" {
		t.Errorf("spans of calls (-want +got):\n%s", d)
	}
	if text := log.String(); strings.Contains(text, "270915") || strings.Count(text, `msg="tool called"`) != 3 {
		t.Errorf("the log contains an argument or a result, or not 3 calls:\n%s", text)
	}
}
