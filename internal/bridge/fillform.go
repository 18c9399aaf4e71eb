package bridge

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/form"
)

// This file fills in forms by rules, and asks the client's user for what is missing. It needs no fleet.

type fillFormIn struct {
	Form     json.RawMessage `json:"form" jsonschema:"a flat JSON Schema object with properties"`
	Document string          `json:"document,omitempty" jsonschema:"the text that has the values"`
	Values   form.Values     `json:"values,omitempty" jsonschema:"values that are known"`
}

type fillFormOut struct {
	Values   map[string]any         `json:"values"`
	Sources  map[string]form.Source `json:"sources" jsonschema:"where each value comes from"`
	Problems []form.Problem         `json:"problems" jsonschema:"what is missing or wrong; empty if the form is complete"`
}

func (ts *toolSet) addForms() {
	addTool(ts, tool{
		name: "fill_form", title: "Fill in a form", scope: scopeRead, hints: readsOnly, out: schemaOf[fillFormOut](),
		text: "Find the values of a form in a document by rules, check them, and ask the user for what is missing.",
	}, func(ctx context.Context, c *call, in fillFormIn) (*result, error) { return c.fillForm(ctx, in) })
}

// maxFormRounds bounds how often a call asks the user.
const maxFormRounds = 3

// formState is the requestState of a call that asks: what the user has supplied, and how often the call has asked. It
// comes back from the client, and is checked like any other value.
type formState struct {
	Round  int         `json:"round"`
	Values form.Values `json:"values"`
}

func (c *call) fillForm(ctx context.Context, in fillFormIn) (*result, error) {
	f, err := form.Parse(in.Form)
	if err != nil {
		return nil, badArgument("%v", err)
	}
	filled, err := form.Fill(ctx, f, in.Document, form.Method{})
	if err != nil {
		return nil, badArgument("%v", err)
	}
	filled.PutAll(f, in.Values)
	state := formState{Values: form.Values{}}
	if s := c.req.Params.RequestState; s != "" {
		if len(s) > form.MaxValues || json.Unmarshal([]byte(s), &state) != nil {
			return nil, badArgument("requestState does not belong to this call")
		}
		r, _ := c.req.Params.InputResponses[formQuestion].(*mcp.ElicitResult)
		if !state.add(r) {
			state.Round = maxFormRounds
		}
		filled.PutAll(f, state.Values)
	}
	for ; canElicit(c.req) && state.Round < maxFormRounds; state.Round++ {
		question := questionAbout(f, filled.Problems)
		if question == nil {
			break
		}
		if c.req.ProtocolVersion() >= modern {
			state.Round++
			data, err := json.Marshal(state)
			return &result{questions: mcp.InputRequestMap{formQuestion: question}, requestState: string(data)}, err
		}
		r, err := c.askForm(ctx, question)
		if err != nil {
			return nil, err
		}
		if !state.add(r) {
			break
		}
		filled.PutAll(f, state.Values)
	}
	out := fillFormOut{filled.Values, filled.Sources, filled.Problems}
	if jsonSize(out) > c.b.o.MaxOutput {
		return nil, badArgument("the values have more than %d bytes: fill in a form with fewer fields", c.b.o.MaxOutput)
	}
	return &result{out: out}, nil
}

// formQuestion is the key of the question about a form.
const formQuestion = "form"

// add stores what the user supplied. It returns false if the user declined or did not answer.
func (s *formState) add(r *mcp.ElicitResult) bool {
	if r == nil || r.Action != "accept" {
		return false
	}
	if s.Values == nil {
		s.Values = form.Values{}
	}
	maps.Copy(s.Values, r.Content)
	return true
}

// askForm asks the user, until MaxWait has passed since the call began. It returns nil if the user does not answer.
func (c *call) askForm(ctx context.Context, question *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	asking, stop := context.WithDeadline(ctx, c.begun.Add(c.b.o.MaxWait))
	defer stop()
	defer context.AfterFunc(c.b.stopping, stop)()
	r, err := c.req.Session.Elicit(asking, question)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		c.b.o.Log.DebugContext(ctx, "elicitation failed", "error", err)
		return nil, nil //nolint:nilnil // no answer
	}
	return r, nil
}

// questionAbout returns the form that asks for the fields with problems, or nil if no field has one.
func questionAbout(f form.Form, problems []form.Problem) *mcp.ElicitParams {
	message := []string{f.Title}
	var names []string
	for _, p := range problems {
		if _, ok := f.Field(p.Field); ok {
			names = append(names, p.Field)
			message = append(message, p.Message)
		}
	}
	if names == nil {
		return nil
	}
	return &mcp.ElicitParams{
		Mode: "form", Message: strings.Join(message, "\n"), RequestedSchema: f.Elicitation(names...),
	}
}
