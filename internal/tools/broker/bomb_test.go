package broker_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// Schemas, arguments and results are untrusted. A validation that would take practically unlimited time is cut short
// and left to the server. Numbers that the validator cannot compare do not stop the worker.
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
	exponent := `{"type":"object","properties":{"a":{"type":"number","maximum":1}}}`
	exponents := `{"type":"object","properties":{"a":{"type":"number","minimum":1,"maximum":1e9999999,` +
		`"multipleOf":1e-9999999},"b":{"type":"string","minLength":-1e9999999}}}`
	for schema, args := range map[string]string{
		schema: `{"a":"x"}`, exponent: `{"a":1e-9999999}`, exponents: `{"a":2}`, cycle: `{"a":1}`,
		nested: `{"a":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`,
	} {
		invalid := schema == cycle || schema == exponents // a negative minLength
		if got := broker.Validates(json.RawMessage(schema)); got == invalid {
			t.Errorf("Validates(%.80s) = %t, want only invalid schemas left to the server", schema, got)
		}
		d := tools.Definition{InputSchema: json.RawMessage(schema)}
		if err := callBomb(t, d, args, "1"); err != nil {
			t.Errorf("Call() = %v, want nil", err)
		}
		d = tools.Definition{InputSchema: object(`{"type":"object"}`), OutputSchema: json.RawMessage(schema)}
		if err := callBomb(t, d, `{}`, args); err != nil {
			t.Errorf("Call() with result %.80s = %v, want nil", args, err)
		}
	}
	large := tools.Definition{InputSchema: object(`{"type":"object"}`), OutputSchema: json.RawMessage(exponents)}
	if err := callBomb(t, large, `{}`, `{"a":1e9999999}`); err != nil {
		t.Errorf("Call() with a result that no float can be = %v, want nil", err)
	}
}

