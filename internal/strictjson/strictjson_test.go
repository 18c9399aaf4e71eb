package strictjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/strictjson"
)

type Embedded struct {
	Name string `json:"name,omitempty"`
}

type body struct {
	Scopes []string `json:"scopes,omitempty"`
	Embedded
	Call   *string         `json:"call"`
	At     time.Time       `json:"at,omitzero"`
	Count  int             `json:"count"`
	Inputs json.RawMessage `json:"inputs,omitempty"`
	Values map[string]any  `json:"values"`
	Nested struct {
		Name string `json:"name"`
	} `json:"nested"`
}

func TestDecode(t *testing.T) {
	const full = `{"scopes": ["read"], "call": "c", "at": "2026-01-02T03:04:05Z", "count": 3,
		"inputs": {"a": null}, "values": {"b": null}, "nested": {"name": ""}} `
	var got body
	if err := strictjson.Decode([]byte(full), &got); err != nil {
		t.Fatal(err)
	}
	call := "c"
	want := body{
		Scopes: []string{"read"}, Call: &call, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Count: 3,
		Inputs: json.RawMessage(`{"a": null}`), Values: map[string]any{"b": nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`{"scopes":["read"],"scopes":["operator"]}`: "/scopes: the name occurs twice",
		`{"inputs":{"a":{"b":1,"b":2}}}`:            "/inputs/a/b: the name occurs twice",
		`{"scopes":[],"sco\u0070es":[]}`:            "/scopes: the name occurs twice",
		`{"Scopes":["operator"]}`:                   "/Scopes: there is no such field here",
		`{"nested":{"NAME":"x"}}`:                   "/nested/NAME: there is no such field here",
		`{"other":1}`:                               "/other: there is no such field here",
		`{"call":null}`:                             "/call: it is null: leave it out, or give it a value",
		`{"scopes":null}`:                           "/scopes: it is null: leave it out, or give it a value",
		`{"scopes":[null]}`:                         "/scopes/0: it is null: leave it out, or give it a value",
		`{"values":null}`:                           "/values: it is null: leave it out, or give it a value",
		`{"scopes":[]}`:                             "/scopes: it is empty: leave it out for its default",
		`{"at":"0001-01-01T00:00:00Z"}`:             "/at: it is empty: leave it out for its default",
		`{"name":""}`:                               "/name: it is empty: leave it out for its default",
		`{"count":"3"}`:                             "/count: it is a string",
		`{"count":1.5}`:                             "/count: it is not a whole number",
		`{"count":512.00000000000000000001}`:        "/count: it is not a whole number",
		`{"count":1e-400}`:                          "/count: it is not a whole number",
		`{"count":1e30}`:                            "/count: want a whole number from -9223372036854775808 to 9223372036854775807",
		`{"count":99999999999999999999}`:            "/count: want a whole number from -9223372036854775808 to 9223372036854775807",
		`{"count":1e9999999999}`:                    "/count: want a whole number from -9223372036854775808 to 9223372036854775807",
		`{"at":"2027-01-01"}`:                       "/at: want a time with its date and zone, such as 2026-01-02T15:04:05Z (RFC 3339)",
		`{"at":3}`:                                  "/at: it is a number",
		`null`:                                      "it is null: leave it out, or give it a value",
		`[]`:                                        "it is an array",
		`{"inputs":"\ud800"}`:                       "a text has half of a surrogate pair",
		`{} {}`:                                     "invalid character '{' after top-level value",
		`{"count":`:                                 "the JSON ends too early",
		``:                                          "the JSON ends too early",
	} {
		err := strictjson.Decode([]byte(in), new(body))
		if refused, ok := errors.AsType[*strictjson.Error](err); !ok || refused.Error() != want {
			t.Errorf("Decode(%s) = %v, want %s", in, err, want)
		}
	}
	var v body
	if err := strictjson.DecodeOpen([]byte(`{"other":1,"count":2}`), &v); err != nil || v.Count != 2 {
		t.Errorf("DecodeOpen with an unknown field = %v, count %d, want none and 2", err, v.Count)
	}
	v.Count = 0
	if err := strictjson.DecodeOpen([]byte(`{"other":null,"count":null}`), &v); err != nil || v.Count != 0 {
		t.Errorf("DecodeOpen with null = %v, count %d, want none and 0", err, v.Count)
	}
	if err := strictjson.DecodeOpen([]byte(`{"other":{"a":1,"a":2}}`), &v); err == nil {
		t.Error("DecodeOpen accepts a name that occurs twice in an unknown field")
	}
}

// TestIntegers checks that each form of an integer is accepted.
func TestIntegers(t *testing.T) {
	type counts struct {
		Int   int    `json:"int"`
		Small int32  `json:"small"`
		Large int64  `json:"large"`
		Size  uint64 `json:"size"`
	}
	const in = `{"int":9007199254740992.0,"small":-1e3,"large":1e16,"size":5.12e2}`
	want := counts{9007199254740992, -1000, 1e16, 512}
	for name, decode := range map[string]func([]byte, any, ...strictjson.Limit) error{
		"Decode": strictjson.Decode, "DecodeOpen": strictjson.DecodeOpen,
	} {
		var got counts
		if err := decode([]byte(in), &got); err != nil || got != want {
			t.Errorf("%s = %+v, %v, want %+v", name, got, err, want)
		}
	}
}

// TestMaxElements checks that a longer list is refused where it exceeds its limit, and that its elements are decoded as
// without one.
func TestMaxElements(t *testing.T) {
	type list struct {
		Items []Embedded `json:"items"`
	}
	limit := strictjson.MaxElements[Embedded](2)
	for in, want := range map[string]string{
		`{"items":[{"name":"a"},{}]}`: "",
		`{"items":[]}`:                "",
		`{"items":[{},{},{}]}`:        "/items: the list has more than 2 elements",
		`{"items":[{},{"other":1}]}`:  "/items/1/other: there is no such field here",
		`{"items":[{},null]}`:         "/items/1: it is null: leave it out, or give it a value",
		`{"items":[{},1]}`:            "/items/1: it is a number",
		`{"items":null}`:              "/items: it is null: leave it out, or give it a value",
		`{"items":{}}`:                "/items: it is an object",
		`{"items":[{},`:               "the JSON ends too early",
	} {
		var got list
		err := strictjson.Decode([]byte(in), &got, limit)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("Decode(%s) = %v, want %q", in, err, want)
		}
	}
	var got list
	err := strictjson.DecodeOpen([]byte(`{"items":[{"name":"a"},{"other":1}]}`), &got, limit)
	if diff := cmp.Diff(list{[]Embedded{{"a"}, {}}}, got); err != nil || diff != "" {
		t.Errorf("DecodeOpen = %v (-want +got):\n%s", err, diff)
	}
}

