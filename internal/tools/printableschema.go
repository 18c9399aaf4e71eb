package tools

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// PrintableSchema returns the schema with hidden characters spelled out in the texts for people and
// models: title, description, $comment, and keywords that JSON Schema does not define. It does not
// change what a call contains or is validated against (enum, const, default, pattern, property names),
// because the server would not recognise changed values.
func PrintableSchema(schema json.RawMessage) json.RawMessage {
	if !strings.ContainsFunc(string(schema), text.Hidden) && !bytes.Contains(schema, []byte(`\u`)) {
		return schema
	}
	v, err := DecodeJSON(schema)
	if err != nil {
		return schema // invalid JSON was rejected before
	}
	printableTexts(v)
	out, err := EncodeJSON(v)
	if err != nil {
		return schema
	}
	return bytes.TrimSpace(out)
}

// printableTexts replaces the texts inside v and returns v. If v itself is a text, it returns the new one.
func printableTexts(v any) any {
	switch v := v.(type) {
	case string:
		return text.Printable(v)
	case []any:
		for i, e := range v {
			v[i] = printableTexts(e)
		}
	case map[string]any:
		for name, e := range v {
			switch name {
			case "enum", "const", "default", "examples", "pattern", "format", "type", "required", "dependentRequired",
				"$ref", "$id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor":
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
				named, _ := e.(map[string]any)
				for name, schema := range named { // these names are not keywords
					if _, names := schema.([]any); !names { // which dependencies may have in place of a schema
						named[name] = printableTexts(schema)
					}
				}
			default:
				v[name] = printableTexts(e)
			}
		}
	}
	return v
}
