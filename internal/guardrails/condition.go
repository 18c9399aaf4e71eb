package guardrails

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/expression"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/text"
)

// Values of Condition.On.
const (
	OnInputs    = "inputs"    // the task's inputs, before the program runs
	OnArguments = "arguments" // the arguments of a tool call
	OnResult    = "result"    // the program's result, before anything of the run is committed
)

// Condition is an operator's rule about the data of a task, in CEL. It may use the variables inputs and tenant, with
// OnArguments also server, tool and args, and with OnResult also result and output.
type Condition struct {
	Name    string
	On      string   // OnInputs, OnArguments or OnResult
	Tools   []string // "server/tool" or "server/*", for OnArguments; empty means all tools
	Require string   // what must be true
	Message string   // the finding's hint if Require is not true; the default quotes Require
}

// Data contains the values of the conditions' variables. A nil value means null.
type Data struct {
	Tenant       string
	Inputs       json.RawMessage
	Server, Tool string
	Names        []string // the tool's names in the form server/tool
	Args         json.RawMessage
	Result       json.RawMessage
	Output       string
}

// condition is a compiled Condition.
type condition struct {
	Condition
	holds *expression.Condition
}

// variables has the variables that a condition may use, by Condition.On.
var variables = map[string][]string{
	OnInputs:    {"inputs", "tenant"},
	OnArguments: {"inputs", "tenant", "server", "tool", "args"},
	OnResult:    {"inputs", "tenant", "result", "output"},
}

const maxRuleName = 100

// compile checks a condition and compiles its expression.
func compile(c Condition) (condition, error) {
	vars, ok := variables[c.On]
	if !ok {
		return condition{}, fmt.Errorf("rule %q: on is %q; want %s, %s or %s",
			c.Name, c.On, OnInputs, OnArguments, OnResult)
	}
	switch {
	case c.Name == "" || len(c.Name) > maxRuleName || text.Printable(c.Name) != c.Name:
		return condition{}, fmt.Errorf("rule %q: name must be 1 to %d bytes of visible text", c.Name, maxRuleName)
	case len(c.Tools) > 0 && c.On != OnArguments:
		return condition{}, fmt.Errorf("rule %q: tools has no effect with on: %s", c.Name, c.On)
	}
	holds, err := expression.Compile(c.Require, vars...)
	if err != nil {
		return condition{}, fmt.Errorf("rule %q: %w", c.Name, err)
	}
	return condition{c, holds}, nil
}

// Data returns a finding for each condition on this kind of data that does not hold or cannot be evaluated. It returns
// nil if the level is Off.
func (r *Rules) Data(ctx context.Context, on string, d Data) []Finding {
	if r.Level == Off {
		return nil
	}
	apply := slices.DeleteFunc(slices.Clone(r.conditions), func(c condition) bool {
		return c.On != on || on == OnArguments && !c.appliesTo(d)
	})
	if len(apply) == 0 {
		return nil
	}
	values, invalid := d.values()
	var found []Finding
	for _, c := range apply {
		holds, err := c.holds.Holds(ctx, values)
		if err = errors.Join(invalid, err); holds && err == nil {
			continue
		}
		f := Finding{Rule: c.Name, Message: "breaks the rule " + c.Name, Hint: c.Message}
		if f.Hint == "" {
			f.Hint = c.On + " must satisfy " + c.Require
		}
		if err != nil {
			f.Hint += " (" + err.Error() + ")"
		}
		found = append(found, f)
	}
	return found
}

// Has reports whether any condition is on this kind of data.
func (r *Rules) Has(on string) bool {
	return slices.ContainsFunc(r.conditions, func(c condition) bool { return c.On == on })
}

// appliesTo reports whether the condition is about the tool of a call.
func (c condition) appliesTo(d Data) bool {
	return len(c.Tools) == 0 ||
		slices.ContainsFunc(c.Tools, func(pattern string) bool { return names.MatchTool(pattern, d.Names) })
}

// values returns the values of all variables.
func (d Data) values() (map[string]any, error) {
	values := map[string]any{"tenant": d.Tenant, "server": d.Server, "tool": d.Tool, "output": d.Output}
	var errs []error
	for name, raw := range map[string]json.RawMessage{"inputs": d.Inputs, "args": d.Args, "result": d.Result} {
		v, err := expression.Decode(raw)
		values[name], errs = v, append(errs, err)
	}
	return values, errors.Join(errs...)
}
