package form

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/codefleet/codefleet/internal/patterns"
	"github.com/codefleet/codefleet/internal/text"
)

// document is a form as JSON: the keywords that a form may have. Other keywords are refused.
type document struct {
	Schema               string              `json:"$schema,omitzero"`
	ID                   string              `json:"$id,omitzero"`
	Type                 string              `json:"type"`
	Title                string              `json:"title,omitzero"`
	Description          string              `json:"description,omitzero"`
	Properties           ordered[property]   `json:"properties"`
	Required             []string            `json:"required,omitzero"`
	DependentRequired    map[string][]string `json:"dependentRequired,omitzero"`
	AdditionalProperties *bool               `json:"additionalProperties,omitzero"`
	AllOf                []conditional       `json:"allOf,omitzero"` // if there is more than one condition

	conditional
}

// conditional applies further rules if the values meet a condition.
type conditional struct {
	If   *rules `json:"if,omitzero"`
	Then *rules `json:"then,omitzero"`
	Else *rules `json:"else,omitzero"`
}

// rules are a condition, or what follows from it.
type rules struct {
	Properties ordered[property] `json:"properties,omitzero"`
	Required   []string          `json:"required,omitzero"`
}

// property is the schema of a field.
type property struct {
	Type             Type           `json:"type,omitzero"`
	Title            string         `json:"title,omitzero"`
	Description      string         `json:"description,omitzero"`
	Format           string         `json:"format,omitzero"`
	Const            jsontext.Value `json:"const,omitzero"` // only in conditions
	Enum             []string       `json:"enum,omitzero"`
	EnumNames        []string       `json:"enumNames,omitzero"`
	OneOf            []titled       `json:"oneOf,omitzero"`
	Minimum          *exactNumber   `json:"minimum,omitzero"`
	Maximum          *exactNumber   `json:"maximum,omitzero"`
	ExclusiveMinimum *exactNumber   `json:"exclusiveMinimum,omitzero"`
	ExclusiveMaximum *exactNumber   `json:"exclusiveMaximum,omitzero"`
	MultipleOf       *exactNumber   `json:"multipleOf,omitzero"`
	MinLength        *int           `json:"minLength,omitzero"`
	MaxLength        *int           `json:"maxLength,omitzero"`
	Pattern          string         `json:"pattern,omitzero"`
	Items            *items         `json:"items,omitzero"`
	MinItems         *int           `json:"minItems,omitzero"`
	MaxItems         *int           `json:"maxItems,omitzero"`
	UniqueItems      bool           `json:"uniqueItems,omitzero"`
	Default          any            `json:"default,omitzero"`
}

// items is the schema of the items of a list.
type items struct {
	Type  Type     `json:"type,omitzero"`
	Enum  []string `json:"enum,omitzero"`
	OneOf []titled `json:"oneOf,omitzero"`
	AnyOf []titled `json:"anyOf,omitzero"` // MCP's keyword for OneOf in a list
}

// titled is a choice with a title.
type titled struct {
	Const string `json:"const"`
	Title string `json:"title,omitzero"`
}

// ordered is a JSON object that keeps the order of its members.
type ordered[V any] struct {
	names  []string
	byName map[string]V
}

// IsZero makes the tag omitzero omit an object that was not in the document.
func (o ordered[V]) IsZero() bool { return o.byName == nil }

// UnmarshalJSONFrom implements jsonv2.UnmarshalerFrom.
func (o *ordered[V]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	start, err := d.ReadToken()
	if err != nil {
		return err
	}
	if start.Kind() != '{' {
		return &jsonv2.SemanticError{JSONPointer: d.StackPointer(), JSONKind: start.Kind()}
	}
	o.byName = map[string]V{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		var v V
		if err := jsonv2.UnmarshalDecode(d, &v); err != nil {
			return err
		}
		o.names, o.byName[key] = append(o.names, key), v
	}
	_, err = d.ReadToken()
	return err
}

// MarshalJSONTo implements jsonv2.MarshalerTo.
func (o ordered[V]) MarshalJSONTo(e *jsontext.Encoder) error {
	if err := e.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, name := range o.names {
		if err := e.WriteToken(jsontext.String(name)); err != nil {
			return err
		}
		if err := jsonv2.MarshalEncode(e, o.byName[name]); err != nil {
			return err
		}
	}
	return e.WriteToken(jsontext.EndObject)
}

// marshal encodes a value, with the same result each time.
func marshal(v any) (json.RawMessage, error) {
	data, err := jsonv2.Marshal(v, jsonv2.Deterministic(true))
	return data, err
}

