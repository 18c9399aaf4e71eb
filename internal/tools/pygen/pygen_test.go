package pygen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/tools"
)

func TestIdentifier(t *testing.T) {
	for in, want := range map[string]string{
		"add": "add", "get-item": "get_item", "get.item": "get_item", "class": "class_", "match": "match_",
		"list":     "list_",
		"__init__": "init__", "../x": "x", "../../etc/passwd": "etc_passwd", "3d-model": "n3d_model", "": "", "___": "",
		"💥":   "",
		"ﬁle": "file", "naïve": "naïve", "查询": "查询", "a b\x00c": "a_b_c", "UNSET": "UNSET_",
		"call_mcp_tool": "call_mcp_tool_",
		"x\u202ey":      "x_y", "\xff\xfe": "",
	} {
		if got := Identifier(in); got != want {
			t.Errorf("Identifier(%q) = %q, want %q", in, got, want)
		}
	}
	long := Identifier(strings.Repeat("x", 500))
	if len(long) != 60 || long == Identifier(strings.Repeat("x", 501)) {
		t.Errorf("Identifier of a long name = %q, want 60 characters that differ from a longer name's", long)
	}
}

func TestNamesAreKeptAndDistinct(t *testing.T) {
	names := func(before map[string]string, tool ...string) map[string]string {
		return assignNames(before, definitions(tool))
	}
	first := names(nil, "get-item", "get.item", "get_item", "GET ITEM")
	if first["get_item"] != "get_item" {
		t.Errorf("the function of tool get_item is %q, want get_item", first["get_item"])
	}
	checkDistinct(t, first)
	// Order does not matter, and a tool keeps its name when a new tool has exactly that name.
	if diff := cmp.Diff(first, names(nil, "GET ITEM", "get_item", "get.item", "get-item")); diff != "" {
		t.Errorf("want names that do not depend on the order of the tools (-first +second):\n%s", diff)
	}
	old := names(nil, "get-item")
	later := names(old, "get-item", "get_item")
	if later["get-item"] != "get_item" || later["get_item"] == "get_item" {
		t.Errorf("names after a new tool = %v, want get-item to keep get_item", later)
	}
	// The name of a removed tool is not given to another tool.
	if again := names(later, "get_item"); again["get_item"] != later["get_item"] {
		t.Errorf("the function of get_item changed from %q to %q, want it kept", later["get_item"], again["get_item"])
	}
}

// Whatever tools a server lists over time, including tools named like the hashed name of another tool, no
// two tools have the same function, and no tool's function changes.
func TestNamesOverTime(t *testing.T) {
	long := strings.Repeat("x", maxIdentifier-1)
	digit := "1" + long[1:]
	for _, names := range [][]string{
		{"a-b", "a_b", "a_b_" + shortHash("a-b")},
		{long + "-", long + "_", long + "."},
		{"A", "a", "a_" + shortHash("a")},
		{digit + ".", digit + "-"},
	} {
		checkDistinct(t, assignNames(nil, definitions(names)))
	}
	first, other := digit+".", digit+"-" // other comes before first
	before := assignNames(nil, definitions([]string{first}))
	if after := assignNames(before, definitions([]string{other, first})); after[first] != before[first] {
		t.Errorf("the function of %s changed from %q to %q, want it kept", first, before[first], after[first])
	}
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]string{
			"a-b", "a_b", "A_b", "a.b", "class", "class_", "", "-", "1", digit + "-", digit + ".", long + "-",
			long + "_", long + "yz", long + "y-",
		})
		name := rapid.Custom(func(t *rapid.T) string {
			of := base.Draw(t, "of")
			if rapid.Bool().Draw(t, "as a hash") {
				return truncateID(Identifier(of)) + "_" + shortHash(of)
			}
			return of
		})
		names, ever := map[string]string(nil), map[string]string{}
		for range 4 {
			names = assignNames(names, definitions(rapid.SliceOf(name).Draw(t, "listed")))
			checkDistinct(t, names)
			for tool, id := range names {
				if was, known := ever[tool]; known && was != id {
					t.Fatalf("the function of tool %q changed from %q to %q, want it kept", tool, was, id)
				}
				ever[tool] = id
			}
		}
	})
}

// definitions returns a definition for each tool name.
func definitions(names []string) []tools.Definition {
	var defs []tools.Definition
	for _, name := range names {
		defs = append(defs, tools.Definition{Name: name})
	}
	return defs
}

func checkDistinct(t interface{ Errorf(string, ...any) }, names map[string]string) {
	seen := map[string]string{}
	for tool, id := range names {
		if other, twice := seen[strings.ToLower(id)]; twice {
			t.Errorf("tools %q and %q have the function %q, want different ones", tool, other, id)
		}
		if Identifier(id) != id {
			t.Errorf("the function of tool %q is %q, want an identifier", tool, id)
		}
		seen[strings.ToLower(id)] = tool
	}
}

