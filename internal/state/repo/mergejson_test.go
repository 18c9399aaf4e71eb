package repo

import (
	"encoding/json"
	"testing"
)

func TestSameJSON(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"x": [1, 2.50], "y": "\u00e9"}`, `{"y":"é","x":[1,2.5]}`, true},
		{`"\/\u003c\u2028"`, "\"/<\u2028\"", true},
		{`1e2`, `100.0`, true},
		{`-0`, `0`, true},
		{`12345678901234567890`, `12345678901234567891`, false},
		{`0.1`, `0.10000000000000001`, true},
		{`1`, `1.0`, false},
		{`0.0`, `-0.0`, false},
		{`1e999`, `2e999`, false},
		{`"\ud800"`, `"\ud801"`, false},
		{`[1, 2]`, `[2, 1]`, false},
		{`null`, ``, false},
	} {
		var b json.RawMessage
		if c.b != "" {
			b = json.RawMessage(c.b)
		}
		if got := sameJSON(json.RawMessage(c.a), b); got != c.want {
			t.Errorf("sameJSON(%s, %s) = %t, want %t", c.a, c.b, got, c.want)
		}
	}
}
