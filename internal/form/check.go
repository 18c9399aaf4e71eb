package form

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/violation"
)

// Problem says what is wrong with the value of a field.
type Problem struct {
	// Field is the name of the field, or of a value without a field. It is empty if the values as a whole are wrong.
	Field   string `json:"field"`
	Message string `json:"message"` // a sentence for people, which does not repeat the value
	Missing bool   `json:"missing,omitempty"`
}

// Check lists the problems of the values, in the order of the fields. Values without a field come first, at most
// maxUnknown of them. A value that is nil counts as missing. The values are valid if there is no problem.
func (f Form) Check(values map[string]any) []Problem {
	decoded, err := asJSON(values)
	if err != nil {
		return []Problem{{Message: err.Error()}}
	}
	problems := f.unknown(decoded)
	if f.schema != nil {
		violated, _ := errors.AsType[*jsonschema.ValidationError](f.schema.Validate(decoded))
		if violated != nil {
			for _, leaf := range violation.Leaves(violated) {
				problems = append(problems, f.problems(leaf)...)
			}
		}
	}
	position := map[string]int{}
	for i, field := range f.Fields {
		position[field.Name] = i + 1
	}
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(position[a.Field], position[b.Field]), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(problems)
}

// asJSON returns the values as a JSON decoder does, so that Go's types do not matter. It leaves out null, which counts
// as missing.
func asJSON(values map[string]any) (map[string]any, error) {
	var data bytes.Buffer
	e := json.NewEncoder(&data)
	e.SetEscapeHTML(false)
	if err := e.Encode(values); err != nil {
		return nil, errors.New("the values are not JSON")
	}
	if size := data.Len() - len("\n"); size > MaxValues {
		return nil, fmt.Errorf("the values have %d bytes; the limit is %d", size, MaxValues)
	}
	decoded := map[string]any{}
	if err := json.Unmarshal(data.Bytes(), (*Values)(&decoded)); err != nil {
		return nil, err
	}
	for name, v := range decoded {
		if v == nil {
			delete(decoded, name)
		}
	}
	return decoded, nil
}

// maxUnknown is how many unknown fields Check lists.
const maxUnknown = 20

// unknown returns a problem for each value without a field, up to maxUnknown, and one more if there are more.
func (f Form) unknown(values map[string]any) (problems []Problem) {
	names := make([]string, len(f.Fields))
	for i, field := range f.Fields {
		names[i] = field.Name
	}
	for _, name := range sortedNames(values) {
		if slices.Contains(names, name) {
			continue
		}
		if len(problems) == maxUnknown {
			return append(problems, Problem{Message: "there are more values without a field"})
		}
		message := fmt.Sprintf("%q is not a field of the form", printable(name))
		if near := text.Nearest(name, names, 2); near != "" {
			message += fmt.Sprintf(": did you mean %q?", near)
		}
		problems = append(problems, Problem{Field: printable(name), Message: message})
	}
	return problems
}

// problems returns the problems of a violation, which may name several fields.
func (f Form) problems(leaf *jsonschema.ValidationError) []Problem {
	switch k := leaf.ErrorKind.(type) {
	case *kind.Required:
		return f.missing(k.Missing, "")
	case *kind.DependentRequired:
		other, _ := f.Field(k.Prop)
		return f.missing(k.Missing, fmt.Sprintf(": it is needed with %q", other.Label()))
	}
	if len(leaf.InstanceLocation) == 0 {
		return []Problem{{Message: violation.Describe(leaf.ErrorKind)}}
	}
	field, _ := f.Field(leaf.InstanceLocation[0])
	return []Problem{{
		Field: field.Name, Message: fmt.Sprintf("%q %s", field.Label(), describe(field, leaf.ErrorKind)),
	}}
}

// missing returns a problem for each field that has no value, although it needs one.
func (f Form) missing(names []string, why string) []Problem {
	problems := make([]Problem, len(names))
	for i, name := range names {
		field, _ := f.Field(name)
		problems[i] = Problem{Field: name, Message: fmt.Sprintf("%q is missing%s", field.Label(), why), Missing: true}
	}
	return problems
}

// describe says what a value must be, as the rest of a sentence that begins with the field's label.
func describe(f Field, k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be " + typeText(f)
	case *kind.Enum:
		return "must be one of: " + choicesText(f, k.Want)
	case *kind.Const:
		return fmt.Sprintf("must be %v", k.Want)
	case *kind.Format:
		return "must be " + formatTexts[k.Want]
	case *kind.Pattern:
		return "must match the pattern " + text.Printable(k.Want)
	case *kind.Minimum:
		return "must be at least " + violation.Number(k.Want)
	case *kind.Maximum:
		return "must be at most " + violation.Number(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + violation.Number(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + violation.Number(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + violation.Number(k.Want)
	case *kind.MinLength:
		return "must have at least " + counted(k.Want, "character")
	case *kind.MaxLength:
		return "must have at most " + counted(k.Want, "character")
	case *kind.MinItems:
		return "needs at least " + counted(k.Want, "choice")
	case *kind.MaxItems:
		return "may have at most " + counted(k.Want, "choice")
	case *kind.UniqueItems:
		return "has the same choice twice"
	}
	return violation.Describe(k)
}

var formatTexts = map[string]string{
	"email":     "an e-mail address such as ada@example.com",
	"uri":       "an address such as https://example.com/page",
	"date":      "a date such as 2026-03-31",
	"date-time": "a date and time such as 2026-03-31T14:30:00Z",
}

// typeText names the kind of values that the field has.
func typeText(f Field) string {
	switch f.Type {
	case Number:
		return "a number"
	case Integer:
		return "a whole number"
	case Boolean:
		return "true or false"
	case List:
		return "a list of choices"
	case String:
	}
	if t := formatTexts[f.Format]; t != "" {
		return t
	}
	return "a text"
}

// maxListedChoices is how many choices a problem lists.
const maxListedChoices = 12

func choicesText(f Field, want []any) string {
	var list []string
	for i, v := range want {
		if i == maxListedChoices {
			list = append(list, fmt.Sprintf("… (%d more)", len(want)-i))
			break
		}
		label := fmt.Sprint(v)
		for _, c := range f.Choices {
			if c.Value == v && c.Title != c.Value {
				label = fmt.Sprintf("%s (%s)", c.Value, c.Title)
			}
		}
		list = append(list, text.Printable(label))
	}
	return strings.Join(list, ", ")
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
