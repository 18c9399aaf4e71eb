package tools

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// VisibleSchema returns a JSON Schema whose texts for people and models (title, description, $comment, and
// keywords that JSON Schema does not have) have every hidden character spelled out. Values that calls are made
// of or checked by (enum, const, default, pattern, names of properties) stay as they are: a server would not
// know them otherwise.
func PrintableSchema(schema json.RawMessage) json.RawMessage {
	if !strings.ContainsFunc(string(schema), text.Hidden) && !bytes.Contains(schema, []byte(`\u`)) {
		return schema
	}
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return schema // what is no JSON was refused before
	}
	printableTexts(v)
	out, err := json.Marshal(v)
	if err != nil {
		return schema
	}
	return out
}

// showTexts changes the texts below v in place and returns v, or what to put for a text.
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
			case "enum", "const", "default", "examples", "pattern", "format", "type", "required", "dependentRequired", "dependencies",
				"$ref", "$id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor":
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
				named, _ := e.(map[string]any)
				for name, schema := range named { // whatever it is called
					named[name] = printableTexts(schema)
				}
			default:
				v[name] = printableTexts(e)
			}
		}
	}
	return v
}