// maxDecodeError is the size limit, in bytes, of text that an error of decode takes from the decoder.
const maxDecodeError = 300

// decode parses a document. It refuses duplicate members, unknown keywords and invalid Unicode.
func decode(data []byte) (document, error) {
	var d document
	err := jsonv2.Unmarshal(data, &d, jsonv2.RejectUnknownMembers(true), wholeNumbers)
	wrong, ok := errors.AsType[*jsonv2.SemanticError](err)
	switch {
	case err == nil:
		return d, nil
	case ok && errors.Is(wrong.Err, jsonv2.ErrUnknownName):
		return d, fmt.Errorf("%s: forms do not have this keyword", describePointer(wrong.JSONPointer))
	case ok:
		return d, fmt.Errorf("%s: the value has the wrong type or size", describePointer(wrong.JSONPointer))
	}
	message := strings.TrimPrefix(err.Error(), "jsontext: ")
	return d, fmt.Errorf("not valid JSON: %s", text.Printable(text.Truncate(message, maxDecodeError)))
}

// describePointer returns a pointer as text for an error. The empty pointer is the document itself.
func describePointer(p jsontext.Pointer) string {
	return text.Printable(text.Truncate(cmp.Or(string(p), "the document"), maxDecodeError))
}

// stringFormats are the permitted values of the keyword format.
var stringFormats = []string{"email", "uri", "date", "date-time"}

// faults lists why the document is not a form. It leaves to compile what only a condition can have, such as an unknown
// type.
func (d document) faults() []string {
	var c checker
	if d.Type != "object" {
		c.add(`"type" must be "object"`)
	}
	if n := len(d.Properties.names); n == 0 || n > MaxFields {
		c.add("it has %d fields; a form has from 1 to %d", n, MaxFields)
		return c.faults
	}
	c.texts("the form", d.Title, d.Description)
	if d.AdditionalProperties != nil && *d.AdditionalProperties {
		c.add(`"additionalProperties" must be false: a form has no other fields`)
	}
	for _, name := range d.Properties.names {
		c.field(name, d.Properties.byName[name])
	}
	c.fieldsExist(d, `"required"`, d.Required)
	for _, name := range sortedNames(d.DependentRequired) {
		c.fieldsExist(d, `"dependentRequired"`, append([]string{name}, d.DependentRequired[name]...))
	}
	conditions := d.AllOf
	if d.conditional != (conditional{}) {
		conditions = append([]conditional{d.conditional}, conditions...)
	}
	if len(conditions) > maxConditions {
		c.add("it has %d conditions; the limit is %d", len(conditions), maxConditions)
		conditions = nil
	}
	for _, cond := range conditions {
		if cond.If == nil && (cond.Then != nil || cond.Else != nil) {
			c.add(`"then" and "else" need "if"`)
		}
		c.condition(d, `"if"`, cond.If)
		c.condition(d, `"then"`, cond.Then)
		c.condition(d, `"else"`, cond.Else)
	}
	return c.faults
}

// checker checks a document, and collects its faults. In its methods, part says which part is checked.
type checker struct {
	faults   []string
	patterns patterns.Set
}

