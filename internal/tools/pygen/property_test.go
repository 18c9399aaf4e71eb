package pygen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/pythontest"
	"github.com/codefleet/codefleet/internal/tools"
)

func runPython(t *testing.T, dir, code string) string {
	t.Helper()
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(pythontest.Find(t), "-S", "-B", "-c", code)
	cmd.Env = []string{"PYTHONPATH=" + dir + ":" + testdata}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("run Python = %v, want nil", err)
	}
	return string(out)
}

var keys = rapid.OneOf(
	rapid.SampledFrom([]string{
		"a", "b", "name", "class", "list", "a-b", "a_b", "self", "arguments", "extra", "__x", "UNSET", "3d", "日本", "💥",
		"", "Any",
	}),
	rapid.String(),
)

// drawSchema returns a random schema, and a function that draws valid values.
func drawSchema(t *rapid.T, depth int) (any, func(*rapid.T) any) {
	kinds := []string{"string", "integer", "number", "boolean", "null", "enum", "const", "any"}
	if depth > 0 {
		kinds = append(kinds, "array", "object", "map", "anyOf", "nullable", "ref", "tuple", "object", "array")
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "string":
		return object{
			"type": "string", "description": rapid.String().Draw(t, "description"),
		}, func(t *rapid.T) any { return rapid.String().Draw(t, "s") }
	case "integer":
		return object{
			"type": "integer", "minimum": -1000,
		}, func(t *rapid.T) any { return rapid.IntRange(-1000, 1<<40).Draw(t, "i") }
	case "number":
		return object{"type": "number"}, func(t *rapid.T) any { return rapid.Float64Range(-1e9, 1e9).Draw(t, "f") }
	case "boolean":
		return object{"type": "boolean"}, func(t *rapid.T) any { return rapid.Bool().Draw(t, "b") }
	case "null":
		return object{"type": "null"}, func(*rapid.T) any { return nil }
	case "enum":
		values := rapid.SliceOfNDistinct(rapid.String(), 1, 4, rapid.ID).Draw(t, "values")
		return object{"enum": toAny(values)}, func(t *rapid.T) any { return rapid.SampledFrom(values).Draw(t, "e") }
	case "const":
		v := rapid.String().Draw(t, "const")
		return object{"const": v}, func(*rapid.T) any { return v }
	case "array":
		item, value := drawSchema(t, depth-1)
		return object{"type": "array", "items": item}, func(t *rapid.T) any {
			out := []any{}
			for range rapid.IntRange(0, 3).Draw(t, "n") {
				out = append(out, value(t))
			}
			return out
		}
	case "tuple":
		a, valueA := drawSchema(t, depth-1)
		b, valueB := drawSchema(t, depth-1)
		return object{
			"type": "array", "prefixItems": []any{a, b},
		}, func(t *rapid.T) any { return []any{valueA(t), valueB(t)} }
	case "map":
		item, value := drawSchema(t, depth-1)
		return object{"type": "object", "additionalProperties": item}, func(t *rapid.T) any {
			return map[string]any{rapid.String().Draw(t, "k"): value(t)}
		}
	case "anyOf":
		a, valueA := drawSchema(t, depth-1)
		b, valueB := drawSchema(t, depth-1)
		return object{"anyOf": []any{a, b}}, func(t *rapid.T) any {
			if rapid.Bool().Draw(t, "first") {
				return valueA(t)
			}
			return valueB(t)
		}
	case "nullable":
		return object{"type": []any{"string", "null"}}, func(t *rapid.T) any {
			if rapid.Bool().Draw(t, "null") {
				return nil
			}
			return rapid.String().Draw(t, "s")
		}
	case "ref":
		return object{"$ref": "#/$defs/node"}, func(t *rapid.T) any {
			return map[string]any{"v": 1, "next": map[string]any{"v": 2}}
		}
	case "object":
		s, value := drawObject(t, depth-1)
		return s, func(t *rapid.T) any { return value(t) }
	}
	return true, func(t *rapid.T) any { return rapid.String().Draw(t, "any") }
}

