package violation

import (
	"errors"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestDescribeWritesPlainNumbers(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{"maximum": 604800}`, `35996400`, "maximum: got 35996400, want 604800"},
		{`{"maximum": 604800.5}`, `1e300`, "maximum: got 1e+300, want 604800.5"},
		{`{"minimum": 0.001}`, `-1e-9`, "minimum: got -1e-09, want 0.001"},
		{`{"exclusiveMinimum": 1000000}`, `1000000`, "exclusiveMinimum: got 1000000, want 1000000"},
		{`{"exclusiveMaximum": 0}`, `12345678`, "exclusiveMaximum: got 12345678, want 0"},
		{`{"multipleOf": 1000000}`, `1500000`, "multipleOf: got 1500000, want 1000000"},
		{`{"minLength": 1000000}`, `"x"`, "minLength: got 1, want 1000000"},
		{`{"maxLength": 1000}`, `"` + strings.Repeat("x", 1001) + `"`, "maxLength: got 1001, want 1000"},
		{`{"minItems": 1000}`, `[]`, "minItems: got 0, want 1000"},
		{`{"maxItems": 0}`, `[` + strings.Repeat("1,", 1000) + `1]`, "maxItems: got 1001, want 0"},
		{`{"minProperties": 1000}`, `{}`, "minProperties: got 0, want 1000"},
		{`{"maxProperties": 0}`, `{"a": 1}`, "maxProperties: got 1, want 0"},
		{`{"type": "string"}`, `1`, "got number, want string"},
	} {
		if got := describe(t, c.schema, c.value); got != c.want {
			t.Errorf("Describe(%.40s against %s) = %q, want %q", c.value, c.schema, got, c.want)
		}
	}
}

// describe returns the description of the one violation of a schema by a value.
func describe(t *testing.T, schema, value string) string {
	t.Helper()
	decode := func(s string) any {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("s.json", decode(schema)); err != nil {
		t.Fatal(err)
	}
	e, ok := errors.AsType[*jsonschema.ValidationError](c.MustCompile("s.json").Validate(decode(value)))
	if !ok || len(e.Causes) != 1 {
		t.Fatalf("%.40s against %s: %v, want one violation", value, schema, e)
	}
	return Describe(e.Causes[0].ErrorKind)
}

// TestLeavesOfNames checks that a violation by a property's name has the location of the property.
func TestLeavesOfNames(t *testing.T) {
	c := jsonschema.NewCompiler()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(
		`{"properties": {"env": {"propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}}, "x": {}, "y": {}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddResource("s.json", doc); err != nil {
		t.Fatal(err)
	}
	err = c.MustCompile("s.json").Validate(map[string]any{"env": map[string]any{"A-BC": "1"}, "x": 1, "y": 2})
	e, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		t.Fatalf("Validate() = %v, want a violation", err)
	}
	found := Leaves(e)
	if len(found) != 2 {
		t.Errorf("Leaves() = %v, want two", found)
	}
	for _, leaf := range found {
		if at := strings.Join(leaf.InstanceLocation, "/"); at != "env/A-BC" {
			t.Errorf("violation at %q, want env/A-BC: %s", at, Describe(leaf.ErrorKind))
		}
	}
}
