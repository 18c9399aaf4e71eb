package schemas

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/codefleet/codefleet/internal/violation"
)

// TestPatternsInWords checks that the error of a value that does not match a pattern of a task or a workflow describes
// the pattern in words.
func TestPatternsInWords(t *testing.T) {
	found := 0
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				visit(item)
			}
		case map[string]any:
			if pattern, ok := v["pattern"].(string); ok {
				found++
				got := violation.Describe(&kind.Pattern{Got: "a b", Want: pattern})
				if !strings.HasPrefix(got, `"a b": `) || strings.Contains(got, pattern) {
					t.Errorf("violation of %s = %s, want it in words", pattern, got)
				}
			}
			for _, item := range v {
				visit(item)
			}
		}
	}
	for _, name := range []string{TaskV1, WorkflowV1} {
		text, err := Text(name)
		if err != nil {
			t.Fatal(err)
		}
		var schema any
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		visit(schema)
	}
	if found < 9 {
		t.Errorf("found %d patterns, want at least 9", found)
	}
}
