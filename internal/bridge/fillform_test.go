package bridge_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/form"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

const orderForm = `{"type": "object", "title": "Order", "required": ["name", "n", "code"], "properties": {
	"name": {"type": "string"}, "n": {"type": "integer", "maximum": 9},
	"code": {"type": "string", "pattern": "^[A-Z]{3}$"}}}`

// TestFillForm checks that the user of a client is asked for what the document does not say, and again after a wrong
// answer.
func TestFillForm(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	url := serve(t, f, nil)
	for _, version := range revisions {
		var asked []string
		answers := []map[string]any{{"n": 3, "code": "abc"}, {"code": "ABC"}}
		cs := dialAs(t, url, ingesttest.ReadOnly, version, &mcp.ClientOptions{
			ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked = append(asked, req.Params.Message)
				if len(answers) == 0 {
					return &mcp.ElicitResult{Action: "decline"}, nil
				}
				content := answers[0]
				answers = answers[1:]
				return &mcp.ElicitResult{Action: "accept", Content: content}, nil
			},
		})
		args := map[string]any{"form": json.RawMessage(orderForm), "document": "Name: Ada"}
		got, failed := invoke(t, cs, "fill_form", args)
		want := map[string]any{"name": "Ada", "n": 3.0, "code": "ABC"}
		if diff := cmp.Diff(any(want), got["values"]); failed || diff != "" {
			t.Errorf("%s: fill_form = %v: %s", version, got, diff)
		}
		wantAsked := []string{
			"Order\n\"n\" is missing\n\"code\" is missing", "Order\n\"code\" must match the pattern ^[A-Z]{3}$",
		}
		if diff := cmp.Diff(wantAsked, asked); diff != "" {
			t.Errorf("%s: questions: %s", version, diff)
		}
		asked = nil // the user declines: the problems stay
		got, failed = invoke(t, cs, "fill_form", args)
		if list, _ := got["problems"].([]any); failed || len(asked) != 1 || len(list) != 2 {
			t.Errorf("%s: after %d declined questions: %v, want 2 problems after 1", version, len(asked), got)
		}
	}
}

// TestFillFormWithChoices checks that the user is asked for choices, however the form lists them. The SDK checks the
// question and the answer as the protocol demands.
func TestFillFormWithChoices(t *testing.T) {
	const source = `{"type": "object", "properties": {
		"cause": {"type": "string", "oneOf": [{"const": "water", "title": "Water damage"}, {"const": "fire"}]},
		"rooms": {"type": "array", "items": {"enum": ["kitchen", "bath"]}},
		"help": {"type": "array", "items": {"type": "string", "oneOf": [{"const": "now"}, {"const": "later"}]}}},
		"required": ["cause", "rooms", "help"]}`
	f := ingesttest.Start(t, 0, nil)
	url := serve(t, f, nil)
	for _, version := range revisions {
		answer := map[string]any{"cause": "fire", "rooms": []any{"bath"}, "help": []any{"now", "later"}}
		cs := dialAs(t, url, ingesttest.ReadOnly, version, &mcp.ClientOptions{
			ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "accept", Content: answer}, nil
			},
		})
		got, failed := invoke(t, cs, "fill_form", map[string]any{"form": json.RawMessage(source)})
		if diff := cmp.Diff(any(answer), got["values"]); failed || diff != "" {
			t.Errorf("%s: fill_form = %v: %s", version, got, diff)
		}
	}
}

// TestFillFormWithoutAsking checks that the result lists what is missing if the client cannot ask its user, and that
// wrong and large arguments are refused.
func TestFillFormWithoutAsking(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	cs, _ := stdio(t, options(f, ingesttest.ReadOnly), nil)
	got, failed := invoke(t, cs, "fill_form", map[string]any{
		"form": json.RawMessage(orderForm), "values": map[string]any{"name": "Ada", "code": "ABC", "m": 1},
	})
	if list, _ := got["problems"].([]any); failed || len(list) != 2 {
		t.Errorf("fill_form = %v, want problems of n and m", got)
	}
	for _, args := range []map[string]any{
		{"form": map[string]any{"type": "object"}},
		{"form": json.RawMessage(orderForm), "document": strings.Repeat("x", form.MaxDocument+1)},
		{"form": json.RawMessage(orderForm), "values": map[string]any{"name": strings.Repeat("x", 30_000)}},
	} {
		r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "fill_form", Arguments: args})
		if err != nil || !r.IsError {
			t.Errorf("fill_form(%.60v) = %v, %v, want an error", args, r, err)
		}
	}
}
