package form

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// MaxDocument is the size limit of a document in bytes.
const MaxDocument = 256 << 10

// Where a value comes from.
const (
	ByRules   = "rules"
	ByModel   = "model"
	ByDefault = "default"
	ByPerson  = "person"
)

// Source says where a value comes from.
type Source struct {
	By    string `json:"by"`              // one of the constants above
	Line  int    `json:"line,omitempty"`  // of the document, from 1
	Quote string `json:"quote,omitempty"` // the text of the document that has the value
}

// Filled are the values that were found for a form.
type Filled struct {
	Values   map[string]any    `json:"values"`
	Sources  map[string]Source `json:"sources"`
	Problems []Problem         `json:"problems"` // what is missing or wrong; empty if the form is complete
	Warnings []string          `json:"warnings,omitempty"`
}

// Method says who finds the values.
type Method struct {
	NoRules bool
	Model   Model // nil asks no model
}

// Fill finds values for the form in a document: by rules, and then by a model for the fields that the rules do not
// fill. Fields without a value get their defaults. If the model fails, the result has a warning. The error says why the
// document cannot be read, or that ctx ended while the model was asked.
func Fill(ctx context.Context, f Form, document string, m Method) (Filled, error) {
	if len(document) > MaxDocument {
		return Filled{}, fmt.Errorf("the document has %d bytes; the limit is %d", len(document), MaxDocument)
	}
	if strings.ContainsRune(document, 0) {
		return Filled{}, errors.New("the document is not a text")
	}
	out := Filled{Values: map[string]any{}, Sources: map[string]Source{}}
	if !m.NoRules {
		f.byRules(ctx, document, &out)
	}
	if m.Model != nil && len(out.Values) < len(f.Fields) {
		if err := f.byModel(ctx, m.Model, document, &out); err != nil {
			if ctx.Err() != nil {
				return Filled{}, context.Cause(ctx)
			}
			out.Warnings = append(out.Warnings, "the model found no values: "+err.Error())
		}
	}
	for name, v := range f.Defaults() {
		if _, found := out.Values[name]; !found {
			out.Values[name], out.Sources[name] = v, Source{By: ByDefault}
		}
	}
	out.Problems = f.problemsOf(out.Values)
	return out, nil
}

// problemsOf is like Check, but never returns nil, which JSON would show as null.
func (f Form) problemsOf(values map[string]any) []Problem {
	if problems := f.Check(values); problems != nil {
		return problems
	}
	return []Problem{}
}

// Put adds a person's value. It replaces an earlier one.
func (out *Filled) Put(f Form, name string, v any) { out.PutAll(f, map[string]any{name: v}) }

// PutAll adds a person's values. They replace earlier ones.
func (out *Filled) PutAll(f Form, values map[string]any) {
	for name, v := range values {
		out.Values[name], out.Sources[name] = v, Source{By: ByPerson}
	}
	out.Problems = f.problemsOf(out.Values)
}

// acceptText accepts the value that a text stands for, if it has one.
func (out *Filled) acceptText(f Form, field Field, s string, at line, by string) {
	if v, ok := field.Read(s); ok {
		out.accept(f, field, v, at, by)
	}
}

// maxQuote is the size limit of a quote in bytes.
const maxQuote = 300

// accept adds a value, unless it breaks a rule of its own field.
func (out *Filled) accept(f Form, field Field, v any, at line, by string) {
	for _, p := range f.Check(map[string]any{field.Name: v}) {
		if p.Field == field.Name {
			return
		}
	}
	out.Values[field.Name] = v
	out.Sources[field.Name] = Source{By: by, Line: at.number, Quote: text.Truncate(at.text, maxQuote)}
}
