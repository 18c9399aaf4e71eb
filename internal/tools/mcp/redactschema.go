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
		*text = r.redact(*text)
	}
	for _, schema := range []*json.RawMessage{&d.InputSchema, &d.OutputSchema} {
		if r.redact(string(*schema)) == string(*schema) {
			continue // keep the order of the properties
		}
		if value, err := tools.DecodeJSON(*schema); err == nil {
			r.redactSchema(value)
			if encoded, err := tools.EncodeJSON(value); err == nil {
				*schema = bytes.TrimSpace(encoded)
			}
		}
	}
}

// redactSchema removes the secrets from the texts of a JSON Schema, and deletes the defaults and examples that contain
// a secret. It keeps names and permitted values, without which the tool could not be called.
func (r redactor) redactSchema(schema any) {
	switch s := schema.(type) {
	case []any:
		for _, part := range s {
			r.redactSchema(part)
		}
	case map[string]any:
		for name, value := range s {
			switch name {
			case "enum", "const":
			case "default", "examples", "example":
				if r.contained(value) {
					delete(s, name)
				}
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
				byName, _ := value.(map[string]any)
				for _, part := range byName {
					r.redactSchema(part)
				}
			default:
				if text, ok := value.(string); ok && !slices.Contains(references, name) {
					s[name] = r.redact(text)
				}
				r.redactSchema(value)
			}
		}
	}
}

// references are the members of a schema whose texts have a meaning for programs.
var references = []string{
	"$ref", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$schema", "type",
	"format", "pattern",
}

// contained reports whether a JSON value contains a secret.
func (r redactor) contained(value any) bool {
	text, err := tools.EncodeJSON(value)
	return err == nil && r.redact(string(text)) != string(text)
}
