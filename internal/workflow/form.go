package workflow

import (
	"encoding/json"
	"fmt"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// AnswerError says why an answer is refused.
type AnswerError struct {
	Code    string
	Message string
	Path    string
}

func (e *AnswerError) Error() string { return e.Message }

// form is what an answer must fit.
type form struct {
	Type       string                           `json:"type"`
	Properties map[string]schemas.WorkflowInput `json:"properties"`
	Required   []string                         `json:"required"`
}

func (c *checker) form(path string, raw json.RawMessage) {
	var f form
	if err := json.Unmarshal(raw, &f); err != nil || f.Type != "object" || len(f.Properties) == 0 {
		c.add(path, "it is not a JSON Schema of type object with properties")
		return
	}
	for _, name := range f.Required {
		if _, ok := f.Properties[name]; !ok {
			c.add(path+"/required", "the form has no field %s", name)
		}
	}
}

func (m *machine) applyAnswer(a *Answered) error {
	i, x := m.at(a.Step, a.Item)
	if x == nil || m.steps[i].Ask == nil {
		return &AnswerError{Code: errcode.NotWaiting, Message: "the run has no step " + a.Step + " that asks"}
	}
	if x.Status != schemas.WorkflowWaiting {
		message := "the step " + a.Step + " does not wait for an answer: it is " + string(x.Status)
		return &AnswerError{Code: errcode.NotWaiting, Message: message}
	}
	values, err := check(m.steps[i].Ask.Form, a.Values)
	if err != nil {
		return err
	}
	m.succeed(i, a.Item, x, values)
	return nil
}

// check returns the values of an answer with the form's defaults.
func check(raw, given json.RawMessage) (json.RawMessage, error) {
	var f form
	values := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	if json.Unmarshal(given, &values) != nil || values == nil || len(given) > MaxValue {
		return nil, &AnswerError{Code: errcode.BadAnswer, Message: "the answer is not a JSON object"}
	}
	for name, value := range values {
		field, ok := f.Properties[name]
		if !ok {
			return nil, &AnswerError{Code: errcode.BadAnswer, Path: "/" + name, Message: "the form has no such field"}
		}
		if err := checkInput(field, value); err != nil {
			return nil, &AnswerError{Code: errcode.BadAnswer, Path: "/" + name, Message: err.Error()}
		}
	}
	for name, field := range f.Properties {
		if _, ok := values[name]; !ok && len(field.Default) > 0 {
			values[name] = field.Default
		}
	}
	for _, name := range f.Required {
		if _, ok := values[name]; !ok {
			return nil, &AnswerError{Code: errcode.BadAnswer, Path: "/" + name, Message: "it is required"}
		}
	}
	out, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return out, nil
}
