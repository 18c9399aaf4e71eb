package expression_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/expression"
)

// repeated returns an expression whose value contains its first value 10^depth times.
func repeated(depth int) string {
	return "[0]" + strings.Repeat(".map(b, [b, b, b, b, b, b, b, b, b, b])", depth)
}

// nested returns an expression that compares a value that contains 0 10^depth times.
func nested(depth int) string {
	return strings.Repeat("[[b, b, b, b, b, b, b, b, b, b]].exists(b, ", depth) + "b == b" + strings.Repeat(")", depth)
}

// A value that contains another one many times takes neither more time nor more memory than its limit.
func TestRepeatedValuesAreBounded(t *testing.T) {
	list, err := json.Marshal(make([]int, 2000))
	if err != nil {
		t.Fatal(err)
	}
	values := decode(t, map[string]json.RawMessage{
		"list": list, "text": json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`), "b": json.RawMessage("0"),
	})
	for _, c := range []struct{ source, want string }{
		{repeated(20), "more than 300000 values"},
		{repeated(20) + " == " + repeated(20), "more than 300000 values"},
		{nested(20), "more than 300000 values"},
		{"[{'a': " + repeated(5) + "}].map(b, {'a': b, 'b': b, 'c': b, 'd': b})", "more than 300000 values"},
		{"list.map(i, text)", "larger than 1048576 bytes"},
		{"[list].map(a, a.map(i, {text: i}))", "larger than 1048576 bytes"},
	} {
		e, err := expression.CompileValue(c.source, "list", "text", "b")
		if err != nil {
			t.Fatalf("CompileValue(%.40q) = %v, want nil", c.source, err)
		}
		if v, err := e.Value(t.Context(), values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Value(%.40q) = %d bytes, %v, want %q", c.source, len(v), err, c.want)
		}
	}
	e, err := expression.CompileValue("list.map(i, [i, i + 1]).size() + "+repeated(3)+".size()", "list")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := e.Value(t.Context(), values); string(v) != "2001" || err != nil {
		t.Errorf("Value() of a value within the limits = %s, %v, want 2001", v, err)
	}
}

// Types that are nested deep take long to check, so they are refused first.
func TestNestingIsBounded(t *testing.T) {
	for _, source := range []string{
		"[1]" + strings.Repeat(".map(b, [b])", 200),
		strings.Repeat("[", 200) + "1" + strings.Repeat("]", 200),
		strings.Repeat("{'a': ", 200) + "1" + strings.Repeat("}", 200),
	} {
		_, err := expression.CompileValue(source)
		if err == nil || !strings.Contains(err.Error(), "nested more than 24 deep") {
			t.Errorf("CompileValue(%.40q) = %v, want nested more than 24 deep", source, err)
		}
	}
}
