package broker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// Schemas, arguments and results are untrusted. If validation takes practically unlimited time, it costs the worker
// little and is left to the server. Numbers that the validator cannot compare do not stop the worker.
func TestSchemaThatNeverEnds(t *testing.T) {
	var defs []string
	for i := range 60 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	schema := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{` +
		strings.Join(defs, ",") + `,"d60":{"type":"string"}}}`
	nested := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d"}},"$defs":{"d":{"allOf":[` +
		`{"items":{"$ref":"#/$defs/d"}},{"items":{"$ref":"#/$defs/d"}}]}}}`
	cycle := `{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`
	exponent := `{"type":"object","properties":{"a":{"type":"number","minimum":1}}}`
	exponents := `{"type":"object","properties":{"a":{"type":"number","minimum":1,"maximum":1e9999999,` +
		`"multipleOf":1e-9999999},"b":{"type":"string","minLength":-1e9999999}}}`
	for schema, args := range map[string]string{
		schema: `{"a":"x"}`, exponent: `{"a":1e9999999}`, exponents: `{"a":2}`, cycle: `{"a":1}`,
		nested: `{"a":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`,
	} {
		d := tools.Definition{InputSchema: json.RawMessage(schema)}
		if err := callBomb(t, d, args, "1"); err != nil {
			t.Errorf("Call() = %v, want nil", err)
		}
		d = tools.Definition{InputSchema: object(`{"type":"object"}`), OutputSchema: json.RawMessage(schema)}
		if err := callBomb(t, d, `{}`, args); err != nil {
			t.Errorf("Call() with result %.80s = %v, want nil", args, err)
		}
	}
}

// TestPatternsThatExplode checks that a schema with patterns that would need much memory is left to the server, which
// shows in that a wrong argument reaches it. Values that are patterns are not compiled.
func TestPatternsThatExplode(t *testing.T) {
	large := "(?:" + strings.Repeat("ab", 1000) + "){1000}"
	wide := strings.Repeat("a", 5000)
	many := make([]string, 0, 20)
	for i := range cap(many) {
		many = append(many, fmt.Sprintf(`{"pattern":"%s%d"}`, wide, i))
	}
	for name, schema := range map[string]string{
		"pattern":           `{"properties":{"a":{"pattern":"` + large + `"},"b":{"type":"string"}}}`,
		"patternProperties": `{"patternProperties":{"` + large + `":{}},"properties":{"b":{"type":"string"}}}`,
		"draft 7": `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"pattern":"` + large +
			`"},"b":{"type":"string"}}}`,
		"many patterns": `{"properties":{"a":{"anyOf":[` + strings.Join(many, ",") + `]},"b":{"type":"string"}}}`,
		"long pattern":  `{"properties":{"a":{"pattern":"` + wide + wide + `"},"b":{"type":"string"}}}`,
	} {
		if err := callBomb(t, tools.Definition{InputSchema: object(schema)}, `{"b":1}`, "1"); err != nil {
			t.Errorf("%s: Call() = %v, want nil", name, err)
		}
	}
	d := tools.Definition{InputSchema: object(
		`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"format":"regex"}}}`)}
	for value, want := range map[string]string{large: "", wide + wide: "", "(": "/a: is not a valid pattern"} {
		err := callBomb(t, d, `{"a":"`+value+`"}`, "1")
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("Call() with the pattern %.30s = %v, want %q", value, err, want)
		}
	}
}

// callBomb calls a tool with the schemas of d. The tool's structured result is result.
func callBomb(t *testing.T, d tools.Definition, args, result string) error {
	t.Helper()
	w := newWorld(t)
	d.Name, d.Annotations = "bomb", tools.Annotations{ReadOnly: true}
	w.cfg.Catalogue = tools.NewListing([]tools.Tool{{
		Server: "s", Name: "bomb", State: tools.Registered, Module: "servers.s.bomb", Function: "bomb",
		Signature:   "bomb(...)",
		InputSchema: d.InputSchema, OutputSchema: d.OutputSchema, Annotations: d.Annotations, Hash: d.Hash(),
	}})
	w.reply["bomb"] = func(tools.Request) (tools.Result, error) {
		return tools.Result{Structured: object(result)}, nil
	}
	_, err := w.open().Call(t.Context(), broker.Call{Server: "s", Tool: "bomb", Args: json.RawMessage(args)})
	return err
}
