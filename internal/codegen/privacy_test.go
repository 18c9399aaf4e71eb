package codegen_test

import (
	"context"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/codegen"
)

// quoter is a model that remembers its prompt, and quotes a token in its program.
type quoter struct{ prompt string }

func (*quoter) Name() string { return "quoter" }

func (q *quoter) Complete(
	_ context.Context, messages []codegen.Message, _ int, _ func(string),
) (codegen.Completion, error) {
	for _, m := range messages {
		q.prompt += m.Text
	}
	return codegen.Completion{Text: "```python\nprint('[X]')\n```"}, nil
}

// No part of a prompt that comes from a tenant contains a private value. The program contains the value again.
func TestPrivacyOfPrompts(t *testing.T) {
	q := &quoter{}
	w := codegen.NewWriter(q, codegen.WriterOptions{})
	private := codegen.Privacy{
		Hide: func(_ context.Context, texts ...string) []string {
			for i, text := range texts {
				texts[i] = strings.ReplaceAll(text, "ada", "[X]")
			}
			return texts
		},
		Restore: func(program string) string { return strings.ReplaceAll(program, "[X]", "ada") },
	}
	r := codegen.Request{
		Task: "mail ada", Inputs: `{"who": "ada"}`, Files: []string{"ada.txt"},
		Skills: []codegen.Skill{{Module: "m", Signature: "run(who='ada')", Description: "mails ada"}},
		Tools:  []codegen.Tool{{Server: "s", Name: "ask", Doc: "Asks ada.", Signature: "ask(who: str = 'ada')"}},
	}
	f := codegen.Failure{Program: "print('ada')", Error: "no ada", Done: []string{"mail with ada"}}
	program, err := w.Repair(t.Context(), r, f, codegen.Call{Private: private})
	if err != nil || program.Code != "print('ada')\n" {
		t.Errorf("Repair = %q, %v, want the program with the value", program.Code, err)
	}
	if strings.Contains(q.prompt, "ada") || strings.Count(q.prompt, "[X]") != 10 {
		t.Errorf("prompt = %s, want no value and 10 tokens", q.prompt)
	}
	if r.Skills[0].Description != "mails ada" || r.Skills[0].Signature != "run(who='ada')" || r.Files[0] != "ada.txt" ||
		r.Tools[0].Doc != "Asks ada." || r.Tools[0].Signature != "ask(who: str = 'ada')" {
		t.Errorf("request = %v, want it unchanged", r)
	}
}