// TestCheckLimits checks what Python's json could not decode.
func TestCheckLimits(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`{"":[`, n/2) + strings.Repeat("]}", n/2) }
	long := strings.Repeat("9", strictjson.MaxDigits)
	for in, want := range map[string]string{
		long:                                    "",
		"-" + long:                              "",
		"[-" + long + "]":                       "",
		`{"` + long + `9":"\\\"` + long + `9"}`: "",
		long + "9":                              "a number has more than 4300 digits",
		`{"a":-9` + long + "}":                  "a number has more than 4300 digits",
		"-1." + long:                            "a number has more than 4300 digits",
		"1e-999":                                "",
		"[-1e999]":                              "a number is too large for a float: -1e999",
		nested(strictjson.MaxDepth):             "",
		nested(strictjson.MaxDepth + 2):         "it is nested more than 500 levels deep",
		`"` + strings.Repeat("[", 1000) + `"`:   "",
		"[" + strings.Repeat("[],", 1000) + "[]]": "",
	} {
		err := strictjson.Check([]byte(in))
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("Check(%.40s… of %d bytes) = %v, want %q", in, len(in), err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for in, want := range map[string]bool{
		`null`: true, ` {"a": {"b": null}} `: true, `[1, "x"]`: true,
		`{"a":1,"a":1}`: false, `[{"a":{"b":1,"b":1}}]`: false, `"\ud800"`: false, "\"\xff\"": false, `1 2`: false, ``: false,
	} {
		if err := strictjson.Check([]byte(in)); (err == nil) != want {
			t.Errorf("Check(%s) = %v, want ok %v", in, err, want)
		}
	}
}
