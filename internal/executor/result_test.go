package executor

import (
	"strings"
	"testing"
)

func TestValidResult(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, test := range map[string]struct {
		result string
		want   bool
	}{
		"values":              {`{"a":[1,-2.5e3,"x\"[[","\ud83d\uDE00",null,true]}`, true},
		"lone high surrogate": {`["\ud800"]`, false},
		"high before letters": {`"\ud800abcdef"`, false},
		"lone low surrogate":  {`{"\udcff":1}`, false},
		"pair in reverse":     {`"\udc00\ud800"`, false},
		"no surrogate":        {`"\\ud800"`, true},
		"deep":                {nested(maxResultDepth), true},
		"too deep":            {nested(maxResultDepth + 1), false},
		"too deep, objects":   {strings.Repeat(`{"":`, 65) + "1" + strings.Repeat("}", 65), false},
		"wide":                {"[" + strings.Repeat("[],", 1000) + "[]]", true},
		"brackets in strings": {`"` + strings.Repeat("[", 1000) + `"`, true},
		"long integer":        {"-" + strings.Repeat("9", 4300), true},
		"too long integer":    {"[-" + strings.Repeat("9", 4301) + "]", false},
		"too large float":     {`[1e999]`, false},
		"small float":         {`1e-999`, true},
		"doubled name":        {`{"a":1,"b":{"c":1,"\u0063":2}}`, false},
		"name in two objects": {`[{"a":1},{"a":{"a":2}}]`, true},
		"not UTF-8":           {"\"\xff\"", false},
		"not JSON":            {`{`, false},
		"too long":            {`"` + strings.Repeat("x", MaxResultBytes) + `"`, false},
	} {
		if got := validResult([]byte(test.result)); got != test.want {
			t.Errorf("%s: validResult() = %t, want %t", name, got, test.want)
		}
	}
}