func (c *checker) add(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// texts refuses texts that are too long.
func (c *checker) texts(part, title, description string) {
	if len(title) > maxTitle {
		c.add("the title of %s has %d bytes; the limit is %d", part, len(title), maxTitle)
	}
	if len(description) > maxText {
		c.add("the description of %s has %d bytes; the limit is %d", part, len(description), maxText)
	}
}

// fieldsExist refuses names of fields that the document does not have.
func (c *checker) fieldsExist(d document, keyword string, names []string) {
	for _, n := range names {
		if _, ok := d.Properties.byName[n]; !ok {
			c.add("%s names %q, which is not a field", keyword, printable(n))
		}
	}
}

// condition checks the rules below "if", "then" or "else".
func (c *checker) condition(d document, keyword string, r *rules) {
	if r == nil {
		return
	}
	c.fieldsExist(d, keyword, r.Properties.names)
	c.fieldsExist(d, keyword, r.Required)
	for _, name := range r.Properties.names {
		p := r.Properties.byName[name]
		part := fmt.Sprintf("field %q of %s", printable(name), keyword)
		if len(p.Const) > 0 && !slices.Contains([]jsontext.Kind{'"', '0', 't', 'f'}, p.Const.Kind()) {
			c.add(`"const" in %s must be a string, a number, true or false`, part)
		}
		if p.Default != nil || p.Items != nil {
			c.add(`%s must not have "default" or "items"`, part)
		}
		c.limits(part, p)
	}
}

// field checks the schema of a field.
func (c *checker) field(name string, p property) {
	part := fmt.Sprintf("field %q", printable(name))
	if name == "" || len(name) > maxName || text.Printable(name) != name {
		c.add("the name of %s must have from 1 to %d bytes, without control characters", part, maxName)
	}
	c.texts(part, p.Title, p.Description)
	if p.Const != nil {
		c.add(`%s must not have "const": use "default" or "enum"`, part)
	}
	c.keywords(part, p)
	c.limits(part, p)
	switch p.Type {
	case String:
		if p.choiceKeywords() > 0 {
			c.choices(part, p)
		}
	case List:
		c.choices(part, p)
	case Number, Integer, Boolean:
	case "object":
		c.add("%s is an object: a form is flat", part)
	default:
		c.add("%s has the type %q; want string, number, integer, boolean or array", part, printable(string(p.Type)))
	}
}

// keywords refuses keywords that have no effect on values of the field's type.
func (c *checker) keywords(part string, p property) {
	for _, k := range []struct {
		used  bool
		name  string
		types []Type
	}{
		{p.Format != "", "format", []Type{String}},
		{len(p.Enum) > 0, "enum", []Type{String}},
		{len(p.EnumNames) > 0, "enumNames", []Type{String}},
		{len(p.OneOf) > 0, "oneOf", []Type{String}},
		{p.MinLength != nil || p.MaxLength != nil, "minLength or maxLength", []Type{String}},
		{p.Pattern != "", "pattern", []Type{String}},
		{p.Minimum != nil || p.Maximum != nil, "minimum or maximum", []Type{Number, Integer}},
		{
			p.ExclusiveMinimum != nil || p.ExclusiveMaximum != nil, "exclusiveMinimum or exclusiveMaximum",
			[]Type{Number, Integer},
		},
		{p.MultipleOf != nil, "multipleOf", []Type{Number, Integer}},
		{p.Items != nil, "items", []Type{List}},
		{p.MinItems != nil || p.MaxItems != nil || p.UniqueItems, "minItems, maxItems or uniqueItems", []Type{List}},
	} {
		if k.used && !slices.Contains(k.types, p.Type) {
			c.add("%s of type %s must not have %s", part, printable(string(p.Type)), k.name)
		}
	}
}

// limits refuses unknown formats, patterns that are not RE2 or too large, a multipleOf that is not positive, and a
// lower bound above the upper bound of the same kind.
func (c *checker) limits(part string, p property) {
	if p.Format != "" && !slices.Contains(stringFormats, p.Format) {
		c.add("%s has the format %q; want one of %s", part, printable(p.Format), strings.Join(stringFormats, ", "))
	}
	if p.Pattern != "" {
		c.pattern(part, p.Pattern)
	}
	if p.MultipleOf != nil && p.MultipleOf.value().Sign() <= 0 {
		c.add(`"multipleOf" of %s must be greater than 0`, part)
	}
	c.numberRange(part, p.Minimum, p.Maximum)
	c.numberRange(part, p.ExclusiveMinimum, p.ExclusiveMaximum)
	c.lengthRange(part, p.MinLength, p.MaxLength)
	c.lengthRange(part, p.MinItems, p.MaxItems)
}

// pattern refuses a pattern that is not RE2, or that would need much memory.
func (c *checker) pattern(part, pattern string) {
	const notRE2 = "the pattern of %s is not an RE2 regular expression of at most %d bytes"
	if len(pattern) > maxText {
		c.add(notRE2, part, maxText)
		return
	}
	if c.patterns.Size > patterns.MaxTotal {
		return // an earlier field has this fault already
	}
	_, err := c.patterns.Compile(pattern)
	if tooLarge, ok := errors.AsType[*patterns.TooLargeError](err); ok {
		c.add("the pattern of %s is too large: %s", part, tooLarge)
	} else if err != nil {
		c.add(notRE2, part, maxText)
	}
}

// numberRange refuses a minimum above the maximum.
func (c *checker) numberRange(part string, least, most *exactNumber) {
	if least != nil && most != nil && least.value().Cmp(most.value()) > 0 {
		c.add("%s has a minimum above its maximum", part)
	}
}

// lengthRange refuses a range of lengths that is empty.
func (c *checker) lengthRange(part string, least, most *int) {
	lower, upper := 0, math.MaxInt
	if least != nil {
		lower = *least
	}
	if most != nil {
		upper = *most
	}
	if lower < 0 || upper < lower {
		c.add("%s has a negative length or number of items, or a minimum above its maximum", part)
	}
}

// choices checks the choices of a field.
func (c *checker) choices(part string, p property) {
	if p.Items != nil && p.Items.Type != "" && p.Items.Type != String {
		c.add("the items of %s must be strings", part)
	}
	if p.choiceKeywords() != 1 {
		c.add(`%s must list its choices once: in "enum", or in "oneOf" with "const" and "title" (below "items" in a list)`,
			part)
		return
	}
	choices := p.choices()
	if n := len(choices); n == 0 || n > maxChoices {
		c.add("%s has %d choices; a field has from 1 to %d", part, n, maxChoices)
		return
	}
	if len(p.EnumNames) > 0 && len(p.EnumNames) != len(p.Enum) {
		c.add(`%s has %d names in "enumNames" for %d choices`, part, len(p.EnumNames), len(p.Enum))
	}
	seen := map[string]bool{}
	for _, choice := range choices {
		switch {
		case choice.Value == "" || seen[choice.Value]:
			c.add("%s has an empty choice, or the same one twice", part)
		case len(choice.Value) > maxTitle || len(choice.Title) > maxTitle:
			c.add("%s has a choice of more than %d bytes", part, maxTitle)
		}
		seen[choice.Value] = true
	}
}

// choiceKeywords returns how many keywords list choices.
func (p property) choiceKeywords() (n int) {
	used := []bool{p.Enum != nil, p.OneOf != nil}
	if p.Items != nil {
		used = append(used, p.Items.Enum != nil, p.Items.OneOf != nil, p.Items.AnyOf != nil)
	}
	for _, u := range used {
		if u {
			n++
		}
	}
	return n
}

// choices returns the choices, in the order of the document.
func (p property) choices() []Choice {
	var out []Choice
	values, options := p.Enum, p.OneOf
	if p.Items != nil {
		values, options = p.Items.Enum, append(slices.Clip(p.Items.OneOf), p.Items.AnyOf...)
	}
	for i, v := range values {
		choice := Choice{Value: v, Title: v}
		if i < len(p.EnumNames) && p.EnumNames[i] != "" {
			choice.Title = p.EnumNames[i]
		}
		out = append(out, choice)
	}
	for _, o := range options {
		title := o.Title
		if title == "" {
			title = o.Const
		}
		out = append(out, Choice{Value: o.Const, Title: title})
	}
	return out
}

// printable returns a name from the document in a form that is safe in an error.
func printable(s string) string {
	if !utf8.ValidString(s) {
		return "?"
	}
	return text.Printable(text.Truncate(s, maxName))
}

func (d document) field(name string) Field {
	p := d.Properties.byName[name]
	return Field{
		Name: name, Title: p.Title, Description: p.Description, Type: p.Type, Format: p.Format,
		Choices: p.choices(), Required: slices.Contains(d.Required, name), Default: p.Default, schema: p,
	}
}

// compile returns the validator of the values. It compiles a schema without texts, and with each list of choices as an
// enum, so that each violation is a violation of one keyword. The library compiles the patterns again, of which faults
// has checked the size.
func (d document) compile() (*jsonschema.Schema, error) {
	bare := func(o ordered[property]) ordered[property] {
		out := ordered[property]{names: o.names, byName: map[string]property{}}
		for name, p := range o.byName {
			out.byName[name] = p.bare()
		}
		return out
	}
	strip := func(c conditional) conditional {
		for _, r := range []**rules{&c.If, &c.Then, &c.Else} {
			if *r != nil {
				*r = &rules{Properties: bare((*r).Properties), Required: (*r).Required}
			}
		}
		return c
	}
	out := document{
		Type: d.Type, Properties: bare(d.Properties), Required: d.Required, DependentRequired: d.DependentRequired,
		conditional: strip(d.conditional),
	}
	for _, c := range d.AllOf {
		out.AllOf = append(out.AllOf, strip(c))
	}
	data, err := marshal(out)
	if err != nil {
		return nil, err
	}
	var doc any
	if err := jsonv2.Unmarshal(data, &doc, exactNumbers); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("form.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("form.json")
}

// bare returns the property without texts, and with its choices as an enum.
func (p property) bare() property {
	choices := p.choices()
	p.Title, p.Description, p.Default, p.EnumNames, p.OneOf = "", "", nil, nil, nil
	values := make([]string, len(choices))
	for i, c := range choices {
		values[i] = c.Value
	}
	switch {
	case len(values) == 0:
	case p.Type == List:
		p.Items = &items{Type: String, Enum: values}
	default:
		p.Enum = values
	}
	return p
}
