package statedoc_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/statedoc"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{
		"state.json", "my_state.json", "a-b.yaml", "x.yml", "state/results.json",
		"state/a/b.yaml", "node_modules.json",
	} {
		if err := statedoc.CheckName(name); err != nil {
			t.Errorf("CheckName(%q) = %v, want nil", name, err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "../state.json", "state/../../x.json", "/etc/x.json", "a/../state.json", "state//x.json",
		"./state.json",
		// the last a is Cyrillic
		"sessions/x.json", "state.txt", "state", ".json", "state/.json", "st\x00ate.json", "st\nate.json", "stаte.json",
		"..／state.json", `..\state.json`, strings.Repeat("n", 300) + ".json", "%2e%2e/state.json", "..json/../x.json",
		"state/node_modules/x.yaml", "state/a/.venv/x.json", "state/__pycache__/a/x.json",
	} {
		if err := statedoc.CheckName(name); !errors.Is(err, statedoc.ErrName) {
			t.Errorf("CheckName(%q) = %v, want ErrName", name, err)
		}
	}
}

func TestYAMLRoundTrip(t *testing.T) {
	const state = `{"a":{"b":[1,2.50,1e3,-7]},"big":12345678901234567890123,` +
		`"bigger":-1e308,"unsigned":18446744073709551615,"empty":"",` +
		`"map":{},"multi":"x\ny: z\n","no":"no","null":null,"num":"12","t":true,"time":"2026-01-02","u":"é😀\u2028"}`
	text, err := statedoc.FromJSON("x.yaml", []byte(state))
	if err != nil {
		t.Fatal(err)
	}
	back, err := statedoc.ToJSON("x.yaml", text)
	if err != nil {
		t.Fatalf("ToJSON = %v, want nil; the YAML is\n%s", err, text)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal([]byte(state), &want), json.Unmarshal(back, &got)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("ToJSON(FromJSON) = %s, want %s; the YAML is\n%s", back, state, text)
	}
	if !strings.Contains(string(text), "12345678901234567890123") || !strings.Contains(string(text), "2.50") {
		t.Errorf("YAML has changed numbers:\n%s, want them unchanged", text)
	}
	indented, err := statedoc.FromJSON("x.json", []byte(`{"a":1.0}`))
	if want := "{\n  \"a\": 1.0\n}\n"; err != nil || string(indented) != want {
		t.Errorf("FromJSON(x.json) = %q, %v, want %q", indented, err, want)
	}
}

// TestYAMLKeepsKinds checks that floats stay floats for programs, and that no reader of YAML takes a text for something
// else.
func TestYAMLKeepsKinds(t *testing.T) {
	for state, want := range map[string]string{
		`{"<<":{"a":1},"b":{"<<":{"c":2}}}`: "\"<<\":\n    a: 1\nb:\n    \"<<\":\n        c: 2\n",
		`{"<<":"k"}`:                        "\"<<\": k\n",
		`{"a":1.0,"b":-0.0,"c":1}`:          "a: 1.0\nb: -0.0\nc: 1\n",
		`{"f":[1e16,1E+300,2.50]}`:          "f:\n    - 1e16\n    - 1E+300\n    - 2.50\n",
		`{"on":"on","t":"1:30","yes":"No"}`: "\"on\": \"on\"\nt: \"1:30\"\n\"yes\": \"No\"\n",
	} {
		text, err := statedoc.FromJSON("x.yaml", []byte(state))
		if err != nil || string(text) != want {
			t.Errorf("FromJSON(%s) = %s, %v, want %s", state, text, err, want)
			continue
		}
		back, err := statedoc.ToJSON("x.yaml", text)
		if got := kinds(t, back); err != nil || !reflect.DeepEqual(got, kinds(t, []byte(state))) {
			t.Errorf("ToJSON(%s) = %s, %v, want %s", text, back, err, state)
		}
	}
}

// kinds decodes JSON as Python does: a number with a point or an exponent is a float, another one an integer.
func kinds(t *testing.T, data []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	var convert func(any) any
	convert = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
				return f
			}
		case []any:
			for i := range v {
				v[i] = convert(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = convert(v[k])
			}
		}
		return v
	}
	return convert(v)
}

func TestInvalidContent(t *testing.T) {
	for _, data := range []string{"", "[]", "1", "{}{}", "{", `"x"`, "null"} {
		if _, err := statedoc.FromJSON("x.json", []byte(data)); err == nil {
			t.Errorf("FromJSON(%q) = nil, want an error", data)
		}
	}
	bomb := new(strings.Builder)
	bomb.WriteString("a: &a [x,x,x,x,x,x,x,x,x]\n")
	for _, c := range "bcdefghij" {
		fmt.Fprintf(bomb, "%c: &%[1]c [%s*%c]\n", c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 8), c-1)
	}
	for _, text := range []string{"- a", "", "a: [", "1: 2", "a: .nan", "{a: 1} b", bomb.String()} {
		if err := statedoc.CheckYAML([]byte(text)); err == nil {
			t.Errorf("CheckYAML(%.40q) = nil, want an error", text)
		}
	}
}

