package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

func compile(t *testing.T, definition string) *workflow.Plan {
	t.Helper()
	data, err := workflow.ToJSON([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	p, err := workflow.Compile(data)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestBadDefinitions checks that a definition is refused at the place where it is wrong.
func TestBadDefinitions(t *testing.T) {
	var many strings.Builder
	many.WriteString("name: x\nsteps:\n")
	for i := range 201 {
		fmt.Fprintf(&many, "  - {id: s%d, code: 'result = 1'}\n", i)
	}
	nested := "{name: x, steps: [{id: a, code: '1'}]}"
	for range 4 {
		nested = "{name: x, steps: [{id: a, workflow: " + nested + "}]}"
	}
	for _, c := range []struct{ name, definition, path, message string }{
		{
			"many expressions", "{name: x, steps: [{id: a, code: '1', with: [" +
				strings.Repeat("'${1}',", 2001) + "]}]}",
			"/steps/0/with/2000", "more than 2000 expressions",
		},
		{
			"long expressions", "{name: x, steps: [{id: a, code: '1', with: [" +
				strings.Repeat("'${size(\""+strings.Repeat("x", 4000)+"\")}',", 17) + "]}]}",
			"/steps/0/with/16", "more than 65536 bytes of them",
		},
		{
			"deep", "{name: x, steps: [{id: a, code: '1', with: " +
				strings.Repeat("[", 65) + strings.Repeat("]", 65) + "}]}",
			"/steps/0/with", "nested more than 64 deep",
		},
		{"no steps", "name: x\nsteps: []", "/steps", "minItems: got 0, want 1"},
		{"no kind", "{name: x, steps: [{id: a}]}", "/steps/0", "it has none"},
		{"two kinds", "{name: x, steps: [{id: a, code: '1', task: b}]}", "/steps/0", "it has code and task"},
		{"unknown field", "{name: x, steps: [{id: a, code: '1', nedes: []}]}", "/steps/0", "nedes"},
		{"id", "{name: x, steps: [{id: 'a b', code: '1'}]}", "/steps/0/id", "want 1 to 40 of a-z"},
		{
			"twice", "{name: x, steps: [{id: a, code: '1'}, {id: a, code: '1'}]}",
			"/steps/1/id", "another step has the id a",
		},
		{
			"cycle", "{name: x, steps: [{id: a, code: '1', needs: [c]}, {id: b, code: '1', needs: [a]}, " +
				"{id: c, code: '1', needs: [b]}]}",
			"/steps/0/needs", "in a circle: a → c → b → a",
		},
		{
			"itself", "{name: x, steps: [{id: a, code: '1', needs: [a]}]}",
			"/steps/0/needs", "in a circle: a → a",
		},
		{
			"unknown need", "{name: x, steps: [{id: fetch, code: '1'}, {id: b, code: '1', needs: [fecth]}]}",
			"/steps/1/needs/0", "there is no step fecth; did you mean fetch?",
		},
		{
			"unknown step", "{name: x, steps: [{id: a, code: '1', with: {v: '${ steps.b.result }'}}]}",
			"/steps/0/with/v", "there is no step b",
		},
		{
			"not before", "{name: x, steps: [{id: a, code: '1'}, {id: b, needs: [], " +
				"code: '1', with: '${ steps.a.result }'}]}",
			"/steps/1/with", "step a may not have ended before this step: add it to needs",
		},
		{
			"itself in when", "{name: x, steps: [{id: a, code: '1', when: 'steps.a.result'}]}",
			"/steps/0/when", "add it to needs",
		},
		{
			"unknown input", "{name: x, steps: [{id: a, code: '1', when: 'inputs.y == 1'}]}",
			"/steps/0/when", "no input y",
		},
		{
			"member", "{name: x, steps: [{id: a, code: '1'}, {id: b, code: '1', when: 'steps.a.resutl == 1'}]}",
			"/steps/1/when", "a step has no resutl",
		},
		{
			"all steps", "{name: x, steps: [{id: a, code: '1', when: 'size(steps) == 1'}]}",
			"/steps/0/when", "name the step",
		},
		{
			"types", "{name: x, steps: [{id: a, code: '1', when: \"1 + 'a' == 2\"}]}",
			"/steps/0/when", "no matching overload",
		},
		{
			"not a condition", "{name: x, steps: [{id: a, code: '1', when: '1 + 1'}]}",
			"/steps/0/when", "not true or false",
		},
		{
			"a long expression", "{name: x, steps: [{id: a, code: '1', when: '[" + strings.Repeat("1,", 500) + "1]'}]}",
			"/steps/0/when", `the expression "[` + strings.Repeat("1,", 98) + `…" is not true or false`,
		},
		{
			"a long filter",
			"{name: x, steps: [{id: a, wait: {event: {type: t, filter: '[" + strings.Repeat("1,", 500) + "1]'}}}]}",
			"/steps/0/wait/event/filter", `the expression "[` + strings.Repeat("1,", 98) + `…" is not true or false`,
		},
		{
			"unknown variable", "{name: x, steps: [{id: a, code: '1', when: 'item == 1'}]}",
			"/steps/0/when", "undeclared reference to 'item'",
		},
		{"open", "{name: x, steps: [{id: a, code: '1', with: '${ 1'}]}", "/steps/0/with", "a ${ has no }"},
		{
			"loop without a bound", "{name: x, inputs: {l: {}}, steps: [{id: a, code: '1', " +
				"for_each: {in: inputs.l}}]}",
			"/steps/0/for_each/max", "needs a limit of its items",
		},
		{
			"10,000 iterations", "{name: x, inputs: {l: {}}, steps: [{id: a, code: '1', " +
				"for_each: {in: inputs.l, max: 10000}}]}",
			"/steps/0/for_each/max", "maximum: got 10000, want 1000",
		},
		{"201 steps", many.String(), "/steps", "maxItems: got 201, want 200"},
		{
			"nested", nested, "/steps/0/workflow/steps/0/workflow/steps/0/workflow/steps/0/workflow",
			"nested more than 4 deep",
		},
		{
			"timeout", "{name: x, timeout: 1000h, steps: [{id: a, code: '1'}]}",
			"/timeout", "longer than 30 days",
		},
		{"duration", "{name: x, steps: [{id: a, wait: {for: soon}}]}", "/steps/0/wait/for", "want a time with its"},
		{"time", "{name: x, steps: [{id: a, wait: {until: tomorrow}}]}", "/steps/0/wait/until", "not a time"},
		{
			"retry of a wait", "{name: x, steps: [{id: a, wait: {for: 1s}, retry: {attempts: 2}}]}",
			"/steps/0/retry", "tried again",
		},
		{
			"own events", "{name: x, steps: [{id: a, emit: {type: codefleet.x}}]}",
			"/steps/0/emit/type", "the fleet's own",
		},
		{
			"default", "{name: x, inputs: {n: {type: integer, default: a}}, steps: [{id: a, code: '1'}]}",
			"/inputs/n/default", "type string, not integer",
		},
		{
			"finally", "{name: x, steps: [{id: a, code: '1', needs: [z]}], finally: [{id: z, code: '1'}]}",
			"/steps/0/needs/0", "those under finally come last",
		},
		{"form", "{name: x, steps: [{id: a, ask: {form: {}}}]}", "/steps/0/ask/form", "not a form"},
		{
			"options of a wait", "{name: x, steps: [{id: a, wait: {for: 1s}, options: {pool: x}}]}",
			"/steps/0/options", "only steps that are tasks",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := workflow.ToJSON([]byte(c.definition))
			if err != nil {
				t.Fatal(err)
			}
			_, err = workflow.Compile(data)
			invalid, ok := errors.AsType[*schemas.InvalidError](err)
			if !ok {
				t.Fatalf("Compile = %v, want an *InvalidError", err)
			}
			for _, at := range invalid.At {
				if at.Path == c.path && strings.Contains(at.Message, c.message) {
					return
				}
			}
			t.Errorf("Compile = %v, want %q at %s", err, c.message, c.path)
		})
	}
}

func TestInputs(t *testing.T) {
	p := compile(t, `{name: x, steps: [{id: a, code: '1'}], inputs: {
		n: {type: integer, default: 3}, to: {type: string, enum: [ada, bob]}, ratio: {type: number, default: 1}}}`)
	for _, c := range []struct{ given, want, err string }{
		{`{"to":"ada"}`, `{"n":3,"ratio":1,"to":"ada"}`, ""},
		{`{"to":"bob","n":4,"ratio":2}`, `{"n":4,"ratio":2,"to":"bob"}`, ""},
		{`{"to":"ada","n":4.0}`, `{"n":4.0,"ratio":1,"to":"ada"}`, ""},
		{``, "", "input to: it is required"},
		{`{"to":"eve"}`, "", "input to: it is not one of the values that the workflow allows"},
		{`{"to":"ada","n":1.5}`, "", "input n: it is of type number, not integer"},
		{`{"to":"ada","m":1}`, "", "input m: the workflow has no such input"},
		{
			`{"to":"ada","` + strings.Repeat("m", 1000) + `":1}`, "",
			"input " + strings.Repeat("m", 97) + "…: the workflow has no such input",
		},
		{`[1]`, "", "the inputs are not a JSON object"},
	} {
		got, err := p.Inputs(json.RawMessage(c.given))
		if text := fmt.Sprint(err); c.err != "" && text != c.err || c.err == "" && err != nil {
			t.Errorf("Inputs(%s) = %v, want %q", c.given, err, c.err)
		}
		if string(got) != c.want {
			t.Errorf("Inputs(%s) = %s, want %s", c.given, got, c.want)
		}
	}
}

func TestGraph(t *testing.T) {
	p := compile(t, `
name: graph
steps:
  - {id: fetch, code: "result = 1"}
  - {id: left, needs: [fetch], task: sort the numbers}
  - {id: right, needs: [fetch], wait: {for: 1s}, when: steps.fetch.result > 0}
  - {id: join, needs: [left, right], emit: {type: done}}
finally:
  - {id: clean, skill: tidy}
`)
	want := `fetch  code
  left   task  ← fetch
  right  wait 1s  ← fetch  when steps.fetch.result > 0
    join   emit done  ← left, right
      clean  skill tidy, finally
`
	if d := cmp.Diff(want, p.Text(nil)); d != "" {
		t.Errorf("Text (-want +got):\n%s", d)
	}
	svg := p.SVG(nil)
	if strings.Count(svg, "<rect") != 5 || strings.Count(svg, "<path") != 5 || !strings.Contains(svg, ">wait 1s<") {
		t.Errorf("SVG = %s, want 5 steps and 5 lines", svg)
	}
}

// TestGraphOfManyPaths draws a workflow with two ways from each layer to the next. If each way were followed, it would
// take years. Below finally, a step may need a later one.
func TestGraphOfManyPaths(t *testing.T) {
	const count = 60
	steps := []string{"{id: a0, code: '1'}", "{id: b0, needs: [], code: '1'}"}
	want := []string{"a0   code", "b0   code"}
	for i := 1; i < count; i++ {
		for _, name := range []string{"a", "b"} {
			steps = append(steps, fmt.Sprintf("{id: %s%d, needs: [a%d, b%d], code: '1'}", name, i, i-1, i-1))
			want = append(want, fmt.Sprintf("%s%-3s  code  ← a%d, b%d",
				strings.Repeat("  ", i), fmt.Sprint(name, i), i-1, i-1))
		}
	}
	indent := strings.Repeat("  ", count)
	want = append(want, indent+"z    code, finally", indent+"  y    code, finally  ← z", "")
	p := compile(t, "{name: x, steps: ["+strings.Join(steps, ", ")+
		"], finally: [{id: y, needs: [z], code: '1'}, {id: z, needs: [], code: '1'}]}")
	if d := cmp.Diff(want, strings.Split(p.Text(nil), "\n")); d != "" {
		t.Errorf("Text (-want +got):\n%s", d)
	}
	// Each step from the second layer on has two lines, y one, and z two dashed ones.
	if got, want := strings.Count(p.SVG(nil), "<path"), 4*(count-1)+3; got != want {
		t.Errorf("SVG has %d lines, want %d", got, want)
	}
}

// TestExamples checks that the example is valid, and the one in the documentation.
func TestExamples(t *testing.T) {
	content, err := os.ReadFile("../../examples/simple_workflow.yaml")
	if err != nil {
		t.Fatal(err)
	}
	compile(t, string(content))
	page, err := os.ReadFile("../../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```yaml\n")
	documented, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("docs/workflows.md has no example")
	}
	compile(t, documented)
}
