package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// LintWarning is something in a tool's texts that an operator should see before approving the tool.
type LintWarning struct {
	Tool    string `json:"tool"`  // server/tool
	Field   string `json:"field"` // name | title | description | schema
	Message string `json:"message"`
}

// Lint finds text that a model reads differently than a person does: hidden characters, and phrases that
// instruct the model instead of describing the tool. The warnings are for the operator who approves the tool.
// They are not a reason to reject it, because an attacker can easily rephrase.
func Lint(server string, d Definition) []LintWarning {
	var out []LintWarning
	tool := server + "/" + text.PrintableLine(d.Name)
	for _, f := range [...]struct{ name, text string }{
		{"name", d.Name},
		{"title", d.Title},
		{"title", d.Annotations.Title},
		{"description", d.Description},
		{"schema", schemaTexts(d.InputSchema)},
		{"schema", schemaTexts(d.OutputSchema)},
	} {
		for _, message := range lintString(f.text) {
			out = append(out, LintWarning{Tool: tool, Field: f.name, Message: message})
		}
	}
	return out
}

// schemaTexts returns all keys and strings of a JSON value, one per line. They are decoded, because JSON
// can hide a character behind an escape.
func schemaTexts(raw json.RawMessage) string {
	var b strings.Builder
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		t, err := dec.Token()
		if err != nil {
			return b.String()
		}
		if s, ok := t.(string); ok {
			b.WriteString(s)
			b.WriteByte('\n')
		}
	}
}

func lintString(s string) []string {
	var out []string
	counts := map[rune]int{}
	for _, r := range s {
		if text.Hidden(r) {
			counts[r]++
		}
	}
	for i, r := range slices.Sorted(maps.Keys(counts)) {
		if i == 5 {
			out = append(out, fmt.Sprintf("and %d other hidden characters", len(counts)-i))
			break
		}
		out = append(out, fmt.Sprintf("hidden character U+%04X (×%d)", r, counts[r]))
	}
	lower := strings.ToLower(s)
	for _, phrase := range suspicious {
		if strings.Contains(lower, phrase) {
			out = append(out, fmt.Sprintf("addresses the model: %q", phrase))
		}
	}
	return out
}

// suspicious lists phrases that an honest tool's description rarely needs.
var suspicious = []string{
	"ignore previous", "ignore all previous", "ignore the above", "disregard previous", "system prompt",
	"do not tell the user", "don't tell the user", "do not mention", "without telling", "<important>",
	"before using any other tool", "instead of any other tool", "you must always call", "conversation history",
}
