package bridge_test

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

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