// TestCostOfKeywords checks that no keyword of a schema and no value makes a validation take long: without a limit,
// each of these would take minutes or hours, some of them gigabytes of memory. No value is refused.
func TestCostOfKeywords(t *testing.T) {
	list := func(n int, element string) string { return "[" + strings.Repeat(element+",", n-1) + element + "]" }
	numbers := make([]string, 0, 30_000)
	for i := range cap(numbers) {
		numbers = append(numbers, strconv.Itoa(i))
	}
	enum := "[" + strings.Join(numbers, ",") + "]"
	names := `["` + strings.Join(numbers, `","`) + `"]`
	threads := make([]string, 0, 16) // each pattern has thousands of states at each character
	for i := range cap(threads) {
		threads = append(threads, fmt.Sprintf(`{"pattern":"(?:a?){%d}b"},true`, 1000-i))
	}
	refs := make([]string, 0, 400)
	for i := range cap(refs) {
		refs = append(refs, fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d","items":{"type":"string"}}`, i, i+1))
	}
	object := func(properties int) string {
		return `{"` + strings.Join(numbers[:properties], `":1,"`) + `":1}`
	}
	for name, c := range map[string]struct{ schema, value string }{
		"enum":         {`{"items":{"enum":` + enum + `}}`, list(100_000, "29999")},
		"const":        {`{"items":{"anyOf":[{"const":` + enum + `},true]}}`, "[" + enum + "," + enum + "]"},
		"unique":       {`{"allOf":` + list(2400, `{"uniqueItems":true}`) + `}`, enum},
		"true":         {`{"items":{"allOf":` + list(4500, "true") + `}}`, list(200_000, "1")},
		"false":        {`{"items":{"anyOf":[` + strings.Repeat("false,", 4500) + `true]}}`, list(100_000, "1")},
		"type":         {`{"items":{"anyOf":[` + strings.Repeat(`{"type":"null"},`, 4500) + `{}]}}`, list(99_999, "1")},
		"required":     {`{"items":{"anyOf":[{"required":` + names + `},true]}}`, list(100_000, "{}")},
		"wide objects": {`{"allOf":` + list(4500, `{"minProperties":1}`) + `}`, object(30_000)},
		"long strings": {`{"allOf":` + list(4500, `{"minLength":1}`) + `}`, `"` + strings.Repeat("a", 4<<20) + `"`},
		"pattern":      {`{"anyOf":[` + strings.Join(threads, ",") + `]}`, `"` + strings.Repeat("a", 1<<20) + `"`},
		"references": {
			`{"$ref":"#/$defs/d0","$defs":{` + strings.Join(refs, ",") + `,"d400":{}}}`, list(99_999, "1"),
		},
		"deep location": {
			`{"$ref":"#/$defs/d","$defs":{"d":{"type":"array","items":{"$ref":"#/$defs/d"}}}}`,
			strings.Repeat("[", 5000) + strings.Repeat("1,", 200_000) + "1" + strings.Repeat("]", 5000),
		},
	} {
		t.Run(name, func(t *testing.T) {
			schema := `{"properties":{"a":` + strings.ReplaceAll(c.schema, "#/", "#/properties/a/") + `}}`
			d := tools.Definition{InputSchema: json.RawMessage(`{}`), OutputSchema: json.RawMessage(schema)}
			if !broker.Validates(d.OutputSchema) {
				t.Error("the schema is left to the server, want its cost limited during the validation")
			}
			if err := callBomb(t, d, `{}`, `{"a":`+c.value+`}`); err != nil {
				t.Errorf("Call() = %.300v, want nil", err)
			}
		})
	}
}

// TestPatternsThatExplode checks that a schema with patterns that would need much memory is left to the server: a wrong
// argument reaches it. Values that are patterns are not compiled.
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

// TestKeywordsThatCompare checks the keywords that boundedSchema checks in place of the library.
func TestKeywordsThatCompare(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{"enum":[10,"x",null,{"a":[1,2],"b":true}]}`, `1e1`, ""},
		{`{"enum":[10,"x",null,{"a":[1,2],"b":true}]}`, `{"b":true,"a":[1.0,20e-1]}`, ""},
		{`{"enum":[10,"x",null,{"a":[1,2],"b":true}]}`, `null`, ""},
		{`{"enum":[0.10,-0]}`, `1e-1`, ""},
		{`{"enum":[0.10,-0]}`, `0.0e5`, ""},
		{`{"enum":[100,"1"]}`, `1`, "value must be one of 100, '1'"},
		{`{"enum":[1,"true",null]}`, `true`, "value must be one of 1, 'true', null"},
		{`{"enum":[-5]}`, `5`, "value must be -5"},
		{`{"enum":[["a","b"]]}`, `["a,b"]`, "'enum' failed"},
		{`{"enum":["\u00e9"]}`, `"é"`, ""},
		{`{"const":9007199254740993}`, `9007199254740992`, "value must be 9007199254740993"},
		{`{"const":{"a":1}}`, `{"a":1}`, ""},
		{`{"const":null}`, `"null"`, "value must be null"},
		{`{"uniqueItems":true}`, `[1,"1",true,null,[1],{"a":1},{"a":2}]`, ""},
		{`{"uniqueItems":true}`, `[3,1,2,1e0]`, "items at 1 and 3 are equal"},
		{`{"uniqueItems":true}`, `[` + strings.Repeat(`[[]],`, 30) + `1]`, "items at 0 and 1 are equal"},
		{`{"type":"integer"}`, `1.50e1`, ""},
		{`{"type":"integer"}`, `1.5`, "got number, want integer"},
		{`{"type":["string","null"]}`, `[]`, "got array, want null or string"},
		{`{"type":["number","object"]}`, `{}`, ""},
		{`false`, `1`, "the schema allows no value here"},
		{`{"not":{"enum":[1]}}`, `1.0`, "the schema excludes this value (not)"},
		{`{"$ref":"#/$defs/x"}`, `1`, "got number, want null"},
		{`{"required":["y","z"]}`, `{"z":1}`, "missing property 'y'"},
	} {
		d := tools.Definition{InputSchema: object(
			`{"properties":{"a":` + c.schema + `},"required":["a"],"$defs":{"x":{"type":"null"}}}`)}
		err := callBomb(t, d, `{"a":`+c.value+`}`, "1")
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s against %s: %v, want nil", c.value, c.schema, err)
		case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "/a: "+c.want+" (")):
			t.Errorf("%s against %s: %v, want %q", c.value, c.schema, err, c.want)
		}
	}
}

// TestManyViolations checks that an error names a few of many violations, and says how many more there are.
func TestManyViolations(t *testing.T) {
	d := tools.Definition{InputSchema: object(`{"properties":{"a":{"items":{"type":"string"}}}}`)}
	for n, want := range map[int]string{
		5: "/a/4: got number, want string (",
		7: "/a/4: got number, want string; and 2 more (",
		50_000: "/a/0: got number, want string; /a/10000: got number, want string; /a/10001: got number, want string" +
			"; /a/10002: got number, want string; /a/10003: got number, want string; and 49995 more (",
	} {
		err := callBomb(t, d, `{"a":[`+strings.Repeat("1,", n-1)+`1]}`, "1")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d violations: %v, want %s", n, err, want)
		}
	}
}
