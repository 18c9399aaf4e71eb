package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/expression"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// InputError says which input is wrong. Name is empty if the inputs as a whole are wrong.
type InputError struct{ Name, Message string }

func (e *InputError) Error() string {
	if e.Name == "" {
		return e.Message
	}
	return "input " + e.Name + ": " + e.Message
}

// Inputs checks the inputs of a run, and returns them with the defaults. The error is an *InputError.
func (p *Plan) Inputs(given json.RawMessage) (json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	if len(given) > MaxValue {
		return nil, &InputError{"", fmt.Sprintf("the inputs are %d bytes; the limit is %d", len(given), MaxValue)}
	}
	if s := bytes.TrimSpace(given); len(s) > 0 && string(s) != "null" {
		if err := json.Unmarshal(s, &values); err != nil {
			return nil, &InputError{"", "the inputs are not a JSON object"}
		}
	}
	for name, value := range values {
		in, ok := p.Definition.Inputs[name]
		if !ok {
			return nil, &InputError{text.Truncate(name, 100), "the workflow has no such input"}
		}
		if err := checkInput(in, value); err != nil {
			return nil, &InputError{name, err.Error()}
		}
	}
	for name, in := range p.Definition.Inputs {
		if _, ok := values[name]; ok {
			continue
		}
		if len(in.Default) == 0 {
			return nil, &InputError{name, "it is required"}
		}
		values[name] = in.Default
	}
	return json.Marshal(values)
}

func checkInput(in schemas.WorkflowInput, value json.RawMessage) error {
	if err := checkType(in.Type, value); err != nil {
		return err
	}
	if len(in.Enum) == 0 || slices.ContainsFunc(in.Enum, func(v json.RawMessage) bool { return equalJSON(v, value) }) {
		return nil
	}
	return errors.New("it is not one of the values that the workflow allows")
}

func equalJSON(a, b json.RawMessage) bool {
	x, errX := canonical(a)
	y, errY := canonical(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func canonical(v json.RawMessage) ([]byte, error) {
	decoded, err := expression.Decode(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(decoded)
}

// checkType returns an error unless the value has the type want of JSON Schema. An empty want permits all types.
func checkType(want string, value json.RawMessage) error {
	v, err := expression.Decode(value)
	if err != nil {
		return err
	}
	got := ""
	switch v := v.(type) {
	case nil:
		got = "null"
	case bool:
		got = "boolean"
	case string:
		got = "string"
	case int64:
		got = "integer"
	case float64:
		got = "number"
		if want == "integer" && v == float64(int64(v)) {
			got = "integer"
		}
	case []any:
		got = "array"
	case map[string]any:
		got = "object"
	}
	if want == "" || got == want || want == "number" && got == "integer" {
		return nil
	}
	return fmt.Errorf("it is of type %s, not %s", got, want)
}