func TestSignatures(t *testing.T) {
	for _, test := range []struct{ name, in, out, want string }{
		{
			"order of required",
			`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"number"}},` +
				`"required":["b","a"]}`, "",
			"f(b: int, a: str, c: float = UNSET) -> Any",
		},
		{"no arguments", `{"type":"object","properties":{}}`, `{"type":"object"}`, "f() -> Dict[str, Any]"},
		{"closed", `{"type":"object","additionalProperties":false}`, "", "f() -> Any"},
		{"any arguments", `{"type":"object"}`, "", "f(**extra: Any) -> Any"},
		{
			"names of schemas",
			`{"$id":"https://h.example/f","properties":{"a":{"$ref":"https://h.example/a"},"b":{"$ref":"#b"},` +
				`"c":{"$dynamicRef":"#c"},"d":{"$ref":"a#/properties/x"},"e":{"$ref":"a#y"},"g":{"$ref":"#z"}},"$defs":{` +
				`"A":{"$id":"a","type":"object","properties":{"x":{"type":"integer"},"y":{"$anchor":"y","type":"null"}}},` +
				`"B":{"$anchor":"b","type":"number"},"C":{"$dynamicAnchor":"c","type":"boolean"}}}`, "",
			"f(a: A = UNSET, b: float = UNSET, c: bool = UNSET, " +
				"d: int = UNSET, e: None = UNSET, g: Any = UNSET) -> Any",
		},
		{
			"references within an embedded schema", `{"$id":"f","properties":{"a":{"$ref":"g"},"b":{"$ref":"g#x"}},` +
				`"x":{"type":"null"},"$defs":{"g":{"$id":"g","type":"array","items":{"$ref":"#/x"},` +
				`"x":{"type":"integer"},` +
				`"y":{"$anchor":"x","prefixItems":[{"$ref":"#/x"},{"$ref":"f#/x"},` +
				`{"$dynamicRef":"#/x"},{"$ref":"h#/x"}],` +
				`"type":"array"}}}}`, "",
			"f(a: List[int] = UNSET, b: Tuple[int, None, Any, Any] = UNSET) -> Any",
		},
		{
			"names of several schemas", `{"properties":{"a":{"$ref":"#a"},"b":{"$ref":"b"},"c":{"$dynamicRef":"#c"},` +
				`"d":{"$ref":"#d"}},"$defs":{"1":{"$anchor":"a","type":"integer"},"2":{"$anchor":"a","type":"null"},` +
				`"3":{"$id":"b","type":"integer"},"4":{"$id":"b","type":"null"},` +
				`"5":[{"$dynamicAnchor":"c","type":"null"}],` +
				`"6":{"$dynamicAnchor":"c","type":"integer"},"7":{"$id":"#d","type":"integer"}}}`, "",
			"f(a: Any = UNSET, b: Any = UNSET, c: int = UNSET, d: int = UNSET) -> Any",
		},
		{
			"copies of one schema", `{"properties":{"a":{"$ref":"t"},"b":{"$ref":"t"}},"$defs":{` +
				`"1":{"$id":"t","type":"integer"},"2":{"$id":"t","type":"integer"}}}`, "",
			"f(a: int = UNSET, b: int = UNSET) -> Any",
		},
		{
			"long chain", `{"properties":{"a":{"$ref":"#/$defs/0"},"b":{"$ref":"#/$defs/x"}},"$defs":{` +
				`"x":{"$ref":"#/$defs/y"},"y":{"$ref":"#/$defs/x"},` + chain(40) + `"40":{"type":"string"}}}`, "",
			"f(a: str = UNSET, b: Any = UNSET) -> Any",
		},
		{"anything", `{}`, `true`, "f() -> Any"},
		{"no schema at all", `true`, `false`, "f(**extra: Any) -> Any"},
		{
			"enum and const",
			`{"properties":{"a":{"enum":["x","y",1,null,true]},"b":{"const":"k"},"c":{"enum":[1.5,"x"]}},` +
				`"required":["a","b","c"]}`, "",
			`f(a: Literal["x", "y", 1, None, True], b: Literal["k"], c: Union[float, Literal["x"]]) -> Any`,
		},
		{
			"nullable",
			`{"properties":{"a":{"type":["string","null"]},"b":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}`, "",
			"f(a: Optional[str] = UNSET, b: Optional[int] = UNSET) -> Any",
		},
		{
			"lists and maps", `{"properties":{"a":{"type":"array","items":{"type":"string"}},"b":{"type":"object",` +
				`"additionalProperties":{"type":"integer"}},"c":{"type":"array","prefixItems":[{"type":"string"},` +
				`{"type":"integer"}]}},"required":["a","b","c"]}`, "",
			"f(a: List[str], b: Dict[str, int], c: Tuple[str, int]) -> Any",
		},
		{
			"names with a pattern",
			`{"properties":{"a":{"type":"object","patternProperties":{"^x":{"type":"integer"}},` +
				`"additionalProperties":false},` +
				`"b":{"type":"object","patternProperties":{"^x":{"type":"integer"}}}}}`, "",
			"f(a: Dict[str, int] = UNSET, b: Dict[str, Union[int, Any]] = UNSET) -> Any",
		},
		{
			"names with several patterns", `{"properties":{"a":{"allOf":[{"type":"object",` +
				`"patternProperties":{"^x":{"type":"integer"}}},{"patternProperties":{"^y":{"type":"string"}}}],` +
				`"additionalProperties":{"type":"null"}}}}`, "",
			"f(a: Dict[str, Union[int, str, None]] = UNSET) -> Any",
		},
		{
			"open lists", `{"properties":{"a":{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"integer"}},` +
				`"b":{"type":"array","items":[{"type":"string"}],"additionalItems":{"type":"integer"}},` +
				`"c":{"type":"array","prefixItems":[{"type":"string"}],"unevaluatedItems":{"type":"integer"}},` +
				`"d":{"type":"array","contains":{"type":"integer"}},"e":{"type":"array","prefixItems":[` +
				strings.Repeat(`{"type":"string"},`, 16) + `{"type":"integer"}],"items":false}}}`, "",
			"f(a: List[Union[str, int]] = UNSET, b: List[Union[str, int]] = UNSET, " +
				"c: List[Union[Union[str, int], Any]] = UNSET, d: List[Union[int, Any]] = UNSET, " +
				"e: List[Union[str, int]] = UNSET) -> Any",
		},
		{
			"conditions on the presence of a property", `{"properties":{"a":{"type":"string"}},` +
				`"dependencies":{"a":{"properties":{"b":{"type":"integer"}},"required":["b"]},"b":["c"]},` +
				`"dependentRequired":{"a":["d"]}}`, "",
			"f(a: str = UNSET, b: int = UNSET, c: Any = UNSET, d: Any = UNSET) -> Any",
		},
		{
			"allOf at the top",
			`{"allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},` +
				`{"properties":{"b":{"type":"integer"}}}]}`, "",
			"f(a: str, b: int = UNSET) -> Any",
		},
		{
			"oneOf at the top",
			`{"type":"object","oneOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},` +
				`{"properties":{"b":{"type":"integer"}},"required":["b"]}]}`, "",
			"f(a: str = UNSET, b: int = UNSET) -> Any",
		},
		{
			"conditions",
			`{"properties":{"kind":{"type":"string"}},"required":["kind"],"allOf":[` +
				`{"if":{"properties":{"kind":{"const":"file"},"mode":{"const":1}}},` +
				`"then":{"properties":{"path":{"type":"string"},"n":{"type":"integer"}},"required":["path"]}},` +
				`{"if":{"properties":{"kind":{"const":"url"}}},` +
				`"then":{"properties":{"n":{"type":"string"}},"required":["url"]},"else":{"required":["n"]}}]}`, "",
			"f(kind: str, mode: Any = UNSET, n: Union[int, str] = UNSET, path: str = UNSET, url: Any = UNSET) -> Any",
		},
		{
			"condition on a property that another condition limits",
			`{"if":{"properties":{"k":{"const":"a"}}},"then":{"properties":{"k":{"enum":["a"]}}}}`, "",
			"f(k: Any = UNSET) -> Any",
		},
		{
			"integers of any length", `{"properties":{"a":{"enum":[9007199254740993,18446744073709551617,-0,1e3]}}}`,
			"",
			"f(a: Union[float, Literal[18446744073709551617, 9007199254740993]] = UNSET) -> Any",
		},
		{
			"local reference",
			`{"properties":{"a":{"$ref":"#/$defs/s"}},"required":["a"],"$defs":{"s":{"type":"string"}}}`, "",
			"f(a: str) -> Any",
		},
		{
			"remote reference", `{"properties":{"a":{"$ref":"http://127.0.0.1/x.json"}},"required":["a"]}`, "",
			"f(a: Any) -> Any",
		},
		{
			"reference to itself", `{"properties":{"a":{"$ref":"#/properties/a"}},"required":["a"]}`, "",
			"f(a: Any) -> Any",
		},
		{
			"further arguments",
			`{"properties":{"class":{"type":"string"}},"required":["class"],"additionalProperties":{"type":"integer"}}`,
			"",
			"f(class_: str, **extra: int) -> Any",
		},
		{
			"arguments with a pattern",
			`{"patternProperties":{"^x-":{"type":"string"}},"additionalProperties":false}`, "",
			"f(**extra: str) -> Any",
		},
		{
			"unevaluated arguments", `{"unevaluatedProperties":{"type":"string"}}`, "",
			"f(**extra: Union[str, Any]) -> Any",
		},
		{"no further arguments", `{"unevaluatedProperties":false}`, "", "f() -> Any"},
		{
			"names that clash",
			`{"properties":{"a-b":{"type":"string"},"a_b":{"type":"integer"},"💥":{}},"required":["a-b","a_b"]}`, "",
			"f(a_b_2: str, a_b: int, argument_0fadd2ce: Any = UNSET) -> Any",
		},
		{
			"wrapped result", `{}`,
			`{"type":"object","properties":{"result":{"type":"array","items":{"type":"number"}}},` +
				`"x-fastmcp-wrap-result":true}`,
			"f() -> List[float]",
		},
		{
			"builtins",
			`{"properties":{"id":{"type":"string"},"type":{"type":"string"},"self":{},"match":{},"from":{},` +
				`"arguments":{}},"required":["id","type"]}`, "",
			"f(id: str, type: str, self: Any = UNSET, match: Any = UNSET, from_: Any = UNSET, " +
				"arguments_: Any = UNSET) -> Any",
		},
		{
			"required with a default",
			`{"properties":{"a":{"type":"string"},"b":{"enum":["css","device"],"default":"css"},` +
				`"c":{"type":"string","default":null},"d":{"type":["integer","null"],"default":null}},` +
				`"required":["c","d","a","b"]}`, "",
			`f(c: str, a: str, d: Optional[int] = UNSET, b: Literal["css", "device"] = UNSET) -> Any`,
		},
		{"a class", `{}`, `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`, "f() -> FResult"},
	} {
		d := def("f", test.in)
		if test.out != "" {
			d.OutputSchema = json.RawMessage(test.out)
		}
		got := newModule(Source{Server: "s"}, "f", d).signature
		if got != test.want {
			t.Errorf("%s: signature = %s, want %s", test.name, got, test.want)
		}
	}
}

