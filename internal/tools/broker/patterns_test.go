package broker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Patterns that are not RE2 do not keep the rest of a schema from being checked, unless they might refuse a value.
func TestPatternsThatAreNotRE2(t *testing.T) {
	const lookahead = `"pattern":"^(?!x).*$"`
	for _, test := range []struct {
		schema, value string
		refused       bool
	}{
		{`{"properties":{"a":{"type":"string",` + lookahead + `},"n":{"type":"integer"}}}`, `{"a":"x","n":1}`, false},
		{`{"properties":{"a":{"type":"string",` + lookahead + `},"n":{"type":"integer"}}}`, `{"a":"x","n":"1"}`, true},
		{`{"properties":{"a":{"type":"string",` + lookahead + `}}}`, `{"a":1}`, true},
		{`{"properties":{"a":{"pattern":"(.)\\1"},"b":{"pattern":"^y"}}}`, `{"a":"xy","b":"x"}`, true},
		{`{"type":"object","not":{"properties":{"a":{` + lookahead + `}}}}`, `{"a":"x"}`, false},
		{`{"oneOf":[{"properties":{"a":{` + lookahead + `}}},{"required":["a"]}]}`, `{"a":"x"}`, false},
		{`{"patternProperties":{"^(?!x)":{"type":"integer"}}}`, `{"x":"1"}`, false},
	} {
		s := compile(json.RawMessage(test.schema))
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(test.value))
		if err != nil {
			t.Fatal(err)
		}
		var problem error
		if s != nil {
			problem = s.validate(value)
		}
		if (problem != nil) != test.refused {
			t.Errorf("%s of %s: %v, want refused %t", test.value, test.schema, problem, test.refused)
		}
	}
}