// TestDocuments checks that a YAML file has one document, and that markers before and after it are allowed.
func TestDocuments(t *testing.T) {
	const several = "it has more than one YAML document: move the others to files of their own"
	for content, want := range map[string]string{
		"":                            "null",
		"# nothing\n":                 "null",
		"a: 1":                        `{"a":1}`,
		"%YAML 1.1\n---\na: 1\n...\n": `{"a":1}`,
		"a: 1\n---\nb: 2\n":           several,
		"a: 1\n---\n":                 several,
		"---\n---\na: 1\n":            several,
		"a: &a 1\n---\n- - 1: 2\n":    several,
	} {
		got, err := statedoc.ToJSON("x.yaml", []byte(content))
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != want {
			t.Errorf("ToJSON(%q) = %s, want %s", content, got, want)
		}
	}
	if _, err := statedoc.ToJSON("x.yaml", []byte("a: 1\n---\nb: [")); err == nil {
		t.Error("ToJSON with an invalid second document = nil, want an error")
	}
}

// TestLimits checks that a document that is accepted can be read again, as JSON and by programs.
func TestLimits(t *testing.T) {
	long := strings.Repeat("9", 4300)
	deep := func(n int) string { return strings.Repeat(`{"":`, n) + "1" + strings.Repeat("}", n) }
	const tooLong, tooLarge = "a number has more than 4300 digits", "a number is too large for a float: 1e999"
	const tooDeep = "it is nested more than 500 levels deep"
	for content, want := range map[string][2]string{
		`{"n":-` + long + "}":      {"", "a number is too large for YAML: use a .json document"},
		`{"n":-` + long + "9}":     {tooLong, tooLong},
		`{"n":` + long[:309] + "}": {"", "a number is too large for YAML: use a .json document"},
		`{"n":` + long[:308] + "}": {"", ""},
		`{"n":1e999}`:              {tooLarge, tooLarge},
		`{"n":"\ud800"}`:           {"a text has half of a surrogate pair", "a text has half of a surrogate pair"},
		deep(500):                  {"", ""},
		deep(501):                  {tooDeep, tooDeep},
	} {
		for i, name := range []string{"x.json", "x.yaml"} {
			data, err := statedoc.FromJSON(name, []byte(content))
			if got := fmt.Sprint(err); got != cmp.Or(want[i], "<nil>") {
				t.Errorf("FromJSON(%s, %.40s) = %.100s, want %q", name, content, got, want[i])
			}
			if _, unreadable := statedoc.ToJSON(name, data); err == nil && unreadable != nil {
				t.Errorf("ToJSON(FromJSON(%s, %.40s)) = %.100v, want nil", name, content, unreadable)
			}
		}
	}
	if err := statedoc.CheckYAML([]byte(deep(501))); err == nil {
		t.Error("CheckYAML of 501 levels = nil, want an error")
	}
}

// TestDamaged checks documents that a program has written as a file.
func TestDamaged(t *testing.T) {
	for content, want := range map[string]string{
		`{"n":1` + strings.Repeat("1", 4300) + "}":                    "a number has more than 4300 digits",
		`{"n":` + strings.Repeat("[", 500) + strings.Repeat("]", 501): "it is not JSON",
		strings.Repeat("[", 501) + strings.Repeat("]", 501):           "it is nested more than 500 levels deep",
		`{"n":1e999}`:         "a number is too large for a float: 1e999",
		`{"n":{"a":1,"a":1}}`: "/n/a: the name occurs twice",
		"{\"n\":\"\xff\"}":    "invalid UTF-8",
		"\ufeff{}":            "it is not JSON",
		"\u00a0{}":            "it is not JSON",
		"{}\f":                "it is not JSON",
		`{"n":NaN}`:           "it is not JSON",
	} {
		if data, err := statedoc.ToJSON("x.json", []byte(content)); data != nil || fmt.Sprint(err) != want {
			t.Errorf("ToJSON(%.40q) = %.40s, %v, want %q", content, data, err, want)
		}
	}
	for content, want := range map[string]string{
		strings.Repeat("[", 501) + strings.Repeat("]", 501): "it is nested more than 500 levels deep",
		"n: 1\nn: 2": "it is not YAML: yaml: unmarshal errors:\n  line 2: mapping key \"n\" already defined at line 1",
	} {
		if data, err := statedoc.ToJSON("x.yaml", []byte(content)); data != nil || fmt.Sprint(err) != want {
			t.Errorf("ToJSON(%.40q) = %.40s, %v, want %q", content, data, err, want)
		}
	}
}

func FuzzToJSON(f *testing.F) {
	f.Add([]byte("a: 1"))
	f.Add([]byte(`{"a": [1, null, "x"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"x.json", "x.yaml"} {
			if out, err := statedoc.ToJSON(name, data); err == nil && !json.Valid(out) {
				t.Errorf("ToJSON(%s, %q) = %q, want JSON or an error", name, data, out)
			}
		}
	})
}
