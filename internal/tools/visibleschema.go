package tools

import (
	"bytes"
	"encoding/json"
	"strings"
)

// VisibleSchema returns a JSON Schema whose texts for people and models (title, description, $comment)
// have every hidden character spelled out. Values that calls are made of (enum, const, default, names of
// properties) stay as they are: a server would not know them otherwise.
func VisibleSchema(schema json.RawMessage) json.RawMessage {
	if !strings.ContainsFunc(string(schema), hidden) && !bytes.Contains(schema, []byte(`\u`)) {
		return schema
	}
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return schema // what is no JSON was refused before
	}
	showTexts(v)
	out, err := json.Marshal(v)
	if err != nil {
		return schema
	}
	return out
}

func showTexts(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			showTexts(e)
		}
	case map[string]any:
		for name, e := range v {
			switch name {
			case "title", "description", "$comment":
				if text, ok := e.(string); ok {
					v[name] = Visible(text)
				}
			case "enum", "const", "default", "examples":
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
				named, _ := e.(map[string]any)
				for _, schema := range named { // whatever it is called
					showTexts(schema)
				}
			default:
				showTexts(e)
			}
		}
	}
}