// Docstrings have the values of constraints as a program writes them.
func TestConstraintsInDocstrings(t *testing.T) {
	p := parameter{schema: object{"pattern": "^<a&b>$", "default": "<a&b>"}}
	if got, want := describeParam(p), `matches "^<a&b>$"; default "<a&b>".`; got != want {
		t.Errorf("describeParam() = %s, want %s", got, want)
	}
}

// The limits of classes and of their members hold for objects that references name, too.
func TestLimitsOfClasses(t *testing.T) {
	var properties, defs, many []string
	for i := range 200 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"$ref":"#/$defs/d%[1]d"}`, i))
		defs = append(defs, fmt.Sprintf(`"d%d":{"properties":{"x":{"type":"integer"}}}`, i))
	}
	for i := range maxMembers + 1 {
		many = append(many, fmt.Sprintf(`"m%d":{}`, i))
	}
	m := newModule(Source{Server: "s"}, "f", def("f", `{"properties":{"a":{"$ref":"#/$defs/many"},`+
		strings.Join(properties, ",")+`},"$defs":{"many":{"properties":{`+strings.Join(many, ",")+`}},`+
		strings.Join(defs, ",")+`}}`))
	if n := len(m.typer.classes); n != maxClasses {
		t.Errorf("%d classes, want %d", n, maxClasses)
	}
	for _, want := range []string{"a: Dict[str, Any] = UNSET", "p0: D0 = UNSET", "p199: Dict[str, Any] = UNSET"} {
		if !strings.Contains(m.signature, want) {
			t.Errorf("the signature lacks %s: %s", want, m.signature)
		}
	}
}

// The names of nested schemas do not grow with their depth.
func TestNamesAreBounded(t *testing.T) {
	schema := "{}"
	for range 100 {
		schema = `{"$id":"` + strings.Repeat("a", 80) + `/","$anchor":"b","x":` + schema + `}`
	}
	size := 0
	for name := range new(typer).view(decode(json.RawMessage(schema)), true).named {
		size += len(name)
	}
	if size > 10_000 {
		t.Errorf("the names of 100 nested schemas have %d bytes, want at most 10,000", size)
	}
}

// chain returns n schemas, of which each refers to the next.
func chain(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%d":{"$ref":"#/$defs/%d"},`, i, i+1)
	}
	return b.String()
}

