package tools

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// PrintableSchema returns a JSON Schema whose texts for people and models (title, description,
// $comment, and keywords that JSON Schema does not define) have every hidden character spelled out.
// It keeps what calls contain or are checked against (enum, const, default, pattern, names of
// properties): the server would not recognise it otherwise.
func PrintableSchema(schema json.RawMessage) json.RawMessage {
	if !strings.ContainsFunc(string(schema), text.Hidden) && !bytes.Contains(schema, []byte(`\u`)) {
		return schema
	}
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return schema // invalid JSON was rejected before
	}
	printableTexts(v)
	out, err := json.Marshal(v)
	if err != nil {
		return schema
	}
	return out
}

// printableTexts changes the texts below v in place and returns v, or the new text if v is one.
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
				"dependencies", "$ref", "$id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor":
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
				named, _ := e.(map[string]any)
				for name, schema := range named { // the names are not keywords
					named[name] = printableTexts(schema)
				}
			default:
				v[name] = printableTexts(e)
			}
		}
	}
	return v
}
