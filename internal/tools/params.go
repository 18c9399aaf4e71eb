package tools

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// Param is one parameter of a tool's function, under its Python name.
type Param struct {
	Name        string   `json:"name"`
	Type        string   `json:"type,omitempty"` // as the signature says it
	Description string   `json:"description,omitempty"`
	Enum        []string `json:"enum,omitempty"`
	Required    bool     `json:"required,omitempty"`
}

// Params reads the parameters out of the signature, in its order, and what the input schema says of
// those that have the same name there. *args and **kwargs are left out.
func (t Tool) Params() []Param {
	_, inner, ok := strings.Cut(t.Signature, "(")
	if !ok {
		return nil
	}
	var schema struct {
		Properties map[string]struct {
			Description string `json:"description"`
			Enum        []any  `json:"enum"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(t.InputSchema, &schema) // what cannot be read adds nothing
	var out []Param
	for _, part := range splitParams(inner) {
		name, rest, typed := strings.Cut(part, ":")
		typ, _, optional := strings.Cut(rest, "=")
		if !typed {
			name, _, optional = strings.Cut(part, "=")
		}
		name = strings.TrimSpace(name)
		if !isIdentifier(name) {
			continue // * and /
		}
		p := Param{Name: name, Type: strings.TrimSpace(typ), Required: !optional}
		about := schema.Properties[name]
		p.Description = text.Printable(about.Description)
		for _, e := range about.Enum {
			p.Enum = append(p.Enum, text.Printable(fmt.Sprint(e)))
		}
		out = append(out, p)
	}
	return out
}

// splitParams cuts at the commas outside of brackets and strings, up to the closing bracket.
func splitParams(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\'':
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		case '(', '[', '{':
			depth++
		case ',':
			if depth == 0 {
				out = append(out, s[from:i])
				from = i + 1
			}
		case ')', ']', '}':
			if depth--; depth < 0 {
				return append(out, s[from:i])
			}
		}
	}
	return out
}
