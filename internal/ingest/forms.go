package ingest

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/form"
)

func (s *Server) formRoutes() []route {
	return []route{
		row("POST /v1/forms/fill", ScopeRead, s.postFillForm, "fillForm", "Fill in a form from a document").
			note("By rules: see docs/forms.md. `values` are people's answers, which take precedence over the "+
				"document. Ask for what `problems` lists, and repeat the request with the answers until it is empty. "+
				"Nothing is stored.").
			body("application/json", "FormRequest").
			returns(200, "FilledForm"),
	}
}

// formRequest is the body of POST /v1/forms/fill.
type formRequest struct {
	Form     json.RawMessage `json:"form"`
	Document string          `json:"document"`
	Values   form.Values     `json:"values"`
}

func (s *Server) postFillForm(w http.ResponseWriter, r *http.Request) error {
	in, err := readJSON[formRequest](s, w, r)
	if err != nil {
		return err
	}
	f, err := form.Parse(in.Form)
	if err != nil {
		return badFormRequest("/form", err)
	}
	filled, err := form.Fill(r.Context(), f, in.Document, form.Method{})
	if err != nil {
		return badFormRequest("/document", err)
	}
	if len(in.Values) > form.MaxFields {
		return badFormRequest("/values", errors.New("there are more values than a form has fields"))
	}
	filled.PutAll(f, in.Values)
	return respond(w, filled, nil)
}

func badFormRequest(path string, err error) error {
	e := apierror.New(errcode.BadData, "%v", err)
	e.Path, e.Hint = path, `{"form": {"type": "object", "properties": {…}}, "document": "…", "values": {…}}`
	return e
}
