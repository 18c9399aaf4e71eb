package pipeline

import (
	"testing"

	"github.com/codefleet/codefleet/internal/guardrails"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// A program that makes many calls against a rule does not make its result long.
func TestFindingsOfCallsAreBounded(t *testing.T) {
	rules, err := guardrails.New(guardrails.Options{Level: guardrails.Advise, Conditions: []guardrails.Condition{
		{Name: "never", On: guardrails.OnArguments, Require: "false"},
	}}, guardrails.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := &guard{rules: rules}
	for range guardrails.MaxFindings + 10 {
		g.reviewCall(t.Context(), broker.Call{Server: "s", Tool: "t"}, nil)
	}
	if n := len(g.findings()); n != guardrails.MaxFindings {
		t.Errorf("%d findings, want %d", n, guardrails.MaxFindings)
	}
}
