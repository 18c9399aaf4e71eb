// Package form describes what people fill in: the fields of a form, their types and rules. A form is one flat JSON
// Schema object. It may have more keywords than the schemas of MCP elicitation. The package checks values, and fills in
// forms from documents by rules or by a model. It does not itself ask people.
//
// The key type is Form. Files: form.go, schema.go (the keywords), check.go (problems), number.go (exact numbers),
// read.go (text as values), rules.go, model.go and fill.go (values from documents).
package form

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Limits of a form and of the values that are filled in.
const (
	MaxSize   = 64 << 10  // bytes of a form's JSON
	MaxFields = 100       // of a form
	MaxValues = 256 << 10 // bytes of the values' JSON

	maxChoices    = 250  // of a field
	maxConditions = 32   // "if" schemas of a form
	maxName       = 128  // bytes of a field's name
	maxTitle      = 250  // bytes of a title, also of a choice
	maxText       = 4096 // bytes of a description or a pattern
)

// Form is a form without values. Its zero value has no fields. A Form is immutable and safe for concurrent use.
type Form struct {
	Title       string
	Description string
	Fields      []Field // in the order of the JSON

	source json.RawMessage
	schema *jsonschema.Schema // compiled
}

// Type is the JSON type of a field's value.
type Type string

// The types of fields.
const (
	String  Type = "string"
	Number  Type = "number"
	Integer Type = "integer"
	Boolean Type = "boolean"
	List    Type = "array" // of choices
)

// Field is one question of a form. Its texts are untrusted.
type Field struct {
	Name        string // the key of its value
	Title       string // may be empty
	Description string
	Type        Type
	Format      string   // email, uri, date or date-time; only for strings
	Choices     []Choice // if not empty, the values that a string or the items of a list may have
	Required    bool     // whatever the values of other fields are
	Default     any      // nil without a default

	schema property
}

// Choice is a permitted value, and how people read it.
type Choice struct{ Value, Title string }

// Label returns the field's title, or otherwise its name.
func (f Field) Label() string { return cmp.Or(f.Title, f.Name) }

// Field returns the field with the given name.
func (f Form) Field(name string) (Field, bool) {
	i := slices.IndexFunc(f.Fields, func(field Field) bool { return field.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return f.Fields[i], true
}

// Defaults returns the values of the fields that have a default.
func (f Form) Defaults() map[string]any {
	values := map[string]any{}
	for _, field := range f.Fields {
		if list, ok := field.Default.([]any); ok {
			values[field.Name] = slices.Clone(list)
		} else if field.Default != nil {
			values[field.Name] = field.Default
		}
	}
	return values
}

// MarshalJSON returns the JSON Schema from which the form was parsed.
func (f Form) MarshalJSON() ([]byte, error) {
	if f.source == nil {
		return []byte(`{"type":"object","properties":{}}`), nil
	}
	return f.source, nil
}

// UnmarshalJSON implements json.Unmarshaler by calling Parse.
func (f *Form) UnmarshalJSON(data []byte) error {
	parsed, err := Parse(data)
	if err == nil {
		*f = parsed
	}
	return err
}

// Error lists reasons why a text is not a form.
type Error struct{ Problems []string }

func (e *Error) Error() string { return "not a form: " + strings.Join(e.Problems, "; ") }

// Parse returns the form that a JSON Schema describes. The error is an *Error.
func Parse(data []byte) (Form, error) {
	if len(data) > MaxSize {
		return Form{}, &Error{[]string{fmt.Sprintf("it has %d bytes; the limit is %d", len(data), MaxSize)}}
	}
	d, err := decode(data)
	if err != nil {
		return Form{}, &Error{[]string{err.Error()}}
	}
	if faults := d.faults(); len(faults) > 0 {
		return Form{}, &Error{faults}
	}
	f := Form{Title: d.Title, Description: d.Description}
	for _, name := range d.Properties.names {
		f.Fields = append(f.Fields, d.field(name))
	}
	if f.schema, err = d.compile(); err != nil {
		return Form{}, &Error{[]string{err.Error()}}
	}
	if faults := f.wrongDefaults(); len(faults) > 0 {
		return Form{}, &Error{faults}
	}
	var source bytes.Buffer
	if err := json.Compact(&source, data); err != nil {
		return Form{}, &Error{[]string{err.Error()}}
	}
	f.source = source.Bytes()
	return f, nil
}

// wrongDefaults lists the defaults that break the rules of their own fields.
func (f Form) wrongDefaults() (problems []string) {
	defaults := f.Defaults()
	for _, p := range f.Check(defaults) {
		if _, ok := defaults[p.Field]; ok {
			problems = append(problems, "default: "+p.Message)
		}
	}
	return problems
}

// Elicitation returns the JSON Schema of the named fields as clients of MCP accept it, in the form's order. It lacks
// the rules that MCP does not have, so the answer needs a Check.
func (f Form) Elicitation(names ...string) json.RawMessage {
	properties := ordered[property]{byName: map[string]property{}}
	var required []string
	for _, field := range f.Fields {
		if !slices.Contains(names, field.Name) {
			continue
		}
		properties.names = append(properties.names, field.Name)
		properties.byName[field.Name] = field.elicited()
		if field.Required {
			required = append(required, field.Name)
		}
	}
	data, err := marshal(document{Type: "object", Properties: properties, Required: required})
	if err != nil {
		panic("form: encode a parsed form: " + err.Error()) // all values came from JSON
	}
	return data
}

// elicited returns the field's schema without the keywords that MCP does not have, and with its choices as MCP demands:
// each entry of oneOf and anyOf has a title, and a list has a typed enum or an untyped anyOf.
func (f Field) elicited() property {
	p := f.schema
	p.Pattern, p.MultipleOf, p.ExclusiveMinimum, p.ExclusiveMaximum, p.UniqueItems = "", nil, nil, nil, false
	options := make([]titled, len(f.Choices))
	for i, c := range f.Choices {
		options[i] = titled{Const: c.Value, Title: c.Title}
	}
	switch {
	case p.OneOf != nil:
		p.OneOf = options
	case p.Items == nil:
	case p.Items.Enum != nil:
		p.Items = &items{Type: String, Enum: p.Items.Enum}
	default:
		p.Items = &items{AnyOf: options}
	}
	return p
}

// sortedNames returns the names of the values, sorted.
func sortedNames[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }
