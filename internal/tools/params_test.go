package tools

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParams(t *testing.T) {
	schema := json.RawMessage(`{"properties": {"units": {"description": "Unit", "enum": ["c", "f"]},
		"id": {"enum": [9007199254740993, null, true, {"k": [null]}]},
		"sep": {"enum": [", ", "\n", "", "it's", "a  b", "São", "None"]}}}`)
	for signature, want := range map[string][]Param{
		"f()":       nil,
		"f":         nil,
		"f(a":       nil,
		"f(a, b=2)": {{Name: "a", Required: true}, {Name: "b"}},
		"f(id)": {
			{Name: "id", Required: true, Enum: []string{"9007199254740993", "None", "True", `{"k": [None]}`}},
		},
		"f(sep)": {
			{Name: "sep", Required: true, Enum: []string{", ", "\n", "", "it's", "a  b", "São", "None"}},
		},
		`f(a, sep=":", *, o={"x": 1}, key=lambda a: a, p: Literal["a=b"])`: {
			{Name: "a", Required: true},
			{Name: "sep", Enum: []string{", ", "\n", "", "it's", "a  b", "São", "None"}},
			{Name: "o"},
			{Name: "key"},
			{Name: "p", Type: `Literal["a=b"]`, Required: true},
		},
		"f(a: Dict[str, int], /) -> int": {{Name: "a", Type: "Dict[str, int]", Required: true}},
		`f(q: str = "a,)b\"c", *, units: Literal["c", "f"] = UNSET, **rest)`: {
			{Name: "q", Type: "str"},
			{Name: "units", Type: `Literal["c", "f"]`, Description: "Unit", Enum: []string{"c", "f"}},
		},
	} {
		if d := cmp.Diff(want, Tool{Signature: signature, InputSchema: schema}.Params()); d != "" {
			t.Errorf("Params of %s (-want +got):\n%s", signature, d)
		}
	}
}

func FuzzParams(f *testing.F) {
	f.Add(`f(a: str = "x", *, b: Dict[str, int] = UNSET) -> int`)
	f.Add(`f(a = '\`)
	f.Fuzz(func(t *testing.T, signature string) {
		for _, p := range (Tool{Signature: signature}).Params() {
			if !isIdentifier(p.Name) {
				t.Errorf("Params of %q has the name %q, want an identifier", signature, p.Name)
			}
		}
	})
}
