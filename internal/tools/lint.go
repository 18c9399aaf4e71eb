package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// Finding is something in a tool's texts that a person should see before approving it.
type Finding struct {
	Tool    string `json:"tool"`  // server/tool
	Field   string `json:"field"` // name | title | description | schema
	Message string `json:"message"`
}

// Lint looks for text that shows one thing to a person and another to a model: characters that
// nobody sees, and phrases that speak to the reader's model in place of describing the tool. It
// advises whoever approves; it does not refuse (a refusal by phrase is easily walked round).
func Lint(server string, d Definition) []Finding {
	var out []Finding
	for _, f := range [...]struct{ name, text string }{
		{"name", d.Name},
		{"title", d.Title},
		{"title", d.Annotations.Title},
		{"description", d.Description},
		{"schema", schemaTexts(d.InputSchema)},
		{"schema", schemaTexts(d.OutputSchema)},
	} {
		for _, message := range lintString(f.text) {
			out = append(out, Finding{Tool: server + "/" + text.Printable(d.Name), Field: f.name, Message: message})
		}
	}
	return out
}

// texts returns every text in a JSON value, keys too, a line each: in JSON a hidden character may be
// written as an escape.
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
	var order []rune
	for _, r := range s {
		if text.Hidden(r) {
			if counts[r]++; counts[r] == 1 {
				order = append(order, r)
			}
		}
	}
	for i, r := range order {
		if i == 5 {
			out = append(out, fmt.Sprintf("and %d other kinds of hidden character", len(order)-i))
			break
		}
		out = append(out, fmt.Sprintf("hidden character U+%04X, %d times", r, counts[r]))
	}
	lower := strings.ToLower(s)
	for _, phrase := range suspicious {
		if strings.Contains(lower, phrase) {
			out = append(out, fmt.Sprintf("addresses the model: %q", phrase))
		}
	}
	return out
}

// suspicious holds phrases that descriptions of honest tools hardly need.
var suspicious = []string{
	"ignore previous", "ignore all previous", "ignore the above", "disregard previous", "system prompt",
	"do not tell the user", "don't tell the user", "do not mention", "without telling", "<important>",
	"before using any other tool", "instead of any other tool", "you must always call", "conversation history",
}
