package pygen_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/pygen"
)

// Each of these short schemas describes more types than fit into memory.
func TestSchemaBombs(t *testing.T) {
	refs := func(n int, to string) string { return strings.TrimSuffix(strings.Repeat(`{"$ref":"`+to+`"},`, n), ",") }
	arrays := `{"type":"string"}`
	for range 25 {
		arrays = `{"type":["array","array","array","array"],"items":` + arrays + `}`
	}
	members := func(format string) string {
		var all []string
		for i := range 10_000 {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, ",")
	}
	manyTimes := func(schema string) string {
		return `{"type":"object","allOf":[` + refs(50, "#/$defs/a") + `],"$defs":{"a":{"allOf":[` +
			refs(500, "#/$defs/b") + `]},"b":` + schema + `}}`
	}
	bases := `{}`
	for range 4900 {
		bases = `{"$id":"` + strings.Repeat("a", 80) + `/","x":` + bases + `}`
	}
	for name, schema := range map[string]string{
		"nested bases": bases,
		"large enum": `{"properties":{` + members(`"%d":{"$ref":"#/$defs/e"}`) + `},"$defs":{"e":{"enum":[0.5,` +
			strings.TrimSuffix(strings.Repeat(`"v",`, 2000), ",") + `]}}}`,
		"large defaults": `{"properties":{` + members(`"%d":{"$ref":"#/$defs/e"}`) + `},"required":[` +
			members(`"%d"`) + `],"$defs":{"e":{"default":[` + members("%d") + `]}}}`,
		"many conditions": manyTimes(`{"dependentSchemas":{` + members(`"%d":1`) + `}}`),
		"many tests":      manyTimes(`{"if":{"properties":{` + members(`"%d":1`) + `}}}`),
		"many names":      manyTimes(`{"required":[` + members(`"%d"`) + `]}`),
		"allOf of itself": `{"type":"object","allOf":[` + refs(12, "#") + `]}`,
		"anyOf of itself": `{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"anyOf":[` +
			refs(12, "#/$defs/y") +
			`],"oneOf":[true,true]},"y":{"prefixItems":[` + refs(12, "#/$defs/x") + `],"type":"array"}}}`,
		"types twice": `{"type":"object","properties":{"a":` + arrays + `}}`,
		"long tuples": `{"type":"object","properties":{"a":{"$ref":"#/$defs/t1"}},"$defs":{` +
			`"t1":{"type":"array","prefixItems":[` + refs(16, "#/$defs/t2") + `]},"t2":{"type":"array",` +
			`"prefixItems":[` + refs(16, "#/$defs/t3") + `]},` +
			`"t3":{"type":"array","prefixItems":[` + refs(16, "#/$defs/s") + `]},"s":{"const":"` +
			strings.Repeat("s", 20_000) + `"}}}`,
		"always": `{"type":"object","anyOf":[` + strings.TrimSuffix(strings.Repeat("true,", 20_000),
			",") + `],"oneOf":[` + strings.TrimSuffix(strings.Repeat("true,", 20_000), ",") + `]}`,
		"nested": `{"type":"object","x":` + strings.Repeat("[", 5000) + strings.Repeat("1,", 20_000) + "1" +
			strings.Repeat("]", 5000) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := pygen.Generate(pygen.Source{
				Server: "s",
				Tools: []tools.Definition{
					{Name: "f", InputSchema: json.RawMessage(schema), OutputSchema: json.RawMessage(schema)},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, f := range p.Files {
				size += len(f)
			}
			if size > 4<<20 {
				t.Errorf("a schema of %d bytes generated %d bytes of files, want at most 4 MiB", len(schema), size)
			}
		})
	}
}

// TestNamesThatAreAlike checks that parameters whose names become the same in Python are numbered in one pass: if each
// name tried all numbers, the test would take minutes.
func TestNamesThatAreAlike(t *testing.T) {
	const n = 60_000
	properties := make([]string, n)
	for i := range n {
		properties[i] = `"a` + string(rune(0x2500+i/256)) + string(rune(0x2500+i%256)) + `":0`
	}
	p, err := pygen.Generate(pygen.Source{Server: "s", Tools: []tools.Definition{{
		Name: "f", InputSchema: json.RawMessage(`{"properties":{` + strings.Join(properties, ",") + `}}`),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	all := string(bytes.Join(slices.Collect(maps.Values(p.Files)), nil))
	for _, name := range []string{"a__", "a___2", "a___60000"} {
		line := "    " + name + ": Any = UNSET,\n"
		if strings.Count(all, line) != 1 {
			t.Errorf("the module has %d lines %q, want 1", strings.Count(all, line), line)
		}
	}
}
