package expression_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/expression"
)

func decode(t *testing.T, raw map[string]json.RawMessage) map[string]any {
	t.Helper()
	values := map[string]any{}
	for name, r := range raw {
		v, err := expression.Decode(r)
		if err != nil {
			t.Fatalf("Decode(%s) = %v, want nil", r, err)
		}
		values[name] = v
	}
	return values
}

func TestHolds(t *testing.T) {
	values := map[string]json.RawMessage{
		"args": json.RawMessage(`{"amount": 1000, "rate": 0.5, "to": "ada", "big": 9007199254740993, "tags": ["a", "b"]}`),
		"tool": json.RawMessage(`"pay"`),
	}
	for _, c := range []struct {
		source string
		want   bool
		err    string
	}{
		{source: "args.amount <= 1000", want: true},
		{source: "args.amount > 999.5 && args.rate < 1", want: true},
		{source: "args.big == 9007199254740993", want: true},
		{source: "args.big == 9007199254740992", want: false},
		{source: "has(args.missing)", want: false},
		{source: "args.to.startsWith('a') && tool == 'pay'", want: true},
		{source: "args.tags.all(t, t in ['a', 'b'])", want: true},
		{source: "args.to.matches('^(a+)+$')", want: false},
		{source: "empty == null", want: true},
		{source: "args.missing == 1", err: "no such key: missing"},
		{source: "args.amount", err: "neither true nor false"},
	} {
		condition, err := expression.Compile(c.source, "args", "tool", "empty")
		if err != nil {
			t.Errorf("Compile(%q) = %v, want nil", c.source, err)
			continue
		}
		values["empty"] = nil
		got, err := condition.Holds(t.Context(), decode(t, values))
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("Holds(%q) = %t, %v, want %t, %q", c.source, got, err, c.want, c.err)
		}
	}
}

func TestUsesWhole(t *testing.T) {
	for source, want := range map[string]bool{
		"v.a":                           true,
		"v['a']":                        true,
		"v.a[v.b]":                      true,
		`{"all": v.a, "s": v.a.status}`: true,
		"v.a.status + v['a']['s']":      false,
		"v.b":                           false,
		"v":                             false,
	} {
		e, err := expression.CompileValue(source, "v")
		if err != nil {
			t.Errorf("CompileValue(%q) = %v, want nil", source, err)
			continue
		}
		if got := e.UsesWhole("v", "a"); got != want {
			t.Errorf("UsesWhole of %q = %t, want %t", source, got, want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"args.amount <", "column 14: the expression ends too early"},
		{"", "the expression ends too early"},
		{"args.a = 1", "column 8: unexpected '='; compare with =="},
		{"args.a and args.b", "column 8: unexpected 'and'; combine conditions with &&"},
		{"args.a == 'x", "column 11: the text has no closing '"},
		{"args.a &&\n\n ?", "line 3, column 2: unexpected '?'"},
		{"(args.a", "column 8: ')' is missing"},
		{"args.'x'", "column 6: unexpected '.'x''"},
		{"args.a == @" + strings.Repeat("x", 500), "column 11: unexpected '@'"},
		{"has(1)", "column 5: invalid argument to has() macro"},
		{"unknown > 1", "column 1: undeclared reference to 'unknown'"},
		{"1 + 1", "has the type int, want bool"},
		{"'" + strings.Repeat("x", 1000) + "'", "has the type string, want bool"},
		{"'a' + 1 == 2", "found no matching overload"},
		{`args.a.matches("(")`, "the regular expression of matches is invalid: missing closing ): `(`"},
		{`[1].all(i, matches(args.a, "a**"))`, "invalid nested repetition operator: `**`"},
		{strings.Repeat("(", 2000) + "true" + strings.Repeat(")", 2000), "recursion limit"},
		{"true" + strings.Repeat(" ", expression.MaxSource), "the limit is 4096"},
	} {
		_, err := expression.Compile(c.source, "args")
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 300 {
			t.Errorf("Compile(%.40q) = %v, want %q", c.source, err, c.want)
		}
	}
}

// An expression that would run for long ends with an error.
func TestCostIsBounded(t *testing.T) {
	list := json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1,", 1000), ",") + "]")
	for _, source := range []string{
		"list.all(a, list.all(b, list.all(c, a + b + c > 0)))",
		"list.map(a, list.map(b, list.map(c, 'x'))).size() > 0",
	} {
		condition, err := expression.Compile(source, "list")
		if err != nil {
			t.Fatalf("Compile(%q) = %v, want nil", source, err)
		}
		if _, err := condition.Holds(t.Context(), decode(t, map[string]json.RawMessage{"list": list})); err == nil {
			t.Errorf("Holds(%q) = nil, want an error", source)
		}
	}
}
