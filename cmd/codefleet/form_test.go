package main

import (
	"bufio"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/form"
)

// A person is asked for what is missing, again after a wrong answer, and no more than three times for a field.
func TestAskMissing(t *testing.T) {
	f, err := form.Parse([]byte(`{"type": "object", "properties": {
		"name": {"type": "string", "minLength": 2}, "colour": {"type": "string", "enum": ["red", "green"]},
		"n": {"type": "integer", "maximum": 9}}, "required": ["name", "colour", "n"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]int{
		"Ada\nred\n3\n":           0,
		"A\nAda\nblue\nRed\n3\n":  0,
		"\n\n\n":                  3,
		"Ada":                     2,
		"Ada\nred\n10\n11\n12\n3": 1,
		"":                        3,
	} {
		filled, err := form.Fill(t.Context(), f, "", form.Method{})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		askMissing(bufio.NewReader(strings.NewReader(input)), &out, f, &filled)
		if len(filled.Problems) != want {
			t.Errorf("%q: problems %v, want %d", input, filled.Problems, want)
		}
		if want == 0 && (filled.Values["colour"] != "red" || !strings.Contains(out.String(), "colour (red, green): ")) {
			t.Errorf("%q: values %v, output %s", input, filled.Values, out.String())
		}
	}
}
