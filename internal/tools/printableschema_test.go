package tools

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrintableSchema(t *testing.T) {
	const hostile = `{"type": "object", "title": "a\u202eb", "properties": {
		"enum": {"description": "see\u200bnothing 󠁁", "enum": ["x\u200b", 12345678901234567890], "default": "x\u200b"},
		"description": {"type": "string", "title": "plain"},
		"list": {"items": [{"$comment": "\u2066"}], "anyOf": [{"description": "\ufe0f"}], "pattern": "\u200b",
			"required": ["\u200b"], "x-note": "do\u200b", "enumDescriptions": ["\u200b"],
			"title": {"description": "\u200b"}}},
		"dependencies": {"a": ["x\u200b"], "b": {"description": "\u200b", "required": ["\u200b"]}}}`
	const want = `{"type": "object", "title": "a<U+202E>b", "properties": {
		"enum": {"description": "see<U+200B>nothing <U+E0041>", "enum": ["x\u200b", 12345678901234567890],
			"default": "x\u200b"},
		"description": {"type": "string", "title": "plain"},
		"list": {"items": [{"$comment": "<U+2066>"}], "anyOf": [{"description": "<U+FE0F>"}], "pattern": "\u200b",
			"required": ["\u200b"], "x-note": "do<U+200B>", "enumDescriptions": ["<U+200B>"],
			"title": {"description": "<U+200B>"}}},
		"dependencies": {"a": ["x\u200b"], "b": {"description": "<U+200B>", "required": ["\u200b"]}}}`
	if d := cmp.Diff(canonical(t, want), canonical(t, string(PrintableSchema(json.RawMessage(hostile))))); d != "" {
		t.Errorf("PrintableSchema (-want +got):\n%s", d)
	}
	const shown = `{"description":"<U+200B> & <b>"}`
	if got := string(PrintableSchema(json.RawMessage(`{"description":"\u200b & <b>"}`))); got != shown {
		t.Errorf("PrintableSchema() = %s, want %s", got, shown)
	}
	for _, same := range []string{`{"b": 1, "a": {"description": "Wörter, 中文\n"}}`, `no JSON\u200b`, ``} {
		if got := string(PrintableSchema(json.RawMessage(same))); got != same {
			t.Errorf("PrintableSchema(%s) = %s, want it unchanged", same, got)
		}
	}
}

// canonical returns JSON in one form, with numbers as written.
func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decode = %v, want nil: %s", err, text)
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