// Nested arguments have one class for each schema, also if it is recursive and its references have descriptions of
// their own. All members keep their descriptions.
func TestClasses(t *testing.T) {
	const node = `{"type":"object","properties":{"node":{"$ref":"#/$defs/Node","description":"The root."}},` +
		`"required":["node"],"$defs":{"Node":{"type":"object","properties":` +
		`{"id":{"type":"string","description":"Its id."},"type":{"type":"string"},` +
		`"next":{"$ref":"#/$defs/Node","description":"The next.","default":null}}}}}`
	const item = `{"properties":{"items":{"type":"array","items":{"type":"object","properties":` +
		`{"a-b":{"type":"string","description":"Both."},"str":{"type":"integer"}}}}}}`
	const other = `{"properties":{"node":{"$ref":"#/$defs/n","enum":["x"]}},"$defs":{"n":{"type":"string"}}}`
	dependent := `{"properties":{"a":{"type":"object","properties":{"x":{"type":"string"}},` +
		`"dependentSchemas":{"x":{"properties":{"y":{"type":"integer","description":"With x."}}}}}}}`
	const values = `{"properties":{"a":{"properties":{"speed":{"type":"number","enum":[0.5,2],"description":"Of it."},` +
		`"speeds":{"type":"array","items":{"$ref":"#/$defs/s"}},"gain":{"description":"type: one of a, b","anyOf":[{"const":1.5},{"type":"null"}]},` +
		`"mode":{"enum":["x\n",{"k":["a  b"]}]},"unit":{"enum":["s"]},` +
		`"wide":{"anyOf":[{"enum":[0.5,1.5]},{"type":"number","minimum":10}]},` +
		`"wave":{"anyOf":[{"enum":["a"]},{"enum":[0.5]}]}}}},"$defs":{"s":{"enum":[0.5,1]}}}`
	const x = `{"type":"object","properties":{"x":{"type":"integer"}}}`
	const classX = "(TypedDict, total=False):\n    x: int\n"
	for _, test := range []struct {
		schema, signature string
		classes           []string
	}{
		{
			`{"properties":{"a":{"$ref":"#/$defs/D"}},"$defs":{"D":{"type":"object","properties":{` +
				`"n":{"$ref":"#/$defs/D"}},"additionalProperties":` + x + `}}}`,
			"f(a: Union[D, Dict[str, Union[DValue, Any]]] = UNSET) -> Any",
			[]string{
				"class D(TypedDict, total=False):\n    n: Union[D, Dict[str, Any]]\n", "class DValue" + classX,
			},
		},
		{
			`{"properties":{"a":{"properties":{"n":{"type":"null"}},"patternProperties":{"^p":` + x + `}}}}`,
			"f(a: Union[FA, Dict[str, Union[FAValue, Any]]] = UNSET) -> Any",
			[]string{
				"class FA(TypedDict, total=False):\n    n: None\n", "class FAValue" + classX,
			},
		},
		{
			`{"patternProperties":{"^p":` + x + `,"^q":{"type":"null"}},"additionalProperties":false}`,
			"f(**extra: Optional[FExtra]) -> Any",
			[]string{"class FExtra" + classX},
		},
		{
			`{"properties":{"a":{"type":"string","contentMediaType":"application/json","contentSchema":` + x + `}}}`,
			`f(a: Annotated[str, "JSON of FA"] = UNSET) -> Any`,
			[]string{"class FA" + classX},
		},
		{values, "f(a: FA = UNSET) -> Any", []string{
			"class FA(TypedDict, total=False):\n    gain: Optional[float]  # Type: one of a, b (one of 1.5)\n" +
				"    mode: Any  # one of \"x\\n\", {\"k\": [\"a  b\"]}\n" +
				"    speed: Union[float, Literal[2]]  # Of it. (one of 0.5, 2)\n" +
				"    speeds: List[Union[float, Literal[1]]]  # each one of 0.5, 1\n    unit: Literal[\"s\"]\n" +
				"    wave: Union[Literal[\"a\"], float]  # one of \"a\" or one of 0.5\n    wide: float\n",
		}},
		{node, "f(node: Node) -> Any", []string{
			"class Node(TypedDict, total=False):\n    id: str  # Its id.\n    next: Node  # The next.\n    type: str\n",
		}},
		{item, "f(items: List[FItemsItem] = UNSET) -> Any", []string{
			"FItemsItem = TypedDict(\"FItemsItem\", {\n    \"a-b\": \"str\",  # Both.\n    \"str\": \"int\",\n" +
				"}, total=False)\n",
		}},
		{other, `f(node: Literal["x"] = UNSET) -> Any`, nil},
		{dependent, "f(a: FA = UNSET) -> Any", []string{
			"class FA(TypedDict, total=False):\n    x: str\n    y: int  # With x.\n",
		}},
	} {
		m := newModule(Source{Server: "s"}, "f", def("f", test.schema))
		if m.signature != test.signature {
			t.Errorf("%s: signature = %s, want %s", test.schema, m.signature, test.signature)
		}
		if diff := cmp.Diff(test.classes, m.typer.classes); diff != "" {
			t.Errorf("%s: classes (-want +got):\n%s", test.schema, diff)
		}
	}
}

