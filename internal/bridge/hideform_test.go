package bridge

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func hideAda(_ context.Context, s string) string { return strings.ReplaceAll(s, "ada@x.org", "[X]") }

// TestHideFormsAndURIs checks that values are replaced in the texts of forms, in URIs and in prompts.
func TestHideFormsAndURIs(t *testing.T) {
	form := &mcp.ElicitParams{Message: "for ada@x.org", RequestedSchema: &jsonschema.Schema{
		Type: "object", Title: "ada@x.org", Properties: map[string]*jsonschema.Schema{"who": {
			Type: "string", Title: "to ada@x.org", Description: "ada@x.org", Default: json.RawMessage(`"ada@x.org"`),
		}},
	}}
	call := &mcp.CallToolResult{
		Content: []mcp.Content{
			&mcp.ResourceLink{URI: "codefleet://tasks/t/artifacts/ada%40x.org.csv", Name: "ada@x.org.csv"},
			&mcp.ResourceLink{URI: "codefleet://tasks/t/artifacts/a%20b", Name: "a b"},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///ada@x.org"}},
		},
		InputRequests: mcp.InputRequestMap{"q": form},
	}
	prompts := &mcp.ListPromptsResult{Prompts: []*mcp.Prompt{{Name: "p", Description: "mails ada@x.org"}}}
	prompt := &mcp.GetPromptResult{
		Description: "ada@x.org", Messages: []*mcp.PromptMessage{{Content: &mcp.TextContent{Text: "ada@x.org"}}},
	}
	for _, r := range []mcp.Result{call, prompts, prompt} {
		if err := hideResult(t.Context(), hideAda, r); err != nil {
			t.Fatal(err)
		}
		if data, _ := json.Marshal(r); strings.Contains(string(data), "ada") || !strings.Contains(string(data), "[X]") {
			t.Errorf("%T = %s, want tokens and no value", r, data)
		}
	}
	links := [2]string{}
	for i := range links {
		if l, ok := call.Content[i].(*mcp.ResourceLink); ok {
			links[i] = l.URI
		}
	}
	want := [2]string{"codefleet://tasks/t/artifacts/%5BX%5D.csv", "codefleet://tasks/t/artifacts/a%20b"}
	if links != want {
		t.Errorf("URIs %q, want %q", links, want)
	}
}

// TestFormsWithValuesInChoices checks that a form is refused if a name or a choice of a field has a value, because the
// answer must have the same names and choices.
func TestFormsWithValuesInChoices(t *testing.T) {
	for _, source := range []string{
		`{"type": "object", "properties": {"who": {"type": "string", "enum": ["ada@x.org"]}}}`,
		`{"type": "object", "properties": {"ada@x.org": {"type": "string"}}}`,
		`{"type": "object", "properties": {"who": {"type": "array", "items": {"anyOf": [{"const": "ada@x.org"}]}}}}`,
		`{"type": "object", "properties": {"nested": {"type": "object"}}}`,
	} {
		r := &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{
			"q": &mcp.ElicitParams{RequestedSchema: json.RawMessage(source)},
		}}
		if err := hideResult(t.Context(), hideAda, r); err == nil || strings.Contains(err.Error(), "ada@") {
			t.Errorf("%s: %v, want an error without the value", source, err)
		}
	}
}
