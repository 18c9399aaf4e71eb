package mcp

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/codefleet/codefleet/internal/tools"
)

// redactDefinition removes the secrets from the texts of a definition that people and models read.
func (r redactor) redactDefinition(d *tools.Definition) {
	for _, text := range []*string{&d.Title, &d.Description, &d.Annotations.Title} {
		*text = r.replace(*text)
	}
	for _, schema := range []*json.RawMessage{&d.InputSchema, &d.OutputSchema} {
		if r.replace(string(*schema)) == string(*schema) {
			continue // keep the order of the properties
		}
		if value, err := tools.DecodeJSON(*schema); err == nil {
			if encoded, err := tools.EncodeJSON(r.redactSchema(value)); err == nil {
				*schema = bytes.TrimSpace(encoded)
			}
		}
	}
}

// redactSchema returns a JSON Schema without the secrets in its texts, and without the defaults and examples that
// contain a secret. It keeps names and permitted values, without which the tool could not be called.
func (r redactor) redactSchema(schema any) any {
	switch s := schema.(type) {
	case string:
		return r.replace(s)
	case []any:
		for i, part := range s {
			s[i] = r.redactSchema(part)
		}
	case map[string]any:
		for name, value := range s {
			switch {
			case slices.Contains(forPrograms, name):
			case name == "default", name == "examples", name == "example":
				if r.contained(value) {
					delete(s, name)
				}
			case slices.Contains(byName, name):
				parts, _ := value.(map[string]any)
				for property, part := range parts {
					if _, names := part.([]any); !names {
						parts[property] = r.redactSchema(part)
					}
				}
			default:
				s[name] = r.redactSchema(value)
			}
		}
	}
	return schema
}

// forPrograms are the members of a schema whose texts have a meaning for programs.
var forPrograms = []string{
	"$ref", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$schema", "type", "format", "pattern", "enum", "const",
	"required",
}

// byName are the members of a schema whose own members are named by the tool.
var byName = []string{
	"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependentRequired", "dependencies",
}

// contained reports whether a JSON value contains a secret.
func (r redactor) contained(value any) bool {
	text, err := tools.EncodeJSON(value)
	return err == nil && r.replace(string(text)) != string(text)
}
