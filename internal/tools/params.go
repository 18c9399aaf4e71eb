package tools

import (
	"encoding/json"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// Param is one parameter of a tool's function.
type Param struct {
	Name        string   `json:"name"`           // in Python
	Type        string   `json:"type,omitempty"` // as in the signature
	Description string   `json:"description,omitempty"`
	Enum        []string `json:"enum,omitempty"`
	Required    bool     `json:"required,omitempty"`
}

// Params returns the signature's parameters in order, with the description and enum of the input
// schema's property of the same name. It omits *args and **kwargs.
func (t Tool) Params() []Param {
	_, inner, ok := strings.Cut(t.Signature, "(")
	if !ok {
		return nil
	}
	var schema struct {
		Properties map[string]struct {
			Description string            `json:"description"`
			Enum        []json.RawMessage `json:"enum"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(t.InputSchema, &schema) // an invalid schema adds nothing
	var out []Param
	for _, part := range splitParams(inner) {
		declared, optional := cutTopLevel(part, '=')
		name, _ := cutTopLevel(declared, ':')
		typ := strings.TrimPrefix(declared[len(name):], ":")
		name = strings.TrimSpace(name)
		if !isIdentifier(name) {
			continue // *, /, *args or **kwargs
		}
		p := Param{Name: name, Type: strings.TrimSpace(typ), Required: !optional}
		property := schema.Properties[name]
		p.Description = text.Printable(property.Description)
		for _, e := range property.Enum {
			p.Enum = append(p.Enum, enumValue(e))
		}
		out = append(out, p)
	}
	return out
}

// enumValue returns a value of an enum: a string as it is, another value as a Python literal. Numbers keep all their
// digits.
func enumValue(raw json.RawMessage) string {
	value, err := DecodeJSON(raw)
	if s, ok := value.(string); ok {
		return s
	}
	if literal, ok := PyLiteral(value); ok && err == nil {
		return literal
	}
	return string(raw)
}

// cutTopLevel returns s up to the first sep outside of brackets and strings, and whether there is one.
func cutTopLevel(s string, sep byte) (before string, found bool) {
	at, err := (&scanner{src: s, line: 1}).topLevel(sep)
	if err != nil || at < 0 {
		return s, false
	}
	return s[:at], true
}

// splitParams splits a list of parameters at the commas outside of brackets and strings. The list ends with the bracket
// that closes it.
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