func drawObject(t *rapid.T, depth int) (object, func(*rapid.T) map[string]any) {
	names := rapid.SliceOfNDistinct(keys, 0, 6, rapid.ID).Draw(t, "names")
	properties, values, required := object{}, map[string]func(*rapid.T) any{}, []any{}
	for _, n := range names {
		properties[n], values[n] = drawSchema(t, depth)
		if rapid.Bool().Draw(t, "required") {
			required = append(required, n)
		}
	}
	s := object{"type": "object", "properties": properties, "required": required}
	if rapid.Bool().Draw(t, "closed") {
		s["additionalProperties"] = false
	}
	return s, func(t *rapid.T) map[string]any {
		out := map[string]any{}
		for _, n := range names {
			if slices.Contains(required, any(n)) || rapid.Bool().Draw(t, "given") {
				out[n] = values[n](t)
			}
		}
		return out
	}
}

func toAny(in []string) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}

var nodeSchema = object{
	"type": "object", "properties": object{"v": object{"type": "integer"}, "next": object{"$ref": "#/$defs/node"}},
	"required": []any{"v"},
}

// Whatever the schema, valid arguments can be passed to the function, required ones by position and others
// by name, and are sent unchanged.
func TestValidInstancesPass(t *testing.T) {
	p := startPython(t)
	count := 0
	rapid.Check(t, func(t *rapid.T) {
		count++
		schema, values := drawObject(t, 3)
		schema["$defs"] = object{"node": nodeSchema}
		instance := values(t)
		in, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		name := rapid.SampledFrom([]string{"f", "get-it", "class", "日本"}).Draw(t, "tool")
		d := tools.Definition{
			Name: name, InputSchema: in, OutputSchema: in, Description: rapid.String().Draw(t, "text"),
		}
		server := fmt.Sprintf("s%d", count)
		pkg, err := Generate(Source{Server: server, Tools: []tools.Definition{d}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Write(filepath.Join(p.dir, "servers"), pkg); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(filepath.Join(p.dir, "servers", server))
		q := request{Server: server, Function: pkg.Definitions.Names[name], Kwargs: map[string]any{}}
		for _, param := range newModule(Source{Server: server}, pkg.Definitions.Names[name], d).params {
			v, given := instance[param.jsonName]
			switch {
			case param.required:
				q.Args = append(q.Args, v)
			case given:
				q.Kwargs[param.pythonName] = v
			}
		}
		got := p.call(t, q)
		if got.Error != "" {
			t.Fatalf("call = %s, want no error\n%s\n%s", got.Error, got.Trace, pkg.Files[q.Function+".py"])
		}
		checkSent(t, in, instance, got)
	})
}

func checkSent(t *rapid.T, schema []byte, instance map[string]any, got response) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("s.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("s.json")
	if err != nil {
		t.Fatal(err)
	}
	arguments, err := jsonschema.UnmarshalJSON(bytes.NewReader(got.Value.Arguments))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiled.Validate(arguments); err != nil {
		t.Fatalf("Validate of the sent arguments = %v, want nil\n%s", err, got.Value.Arguments)
	}
	sent := slices.Sorted(maps.Keys(arguments.(map[string]any)))
	if want := slices.Sorted(maps.Keys(instance)); !slices.Equal(sent, want) {
		t.Fatalf("sent %q, want %q", sent, want)
	}
}

// Every text of up to five quotes, backslashes, spaces, letters and line ends is the value of its docstring.
func TestDocstrings(t *testing.T) {
	texts := []string{""}
	for i := 0; len(texts[i]) < 5; i++ {
		for _, char := range []string{`"`, `\`, "\n", " ", "N"} {
			texts = append(texts, texts[i]+char)
		}
	}
	spaces := regexp.MustCompile(` +(\n|$)`)
	var docs, want []string
	for _, text := range texts {
		want = append(want, spaces.ReplaceAllString(strings.TrimSpace(text), "$1"))
		docs = append(docs, tools.PyDoc(text, ""))
	}
	data, err := json.Marshal(docs)
	file := filepath.Join(t.TempDir(), "docs.json")
	if err := errors.Join(err, os.WriteFile(file, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	var got []string
	out := runPython(t, "", "import ast, json\ndocs = json.load(open("+tools.PyString(file)+"))\n"+
		"print(json.dumps([ast.literal_eval(doc).strip() for doc in docs]))")
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("texts of docstrings (-want +got):\n%s", diff)
	}
}
