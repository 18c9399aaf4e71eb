package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestNullArguments checks, for every argument of every tool, that null means absent if the argument is optional, and
// is otherwise refused by name.
func TestNullArguments(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	for _, profile := range bridge.Profiles() {
		o := options(f, ingesttest.Token)
		o.Profile = profile
		cs, _ := stdio(t, o, nil)
		for tool, err := range cs.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			schema, _ := tool.InputSchema.(map[string]any)
			properties, _ := schema["properties"].(map[string]any)
			required, _ := schema["required"].([]any)
			for name := range properties {
				out, _ := invoke(t, cs, tool.Name, map[string]any{name: nil})
				_, failsWithout := invoke(t, cs, tool.Name, map[string]any{})
				text := strings.ToLower(fmt.Sprint(out))
				switch {
				case strings.Contains(text, "reflect"):
					t.Errorf("%s %s with %s null: %s", profile, tool.Name, name, text)
				case len(required) == 0 && !failsWithout && strings.Contains(text, "bad_argument"):
					t.Errorf("%s %s with %s null is refused: %s", profile, tool.Name, name, text)
				}
				for _, r := range required {
					if r == name && !strings.Contains(text, name+" is required and must not be null") {
						t.Errorf("%s %s with %s null: %s, want an error that names it", profile, tool.Name, name, text)
					}
				}
			}
		}
	}
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	out, failed := invoke(t, cs, "execute_task", map[string]any{
		"code": "print file", "task_description": nil, "inputs": nil, "tools": nil,
		"files": []any{map[string]any{"name": "a.txt", "text": "x", "base64": nil}},
	})
	if failed {
		t.Errorf("execute_task with nulls for optional arguments: %v", out)
	}
	out, _ = invoke(t, cs, "execute_task", map[string]any{"code": "print x", "tools": []any{"a/b", nil}})
	if text := fmt.Sprint(out); !strings.Contains(text, "tools[1] must not be null") {
		t.Errorf("execute_task with a null in tools: %s, want an error that names it", text)
	}
}
