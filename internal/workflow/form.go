package workflow

import (
	"encoding/json"
	"fmt"
	"strconv"
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
	Path    string // of what is wrong in the schemas.WorkflowAnswer; empty if neither its item nor its values are wrong
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
	i, ok := m.index[a.Step]
	if !ok || i >= len(m.run.Steps) {
		message := "there is no step " + text.Truncate(a.Step, 100) + m.suggestion(a.Step)
		return &AnswerError{Code: errcode.UnknownStep, Message: message}
	}
	if m.steps[i].Ask == nil {
		return &AnswerError{Code: errcode.NotWaiting, Message: "the step " + a.Step + " does not ask"}
	}
	if err := m.checkItem(i, a.Item); err != nil {
		return err
	}
	_, x := m.at(a.Step, a.Item)
	if x == nil { // a loop that has not begun
		x = &m.run.Steps[i]
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
	m.accept(i, a.Item, x, values)
	return nil
}

// checkItem checks the item that an answer names: an answer to a loop must name one of the loop's items, and an answer
// to another step must name none.
func (m *machine) checkItem(i, item int) error {
	s, items := m.steps[i], m.run.Steps[i].Items
	message := ""
	switch {
	case s.ForEach == nil && item >= 0:
		message = fmt.Sprintf("the step %s is not a loop: it asks once, so leave the item out", s.ID)
	case s.ForEach == nil || items == nil || item >= 0 && item < len(items):
		return nil
	case item >= 0:
		message = fmt.Sprintf("the loop %s has %d items, and no item %d: the first is item 0", s.ID, len(items), item)
	default:
		message = fmt.Sprintf("the step %s is a loop, which asks for each of its items: name the item", s.ID)
	}
	if waiting := m.waitingItems(i); waiting != "" {
		message += "; those that wait are " + waiting
	}
	return &AnswerError{Code: errcode.BadAnswer, Message: message, Path: "/item"}
}

// maxListed is how many items an error lists.
const maxListed = 20

// waitingItems lists the items of a loop that wait.
func (m *machine) waitingItems(i int) string {
	var list []string
	for k, item := range m.run.Steps[i].Items {
		if item.Status != schemas.WorkflowWaiting {
			continue
		}
		if len(list) == maxListed {
			list = append(list, "…")
			break
		}
		list = append(list, strconv.Itoa(k))
	}
	return strings.Join(list, ", ")
}

// checkAnswer checks the values of an answer, and returns them with the form's defaults. The error is an *AnswerError.
func checkAnswer(f form.Form, given json.RawMessage) (json.RawMessage, error) {
	var values form.Values
	if len(given) > form.MaxValues || json.Unmarshal(given, &values) != nil || values == nil {
		return nil, &AnswerError{
			Code: errcode.BadAnswer, Path: "/values",
			Message: "the answer is not a JSON object of at most 256 KiB with numbers of ordinary size",
		}
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
		e := &AnswerError{Code: errcode.BadAnswer, Message: strings.Join(lines, "; "), Path: "/values"}
		if problems[0].Field != "" {
			e.Path += "/" + text.EncodeToken(problems[0].Field)
		}
		return nil, e
	}
	out, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return out, nil
}
