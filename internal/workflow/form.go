package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/form"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// AnswerError says why an answer is refused.
type AnswerError struct {
	Code    string
	Message string
	Path    string // into the values
}

func (e *AnswerError) Error() string { return e.Message }

func (c *checker) form(path string, raw json.RawMessage) form.Form {
	f, err := form.Parse(raw)
	if err != nil {
		c.add(path, "%s", err)
	}
	return f
}

func (m *machine) applyAnswer(a *Answered) error {
	i, x := m.at(a.Step, a.Item)
	if x == nil || m.steps[i].Ask == nil {
		message := "the run has no step " + text.Truncate(a.Step, 100) + " that asks"
		return &AnswerError{Code: errcode.NotWaiting, Message: message}
	}
	if x.Status != schemas.WorkflowWaiting {
		return &AnswerError{
			Code:    errcode.NotWaiting,
			Message: "the step " + a.Step + " does not wait for an answer: it is " + string(x.Status),
		}
	}
	values, err := checkAnswer(m.steps[i].form, a.Values)
	if err != nil {
		return err
	}
	m.succeed(i, a.Item, x, values)
	return nil
}

// checkAnswer returns the values of an answer, with the form's defaults.
func checkAnswer(f form.Form, given json.RawMessage) (json.RawMessage, error) {
	values := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(given))
	d.UseNumber()
	if len(given) > form.MaxValues || d.Decode(&values) != nil || values == nil {
		return nil, &AnswerError{Code: errcode.BadAnswer, Message: "the answer is not a JSON object of at most 256 KiB"}
	}
	for name, value := range f.Defaults() {
		if _, ok := values[name]; !ok {
			values[name] = value
		}
	}
	problems := f.Check(values)
	if len(problems) > 0 {
		lines := make([]string, len(problems))
		for i, p := range problems {
			lines[i] = strings.TrimPrefix(p.Field+": ", ": ") + p.Message
		}
		e := &AnswerError{Code: errcode.BadAnswer, Message: strings.Join(lines, "; ")}
		if problems[0].Field != "" {
			e.Path = "/" + text.EncodeToken(problems[0].Field)
		}
		return nil, e
	}
	out, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return out, nil
}
