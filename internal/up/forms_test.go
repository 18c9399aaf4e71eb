package up_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/internal/up/uptest"
)

// TestForms fills in and checks a form with the Go client.
func TestForms(t *testing.T) {
	_, c := uptest.Start(t, up.Options{Config: uptest.Config(t)})
	form := json.RawMessage(`{"type": "object", "required": ["name", "n"],
		"properties": {"name": {"type": "string"}, "n": {"type": "integer", "maximum": 9}}}`)
	missing := client.FieldProblem{Field: "n", Message: `"n" is missing`, Missing: true}
	got, err := c.FillForm(t.Context(), client.FormRequest{Form: form, Document: "Dear all\nName: Ada"})
	want := client.FilledForm{
		Values:   map[string]any{"name": "Ada"},
		Sources:  map[string]client.FieldSource{"name": {By: "rules", Line: 2, Quote: "Ada"}},
		Problems: []client.FieldProblem{missing},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("FillForm = %v (-want +got):\n%s", err, d)
	}
	problems, err := c.CheckForm(t.Context(), form, map[string]any{"name": "Ada", "n": 10})
	if err != nil || len(problems) != 1 || problems[0].Field != "n" || problems[0].Missing {
		t.Errorf("CheckForm = %+v, %v, want a problem of n", problems, err)
	}
	problems, err = c.CheckForm(t.Context(), form, map[string]any{"name": "Ada", "n": 9})
	if err != nil || len(problems) > 0 {
		t.Errorf("CheckForm of valid values = %+v, %v, want none", problems, err)
	}
	_, err = c.CheckForm(t.Context(), json.RawMessage(`{"type": "object"}`), nil)
	if refused, ok := errors.AsType[*client.APIError](err); !ok || refused.Path != "/form" {
		t.Errorf("CheckForm without fields = %v, want an error at /form", err)
	}
}
