package bridge_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestCloseEndsWaitForRun checks that a call that waits for a workflow run returns what it has when the bridge closes.
func TestCloseEndsWaitForRun(t *testing.T) {
	respond := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	waits := make(chan struct{})
	polled := sync.OnceFunc(func() { close(waits) })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/whoami", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, client.Identity{Tenant: "t", Scopes: []string{"read"}})
	})
	mux.HandleFunc("GET /v1/workflows/runs/{id}", func(w http.ResponseWriter, r *http.Request) {
		respond(w, client.WorkflowRun{RunID: r.PathValue("id"), Status: "running"})
		polled()
	})
	fleet := httptest.NewServer(mux)
	t.Cleanup(fleet.Close)
	b := bridge.New(bridge.Options{Fleet: client.Options{URL: fleet.URL}})
	s := httptest.NewServer(b.Handler())
	t.Cleanup(s.Close)
	cs := dial(t, streamable(s.URL, "x"), "")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-waits
		b.Close()
	}()
	r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "get_workflow_run", Arguments: map[string]any{"run_id": "r", "wait_ms": 45_000},
	})
	polled() // if the call failed before
	<-closed
	if err != nil {
		t.Fatalf("get_workflow_run = %v, want the run", err)
	}
	if run, _ := r.StructuredContent.(map[string]any); run["status"] != "running" || run["run_id"] != "r" {
		t.Errorf("get_workflow_run = %v, want the run r, running", run)
	}
}

// TestWorkflows runs a workflow that asks, and answers it.
func TestWorkflows(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	call := func(name string, args map[string]any) (map[string]any, string) {
		t.Helper()
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		out, _ := res.StructuredContent.(map[string]any)
		var texts []string
		for _, c := range res.Content {
			if text, ok := c.(*mcp.TextContent); ok {
				texts = append(texts, text.Text)
			}
		}
		return out, strings.Join(texts, "\n")
	}
	definition := map[string]any{
		"name": "asks",
		"steps": []any{map[string]any{"id": "a", "ask": map[string]any{"message": "How many?", "form": map[string]any{
			"type": "object", "required": []any{"n"},
			"properties": map[string]any{"n": map[string]any{"type": "integer"}},
		}}}},
		"outputs": map[string]any{"n": map[string]any{"value": "${ steps.a.result.n + 1 }"}},
	}
	run, _ := call("run_workflow", map[string]any{"workflow": definition})
	steps, _ := run["steps"].([]any)
	if len(steps) != 1 || run["status"] != "waiting" {
		t.Fatalf("run_workflow = %v, want a run that waits", run)
	}
	if step, _ := steps[0].(map[string]any); step["message"] != "How many?" {
		t.Errorf("the step is %v, want its question", step)
	}
	id := run["run_id"]
	_, refused := call("answer_workflow", map[string]any{"run_id": id, "step": "a", "values": map[string]any{"n": "x"}})
	if !strings.Contains(refused, "bad_answer") {
		t.Errorf("a wrong answer = %s, want bad_answer", refused)
	}
	call("answer_workflow", map[string]any{"run_id": id, "step": "a", "values": map[string]any{"n": 4}})
	run, _ = call("get_workflow_run", map[string]any{"run_id": id})
	outputs, _ := run["outputs"].(map[string]any)
	if run["status"] != "succeeded" || outputs["n"] != 5.0 {
		t.Errorf("get_workflow_run = %v, want n = 5", run)
	}
	loop := map[string]any{"name": "asks", "steps": []any{map[string]any{
		"id": "a", "for_each": map[string]any{"in": []any{"red", "blue"}},
		"ask": map[string]any{"message": "How many ${ item }?", "form": map[string]any{
			"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer"}},
		}},
	}}}
	run, _ = call("run_workflow", map[string]any{"workflow": loop})
	for i, want := range []string{"How many red?", "How many blue?"} {
		steps, _ = run["steps"].([]any)
		asked, _ := steps[len(steps)-1].(map[string]any)
		if len(steps) != 2 || asked["id"] != "a" || asked["item"] != float64(i) || asked["message"] != want {
			t.Fatalf("the steps of a loop that asks are %v, want the question %q of item %d", steps, want, i)
		}
		run, _ = call("answer_workflow", map[string]any{
			"run_id": run["run_id"], "step": "a", "item": i, "values": map[string]any{"n": i},
		})
	}
	_, refused = call("run_workflow", map[string]any{"workflow": map[string]any{"name": "x", "steps": []any{}}})
	if !strings.Contains(refused, "bad_workflow") || !strings.Contains(refused, "/steps") {
		t.Errorf("a wrong workflow = %s, want bad_workflow and its place", refused)
	}
}