// A recursive type has one class, however its references to itself are written, and leaves room for the classes of
// other arguments.
func TestRecursiveClasses(t *testing.T) {
	const n = `{"$ref":"#/$defs/N"}`
	for _, c := range []struct{ member, want string }{
		{`{"anyOf":[` + n + `,{"type":"null"}]}`, "Optional[N]"},
		{`{"oneOf":[{"type":"null"},` + n + `],"title":"Left","default":null}`, "Optional[N]"},
		{`{"type":"object","oneOf":[` + n + `],"discriminator":{"propertyName":"v"}}`, "N"},
		{`{"anyOf":[{"type":"array","items":` + n + `},{"type":"null"}]}`, "Optional[List[N]]"},
		{`{"anyOf":[{"allOf":[` + n + `]},{"type":"string"}]}`, "Union[N, str]"},
		{`{"anyOf":[{"$ref":"#/$defs/Alias"},{"type":"string"}]}`, "Union[Optional[N], str]"},
		{`{"allOf":[` + n + `],"title":"Left"}`, "N"},
		{`{"$ref":"#/$defs/N","type":"object","minProperties":1}`, "N"},
		{`{"additionalProperties":` + n + `,"type":"object"}`, "Dict[str, N]"},
		{`{"patternProperties":{"^x":` + n + `},"additionalProperties":false,"type":"object"}`, "Dict[str, N]"},
		{`{"type":"array","prefixItems":[` + n + `,{"type":"null"}],"items":false}`, "Tuple[N, None]"},
	} {
		m := newModule(Source{Server: "s"}, "f", def("f", `{"properties":{"root":`+n+`,"zopts":{"type":"object",`+
			`"properties":{"z":{"type":"integer"}}}},"$defs":{"Alias":{"anyOf":[`+n+`,{"type":"null"}]},`+
			`"N":{"type":"object","properties":{"left":`+c.member+`,"right":`+c.member+`}}}}`))
		want := []string{
			"class N(TypedDict, total=False):\n    left: " + c.want + "\n    right: " + c.want + "\n",
			"class FZopts(TypedDict, total=False):\n    z: int\n",
		}
		if diff := cmp.Diff(want, m.typer.classes); diff != "" {
			t.Errorf("%s: classes (-want +got):\n%s", c.member, diff)
		}
	}
}

// With hostile names and texts, nothing is written outside the directory, all modules import, and calls have
// the server's names.
func TestHostileDefinitions(t *testing.T) {
	text := `"""` + "\nimport os\nos.system('false')\n" +
		"\"\"\"\\\" \u202e\u200b\x00 \\N{BULLET} \\x {x} ' % \r\n\U000e0041"
	nested := strings.Repeat(`{"type":"array","items":`, 200) + `{"type":"string"}` + strings.Repeat("}", 200)
	defs := []tools.Definition{
		def("__init__", `{}`),
		def("class", `{"properties":{"def":{"type":"string"},"self":{}},"required":["def","self"]}`),
		def("../x", `{}`), def("../../../../tmp/evil", `{}`), def("a/b", `{}`), def(".", `{}`), def("a\nb", `{}`),
		def("a\u202eb", `{}`), def("\x1b[2Ja", `{}`), def("README.md", `{}`),
		def("💥", `{}`), def("definitions", `{}`), def(strings.Repeat("n", 300), `{}`),
		def("\"; import os; \"", `{}`),
		def("texts",
			`{"properties":{"a":{"type":"string","description":`+quote(text)+`,"default":`+quote(text)+`,`+
				`"pattern":`+quote(text)+`},`+quote(text)+`:{"type":"string"}},"required":["a"]}`),
		def("deep", `{"properties":{"a":`+nested+`},"required":["a"]}`),
		def("loop", `{"$ref":"#"}`), def("loop2", `{"allOf":[{"$ref":"#"}]}`), def("loop3", `{"anyOf":[{"$ref":"#"}]}`),
		def("tree",
			`{"properties":{"node":{"$ref":"#/$defs/Node"}},"required":["node"],"$defs":{"Node":{"type":"object",`+
				`"properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/Node"}}}}}}`),
		def("odd", `{"type":7,"properties":[],"required":{"a":1},"anyOf":"x","enum":{},"allOf":[1,"x",null],"$ref":3}`),
		def("twice", `{"properties":{"a":{}},"required":["a","a","b",3]}`),
		{
			Name: "types", InputSchema: json.RawMessage(`{"type":"object"}`), Description: text, Title: text,
			OutputSchema: json.RawMessage(`{"type":"object","properties":{"str":{"type":"string"},` +
				`"int":{"type":"array","items":{"type":"object","properties":{"a-b":{"type":"string"},` +
				`"__x":{"type":"null"},"class":{"type":"string"}},"required":["a-b"]}},"Any":{},"TypesResult":{}},` +
				`"required":["str"]}`),
		},
		{Name: "bad", InputSchema: json.RawMessage(`{`)},
		{Name: "malformed", Problem: "a\nb"},
		{Name: ""},
		{Name: "texts", InputSchema: json.RawMessage(`{}`)},
	}
	pkg, err := Generate(Source{
		Server: "../evil-server\"\n",
		About:  tools.About{Version: text, Title: text, Description: text, Instructions: text}, Tools: defs,
	})
	if err != nil {
		t.Fatal(err)
	}
	if pkg.Dir != "evil_server__" {
		t.Errorf("directory = %q, want evil_server__", pkg.Dir)
	}
	var rejected []string
	for _, r := range pkg.Rejected {
		rejected = append(rejected, r.Tool)
	}
	want := []string{"a<U+000A>b", "a<U+202E>b", "<U+001B>[2Ja", "bad", "malformed", "", "texts"}
	if !slices.Equal(rejected, want) || pkg.Rejected[4].Reason != "a<U+000A>b" {
		t.Errorf("rejected = %q, want %q", rejected, want)
	}
	p := startPython(t)
	p.write(pkg)
	outside, err := filepath.Glob(filepath.Join(p.dir, "*"))
	if err != nil || len(outside) != 1 {
		t.Errorf("files are %v, %v; want only servers/", outside, err)
	}
	for tool, function := range pkg.Definitions.Names {
		var args []any
		switch tool {
		case "class", "twice":
			args = []any{"a", "b"}
		case "texts", "deep", "tree":
			args = []any{"a"}
		}
		got := p.call(t, request{Server: pkg.Dir, Function: function, Args: args})
		if got.Error != "" || got.Value.Tool != tool || got.Value.Server != "../evil-server\"\n" {
			t.Errorf("%q as %s: tool %q, server %q, error %s; want the same tool and server\n%s",
				tool, function, got.Value.Tool, got.Value.Server,
				got.Error, got.Trace)
		}
		if i := strings.IndexFunc(got.Doc,
			func(r rune) bool { return r == '\u202e' || r == '\u200b' || r == 0 }); i >= 0 {
			t.Errorf("%q: the docstring is %q, want no hidden character", tool, got.Doc)
		}
	}
	if _, err := Generate(Source{Server: "💥"}); err == nil {
		t.Error("Generate of a server without a Python name = nil, want an error")
	}
}

