package page

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/form"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

func getWorkflows(q *request) error {
	runs, err := q.c.WorkflowRuns(q.ctx, listLimit)
	if err != nil {
		return err
	}
	return q.show("workflows", "Workflows", runs)
}

// stepRow is a step of a run, or an item of a step.
type stepRow struct {
	schemas.StepRun
	Name string
	Took float64 // milliseconds; 0 before it has ended
	Item *int
	Form *form.Form // what the step asks; nil unless it waits for an answer
}

// getRun shows a run of a workflow, with the questions that wait for an answer.
func getRun(q *request) error {
	run, err := q.c.WorkflowRun(q.ctx, q.r.PathValue("run"))
	if err != nil {
		return err
	}
	data := struct {
		client.WorkflowRun
		Rows  []stepRow
		Ended bool
		Graph template.HTML
	}{WorkflowRun: run, Ended: run.Status.Ended()}
	if plan, err := workflow.Compile(run.Workflow); err == nil { // a newer version of the fleet may know other steps
		data.Graph = template.HTML(plan.SVG(&run)) //nolint:gosec // SVG escapes all texts of the definition
	}
	data.Rows = stepRows(run)
	return q.show("run", "Workflow "+run.Name, data)
}

// stepRows returns the steps of a run, each followed by its items.
func stepRows(run client.WorkflowRun) (rows []stepRow) {
	forms := questions(run.Workflow)
	for _, s := range run.Steps {
		rows = append(rows, stepRowOf(s, s.ID, nil, forms[s.ID]))
		for i, item := range s.Items {
			rows = append(rows, stepRowOf(item, s.ID+" "+strconv.Itoa(i), &i, forms[s.ID]))
		}
	}
	return rows
}

func stepRowOf(s schemas.StepRun, name string, item *int, question *form.Form) stepRow {
	row := stepRow{StepRun: s, Name: name, Item: item}
	if !s.StartedAt.IsZero() && !s.EndedAt.IsZero() {
		row.Took = float64(s.EndedAt.Sub(s.StartedAt).Microseconds()) / 1000
	}
	if s.Status == schemas.WorkflowWaiting && len(s.Items) == 0 {
		row.Form = question
	}
	return row
}

// questions returns the forms of a workflow's steps that ask.
func questions(definition json.RawMessage) map[string]*form.Form {
	type step struct {
		ID  string `json:"id"`
		Ask *struct {
			Form json.RawMessage `json:"form"`
		} `json:"ask"`
	}
	var d struct {
		Steps   []step `json:"steps"`
		Finally []step `json:"finally"`
	}
	if json.Unmarshal(definition, &d) != nil { // the fleet has checked it
		return nil
	}
	forms := map[string]*form.Form{}
	for _, s := range append(d.Steps, d.Finally...) {
		if s.Ask == nil {
			continue
		}
		forms[s.ID] = &form.Form{}
		if f, err := form.Parse(s.Ask.Form); err == nil {
			forms[s.ID] = &f
		}
	}
	return forms
}

// postRun answers a step of a run, cancels the run, or starts it again from a step.
func postRun(q *request) (next, done string, err error) {
	id := q.r.PathValue("run")
	next = path("workflows", id)
	switch q.r.PathValue("verb") {
	case "cancel":
		run, err := q.c.CancelWorkflow(q.ctx, id)
		done = "The run will be cancelled."
		if run.Status.Ended() {
			done = fmt.Sprintf("The run has ended: %s.", run.Status)
		}
		return next, done, err
	case "rerun":
		run, err := q.c.RerunWorkflow(q.ctx, id, client.WorkflowRerun{From: q.form.Get("step"), Key: q.form.Get("key")})
		return path("workflows", run.RunID), "Started again from " + q.form.Get("step") + ".", err
	case "answer":
		return next, "Answered.", answerStep(q, id)
	}
	return "", "", errNoPage
}

// answerStep sends the answer to a step's question. The fleet checks it, and names the fields that do not fit.
func answerStep(q *request, id string) error {
	run, err := q.c.WorkflowRun(q.ctx, id)
	if err != nil {
		return err
	}
	step := q.form.Get("step")
	f := questions(run.Workflow)[step]
	if f == nil {
		return &pageError{http.StatusNotFound, "There is no such question.", "Load the page again."}
	}
	values := map[string]any{}
	for _, field := range f.Fields {
		sent := q.form.Values["field."+field.Name]
		switch {
		case field.Type == form.Boolean:
			values[field.Name] = len(sent) > 0
		case field.Type == form.List && (len(sent) > 0 || field.Default != nil): // without a value, the default applies
			values[field.Name] = append([]string{}, sent...)
		case len(sent) == 0 || strings.TrimSpace(sent[0]) == "":
		default:
			values[field.Name] = sent[0]
			if value, ok := field.Read(sent[0]); ok {
				values[field.Name] = value
			} // otherwise the fleet says what is wrong with it
		}
	}
	answer := client.WorkflowAnswer{Step: step}
	if answer.Values, err = json.Marshal(values); err != nil {
		return err
	}
	if text := q.form.Get("item"); text != "" {
		item, err := strconv.Atoi(text)
		if err != nil {
			return &pageError{http.StatusBadRequest, "The form names no item.", "Load the page again."}
		}
		answer.Item = &item
	}
	_, err = q.c.AnswerWorkflow(q.ctx, id, answer)
	return err
}
