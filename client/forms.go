package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// FormRequest asks the fleet to fill in a form by rules: see docs/forms.md.
type FormRequest struct {
	Form     json.RawMessage `json:"form"`               // a flat JSON Schema object
	Document string          `json:"document,omitempty"` // the text that has the values
	Values   map[string]any  `json:"values,omitempty"`   // people's answers, which take precedence over the document
}

// FilledForm are the values that were found for a form. The form is complete if there are no problems.
type FilledForm struct {
	Values   map[string]any         `json:"values"`
	Sources  map[string]FieldSource `json:"sources"` // by field
	Problems []FieldProblem         `json:"problems"`
	Warnings []string               `json:"warnings,omitempty"`
}

// FieldSource says where the value of a field comes from.
type FieldSource struct {
	By    string `json:"by"`              // rules, model, default or person
	Line  int    `json:"line,omitempty"`  // line of the document, from 1
	Quote string `json:"quote,omitempty"` // the text of the document that has the value
}

// FieldProblem is a rule of a form that the values break. Field is empty if it concerns several fields.
type FieldProblem struct {
	Field   string `json:"field"`
	Message string `json:"message"`
	Missing bool   `json:"missing,omitempty"` // the field needs a value, and has none
}

// FillForm finds values for a form in a document, and checks them together with the given values. Ask for what the
// problems name, and call FillForm again with the answers. Nothing is stored. Over NATS, it fails with the
// code "http_only".
func (c *Client) FillForm(ctx context.Context, in FormRequest) (FilledForm, error) {
	return sendJSON[FilledForm](ctx, c, http.MethodPost, in, "forms", "fill")
}

// CheckForm returns what is wrong with values for a form. A field without a value has its default.
func (c *Client) CheckForm(ctx context.Context, form json.RawMessage, values map[string]any) ([]FieldProblem, error) {
	filled, err := c.FillForm(ctx, FormRequest{Form: form, Values: values})
	return filled.Problems, err
}