func quote(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func TestErrorsNameTheNearest(t *testing.T) {
	pkg, err := Generate(Source{
		Server: "weather",
		Tools: []tools.Definition{
			def("get_weather",
				`{"properties":{"location":{"type":"string"},"units":{"type":"string"}},"required":["location"]}`),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := startPython(t)
	p.write(pkg)
	for _, test := range []struct {
		request request
		want    string
	}{
		{
			request{Server: "weather", Function: "get_wether"},
			"AttributeError: servers.weather has no tool 'get_wether'; did you mean get_weather?",
		},
		{
			request{Program: "from servers.weather import get_wether"},
			"ImportError: servers.weather has no tool 'get_wether'; did you mean get_weather?",
		},
		{
			request{Server: "weather", Function: "get_weather", Args: []any{"x"}, Kwargs: map[string]any{"unit": "c"}},
			"did you mean units?",
		},
		{
			request{Server: "weather", Function: "get_weather"},
			"missing 1 required positional argument: 'location'; the tool is " +
				"get_weather(location: str, units: str = UNSET) -> Any",
		},
		{
			request{Server: "weather", Function: "get_weather", Args: []any{"x", "celsius", 1}},
			"takes from 1 to 2 positional arguments but 3 were given",
		},
	} {
		if got := p.call(t, test.request).Error; !strings.Contains(got, test.want) {
			t.Errorf("%+v: error = %q, want it to contain %q", test.request, got, test.want)
		}
	}
	// A name refers to the function, no matter how its module was imported before.
	probe := `from servers.weather.get_weather import get_weather as a
import servers.weather.get_weather
from servers.weather import get_weather as b
import servers.weather
print(a is b, b is servers.weather.get_weather, a("x")["arguments"])
print(hasattr(servers.weather, "nope"), getattr(servers.weather, "nope", None))`
	if got := runPython(t, p.dir, probe); got != "True True {'location': 'x'}\nFalse None\n" {
		t.Errorf("imports print %q, want the same function twice", got)
	}
}

// A required argument with a default may be omitted: its default is sent, because the server may insist on it.
// Arguments that are named like Python's builtins keep their names.
func TestDefaultsAreSent(t *testing.T) {
	nested := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	properties := map[string]string{
		"scale": `{"enum":["css","device"],"default":"css"}`,
		"list":  `{"type":"array","default":["a",{"b":[true,null,1.5]}]}`,
		"ref":   `{"$ref":"#/$defs/n"}`,
		"part":  `{"allOf":[{"$ref":"#/$defs/n"}],"default":8}`,
		"type":  `{"anyOf":[{"type":"string"},{"type":"boolean"}],"default":false}`,
		"text":  `{"type":"string","default":` + quote("\"\u202e\n{}%s") + `}`,
	}
	notSent := map[string]string{
		"wrong": `{"type":"string","default":3}`, "deep": `{"default":` + nested + `}`,
		"huge": `{"type":"number","default":1e999}`, "long": `{"default":"` + strings.Repeat("x", maxDefault) + `"}`,
	}
	tool := func(properties map[string]string) string {
		var all, names []string
		for name, schema := range properties {
			all, names = append(all, quote(name)+":"+schema), append(names, quote(name))
		}
		return `{"properties":{` + strings.Join(all, ",") + `},"required":[` + strings.Join(names, ",") + `],` +
			`"$defs":{"n":{"type":"integer","default":7}}}`
	}
	pkg, err := Generate(Source{
		Server: "s", Tools: []tools.Definition{def("sent", tool(properties)), def("needed", tool(notSent))},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := startPython(t)
	p.write(pkg)
	got := p.call(t, request{Server: "s", Function: "sent", Kwargs: map[string]any{"scale": "device"}})
	var sent map[string]any
	if got.Error != "" || json.Unmarshal(got.Value.Arguments, &sent) != nil {
		t.Fatalf("the call without its arguments = error %s, arguments %s; want no error",
			got.Error, got.Value.Arguments)
	}
	want := map[string]any{
		"scale": "device", "list": []any{"a", map[string]any{"b": []any{true, nil, 1.5}}}, "ref": 7.0, "part": 8.0,
		"type": false,
		"text": "\"\u202e\n{}%s",
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("sent arguments (-want +got):\n%s", diff)
	}
	if got := p.call(t, request{Server: "s", Function: "needed"}).Error; !strings.Contains(got, "missing 4 required") {
		t.Errorf("defaults that cannot be sent: error %q, want 4 missing arguments", got)
	}
}

func TestWriteKeepsHandWrittenFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "servers")
	gen := func(previous tools.Definitions, names ...string) Package {
		var defs []tools.Definition
		for _, n := range names {
			defs = append(defs, def(n, `{}`))
		}
		p, err := Generate(Source{Server: "s", Tools: defs, Previous: previous})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := gen(tools.Definitions{}, "a", "b")
	if changed, err := Write(dir, first); err != nil || len(changed) != 5 {
		t.Fatalf("Write = %v, %v, want 5 files", changed, err)
	}
	if changed, err := Write(dir, first); err != nil || changed != nil {
		t.Errorf("second Write = %v, %v, want no changes", changed, err)
	}
	handWritten := filepath.Join(dir, "s", "mine.py")
	if err := os.WriteFile(handWritten, []byte("def mine(): pass\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	old, err := Previous(dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	changed, err := Write(dir, gen(old, "a", "c"))
	if err != nil || !slices.Contains(changed, "s/b.py") || !slices.Contains(changed, "s/c.py") {
		t.Errorf("Write = %v, %v, want b.py removed and c.py added", changed, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "s", "b.py")); !os.IsNotExist(err) {
		t.Errorf("Stat of b.py = %v, want it removed", err)
	}
	for _, file := range []string{"a.py", "b.py"} { // one is edited, the other written instead of a removed module
		at := filepath.Join(dir, "s", file)
		before, _ := os.ReadFile(at)
		edited := append(slices.Clone(before), "# edited\n"...)
		if err := os.WriteFile(at, edited, 0o644); err != nil {
			t.Fatal(err)
		}
		tool := strings.TrimSuffix(file, ".py")
		if _, err := Write(dir, gen(old, "c", tool)); err == nil || !strings.Contains(err.Error(), "edited by hand") {
			t.Errorf("Write of %s = %v, want an error", file, err)
		}
		if _, err := Write(dir, gen(old, "c")); err != nil {
			t.Errorf("Write without %s = %v, want nil", file, err)
		}
		if data, err := os.ReadFile(at); err != nil || !bytes.Equal(data, edited) {
			t.Errorf("%s after Write = %q, %v; want it unchanged", file, data, err)
		}
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Write(dir, gen(old, "a", "mine")); err == nil || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("Write over a hand-written file = %v, want an error", err)
	}
	init := filepath.Join(dir, "s", "__init__.py")
	if err := os.WriteFile(init, []byte("x = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if changed, err := Write(dir, gen(old, "a")); err != nil || slices.Contains(changed, "s/__init__.py") {
		t.Errorf("Write beside a hand-written __init__.py = %v, %v; want it unchanged", changed, err)
	}
	if leftover, err := filepath.Glob(filepath.Join(dir, "s", ".new-*")); err != nil || leftover != nil {
		t.Errorf("temporary files after Write = %v, %v; want none", leftover, err)
	}
	if data, err := os.ReadFile(handWritten); err != nil || string(data) != "def mine(): pass\n" {
		t.Errorf("the hand-written file = %q, %v; want it unchanged", data, err)
	}
	if _, err := Previous(dir, "S"); err != nil {
		t.Errorf("Previous of a server without a directory = %v, want nil", err)
	}
	if _, err := Previous(dir, "s!"); err != nil {
		t.Errorf("Previous of s! = %v, want nil", err)
	}
}

// TestWriteAfterAChangeOfNames checks that Write removes the module of a tool whose function gets another name, and no
// file of another server, when the definitions that a previous Write wrote were edited.
func TestWriteAfterAChangeOfNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "servers")
	generate := func(server string, previous tools.Definitions) Package {
		p, err := Generate(Source{
			Server: server, Tools: []tools.Definition{def("a", `{}`), def("b", `{}`), def("c", `{}`)}, Previous: previous,
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := generate("s", tools.Definitions{})
	p.Files["a-b.py"] = p.Files["a.py"]
	delete(p.Files, "a.py")
	p.Definitions.Names["a"], p.Definitions.Names["c"] = "a-b", "../other/c"
	var err error
	if p.Files[tools.DefinitionsFile], err = tools.EncodeJSON(p.Definitions); err != nil {
		t.Fatal(err)
	}
	for _, p := range []Package{generate("other", tools.Definitions{}), p} {
		if _, err := Write(dir, p); err != nil {
			t.Fatal(err)
		}
	}
	old, err := Previous(dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, generate("s", old)); err != nil {
		t.Fatal(err)
	}
	var modules []string
	for _, server := range []string{"other", "s"} {
		found, err := filepath.Glob(filepath.Join(dir, server, "[^_]*.py"))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range found {
			modules = append(modules, server+"/"+filepath.Base(at))
		}
	}
	want := []string{"other/a.py", "other/b.py", "other/c.py", "s/a.py", "s/b.py", "s/c.py"}
	if diff := cmp.Diff(want, modules); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
}

// Processes may write one server at the same time: none reads or renames what another has half written.
func TestWritesAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	var packages []Package
	for i := range 4 {
		d := def("a", `{}`)
		d.Description = strings.Repeat(strconv.Itoa(i), 10_000)
		p, err := Generate(Source{Server: "s", Tools: []tools.Definition{d}})
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if _, err := Write(dir, packages[0]); err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	for _, p := range packages {
		g.Go(func() error {
			for range 20 {
				if _, err := Write(dir, p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Errorf("Write beside other writes = %v, want nil", err)
	}
}

func TestWriteRefusesHandWrittenServers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "s"), 0o755); err != nil {
		t.Fatal(err)
	}
	init := filepath.Join(dir, "s", "__init__.py")
	if err := os.WriteFile(init, []byte("def mine(): pass\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := Generate(Source{Server: "s", Tools: []tools.Definition{def("a", `{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	changed, err := Write(dir, p)
	if err == nil || !strings.Contains(err.Error(), "hand-written tools") || changed != nil {
		t.Errorf("Write = %v, %v, want an error", changed, err)
	}
	if data, err := os.ReadFile(init); err != nil || string(data) != "def mine(): pass\n" {
		t.Errorf("__init__.py = %q, %v; want it unchanged", data, err)
	}
	if err := os.Remove(init); err != nil {
		t.Fatal(err)
	}
	if changed, err := Write(dir, p); err != nil || len(changed) != 4 {
		t.Errorf("Write into an empty directory = %v, %v, want 4 files", changed, err)
	}
}

// TestDiscovery checks what the catalogue says about a generated tool whose name is not a valid name in Python, and
// whose server has the name of a builtin: an import that works, and the fields of its nested arguments.
func TestDiscovery(t *testing.T) {
	schema := `{"type": "object", "required": ["points"], "properties": {"points": {"type": "array", "items": {
		"type": "object", "required": ["lat"],
		"properties": {"lat": {"type": "number", "description": "degrees north"}, "label": {"type": "string"}}}}}}`
	p, err := Generate(Source{Server: "map", Tools: []tools.Definition{def("show-map", schema), def("plain", `{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	py := startPython(t)
	py.write(p)
	listing, err := tools.OpenCatalogue(filepath.Join(py.dir, "servers"), tools.Options{}).Read(t.Context())
	if err != nil || len(listing.Tools) != 2 {
		t.Fatalf("Read = %+v, %v; want two tools", listing, err)
	}
	if plain := listing.Tools[0]; plain.Types != "" {
		t.Errorf("types of a tool without nested arguments = %q, want none", plain.Types)
	}
	show := listing.Tools[1]
	if got, want := show.Import(), "from servers.map_ import show_map"; got != want {
		t.Errorf("Import() = %q, want %q", got, want)
	}
	points := []any{map[string]any{"lat": 1}}
	call := py.call(t, request{Server: show.Package(), Function: show.Function, Args: []any{points}})
	if call.Error != "" || call.Value.Tool != "show-map" {
		t.Errorf("call of the imported function = %+v, want show-map", call)
	}
	for _, want := range []string{"class ", "(TypedDict", "    lat: float  # degrees north", "    label: str"} {
		if !strings.Contains(show.Types, want) {
			t.Errorf("Types = %q, want %q in it", show.Types, want)
		}
	}
	if strings.Contains(show.Types, "import") || strings.Contains(show.Types, "def ") {
		t.Errorf("Types = %q, want only classes", show.Types)
	}
}

// TestProgram checks that a program calls the tool with exactly the given name, whatever its function is called.
func TestProgram(t *testing.T) {
	const schema = `{"type":"object","properties":{"x":{"type":"integer"}}}`
	names := []string{"get_user", "get-user", "get user", "inputs", "result", "list", "class", "!!!", "a\"b"}
	var defs []tools.Definition
	for _, name := range names {
		defs = append(defs, def(name, schema))
	}
	pkg, err := Generate(Source{Server: "my-crm", Tools: defs})
	if err != nil {
		t.Fatal(err)
	}
	py := startPython(t)
	py.write(pkg)
	for _, name := range names {
		got := py.call(t, request{Program: Program("my-crm", name), Kwargs: map[string]any{"x": 1}})
		if got.Value.Server != "my-crm" || got.Value.Tool != name || string(got.Value.Arguments) != `{"x": 1}` {
			t.Errorf("the program for %q calls %+v (%s), want this tool with x = 1", name, got.Value, got.Error)
		}
	}
	own := filepath.Join(py.dir, "servers", "files")
	for name, content := range map[string]string{
		"__init__.py": string(tools.PackageInit("Files.", []tools.Export{{Module: "list", Function: "list"}})),
		"list.py":     "def list(**given):\n    return {'tool': 'own', 'arguments': given}\n",
	} {
		if err := errors.Join(os.MkdirAll(own, 0o755),
			os.WriteFile(filepath.Join(own, name), []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if got := py.call(t, request{Program: Program("files", "list")}); got.Value.Tool != "own" {
		t.Errorf("the program for a hand-written tool calls %+v (%s), want its function", got.Value, got.Error)
	}
	// The function of another tool is not called in place of one that the server does not have.
	if pkg, err = Generate(Source{
		Server: "my-crm", Tools: []tools.Definition{def("get_user", schema), def("list-all", schema)},
		Previous: tools.Definitions{Names: map[string]string{"list-all": "list_all"}},
	}); err != nil {
		t.Fatal(err)
	}
	other := startPython(t)
	other.write(pkg)
	for _, name := range []string{"get-user", "list_all"} {
		got := other.call(t, request{Program: Program("my-crm", name), Kwargs: map[string]any{"x": 1}})
		if want := "ImportError: servers.my_crm has no tool " + name; got.Error != want {
			t.Errorf("the program for %q, which does not exist, calls %+v (%s), want %q",
				name, got.Value, got.Error, want)
		}
	}
	got := py.call(t, request{Program: Program("my-crm", "get_usr")})
	if want := "did you mean get_user"; !strings.Contains(got.Error, want) {
		t.Errorf("the program for an unknown tool = %s, want %q", got.Error, want)
	}
}

// TestSupportOfAnotherVersion checks that a package works with the servers/__init__.py of a version that does not know
// the names of tools, and a package without these names with the current one.
func TestSupportOfAnotherVersion(t *testing.T) {
	pkg, err := Generate(Source{Server: "crm", Tools: []tools.Definition{def("get-user", `{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	remove := func(pattern, file string) string {
		t.Helper()
		short := regexp.MustCompile(pattern).ReplaceAllString(file, "")
		if short == file {
			t.Fatalf("%q is not in:\n%s", pattern, file)
		}
		return short
	}
	for file, content := range map[string]string{
		"__init__.py":     remove(`.*"_names" in self.*\n.*__tool__ = .*\n`, string(tools.Support)),
		"crm/__init__.py": remove(`_names.* = \{[^}]*\}\n`, string(pkg.Files["__init__.py"])),
	} {
		py := startPython(t)
		py.write(pkg)
		if err := os.WriteFile(filepath.Join(py.dir, "servers", file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := py.call(t, request{Program: Program("crm", "get-user")}); got.Value.Tool != "get-user" {
			t.Errorf("with another version's %s, the program calls %+v (%s), want get-user", file, got.Value, got.Error)
		}
	}
}

// TestEncodingOfModules checks that no text of a server is read as the encoding of a module.
func TestEncodingOfModules(t *testing.T) {
	d := def("read", `{"type":"object","properties":{"encoding":{"type":"string"},"coding":{"type":"string"}}}`)
	d.Description = "Caf\u00e9 +ACIAIgAi-"
	for _, version := range []string{"1", "coding: utf_7 ", "-*- coding=latin-1 -*-"} {
		about := tools.About{Version: version}
		pkg, err := Generate(Source{Server: "files", About: about, Tools: []tools.Definition{d}})
		if err != nil {
			t.Fatal(err)
		}
		py := startPython(t)
		py.write(pkg)
		got := py.call(t, request{Server: "files", Function: "read", Kwargs: map[string]any{"encoding": "é"}})
		if string(got.Value.Arguments) != `{"encoding": "\u00e9"}` || !strings.Contains(got.Doc, d.Description) {
			t.Errorf("version %q: read(encoding='é') = %+v, doc %q (%s), want the argument",
				version, got.Value, got.Doc, got.Error)
		}
	}
}
