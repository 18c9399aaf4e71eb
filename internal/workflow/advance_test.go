package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

// world runs a workflow without a fleet: what a step's task returns is computed by do.
type world struct {
	t      *testing.T
	plan   *workflow.Plan
	run    schemas.WorkflowRun
	values map[string]json.RawMessage
	now    time.Time
	begun  []string // effects in their order, as STEP, STEP[ITEM] or STEP#ATTEMPT
	seen   map[workflow.Place]bool

	unchecked bool // skips the checks of Advance's contract, which take long for large records

	// do returns what a task's step returns, as JSON, or an error that begins with its code.
	do func(e workflow.Effect) (string, error)
}

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func start(t *testing.T, definition, inputs string) *world {
	t.Helper()
	p := compile(t, definition)
	in, err := p.Inputs(json.RawMessage(inputs))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, plan: p, now: began, values: map[string]json.RawMessage{workflow.InputsKey: in},
		seen: map[workflow.Place]bool{},
		do:   func(e workflow.Effect) (string, error) { return string(inputOf(e)), nil },
	}
	w.run = p.New(schemas.WorkflowRun{RunID: "r", Workspace: "main"}, w.now)
	w.advance(workflow.Event{})
	return w
}

// inputOf returns what an effect passes on.
func inputOf(e workflow.Effect) json.RawMessage {
	switch {
	case e.Task != nil && e.Task.Description != "":
		return json.RawMessage(fmt.Sprintf("%q", e.Task.Description))
	case e.Task != nil:
		return e.Task.Inputs
	case e.Workflow != nil:
		return e.Workflow.Inputs
	}
	return e.Event.Data
}

func (w *world) load(key string) (json.RawMessage, error) {
	v, ok := w.values[key]
	if !ok {
		return nil, errors.New("no value " + key)
	}
	return v, nil
}

func (w *world) advance(ev workflow.Event) {
	w.t.Helper()
	if err := w.try(ev); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) try(ev workflow.Event) error {
	before := w.encode(w.run)
	c, err := w.plan.Advance(w.t.Context(), w.run, ev, w.now, w.load)
	if err != nil {
		return err
	}
	if after := w.encode(w.run); after != before {
		w.t.Fatalf("Advance changed its argument\nfrom %s\nto   %s", before, after)
	}
	if after := w.encode(c.Run); !w.unchecked && c.Changed != (after != before) {
		w.t.Fatalf("Advance reports changed %v\nfrom %s\nto   %s", c.Changed, before, after)
	}
	w.run = c.Run
	maps.Copy(w.values, c.Values)
	return nil
}

func (w *world) encode(run schemas.WorkflowRun) string {
	if w.unchecked {
		return ""
	}
	data, err := json.Marshal(run)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

// next returns the effects that were not returned before.
func (w *world) next() (list []workflow.Effect) {
	w.t.Helper()
	effects, err := w.plan.Effects(w.t.Context(), w.run, func(p workflow.Place) bool { return w.seen[p] }, w.load)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range effects {
		if w.seen[e.Place] { // it is cancelled
			continue
		}
		w.seen[e.Place] = true
		name := e.Place.Step
		if e.Place.Item >= 0 {
			name += fmt.Sprintf("[%d]", e.Place.Item)
		}
		if e.Place.Attempt > 1 {
			name += fmt.Sprintf("#%d", e.Place.Attempt)
		}
		w.begun = append(w.begun, name)
		list = append(list, e)
	}
	return list
}

func (w *world) end(e workflow.Effect) {
	w.t.Helper()
	result, err := w.do(e)
	ended := workflow.Ended{Place: e.Place, Status: schemas.WorkflowSucceeded, Result: json.RawMessage(result)}
	if err != nil {
		code, message, _ := strings.Cut(err.Error(), ": ")
		ended.Status, ended.Result = schemas.WorkflowFailed, nil
		ended.Error = &schemas.WorkflowError{Code: code, Message: message}
	}
	w.advance(workflow.Event{Ended: &ended})
}

// play ends all that runs, and lets time pass until the run ends or waits for an event or an answer.
func (w *world) play() {
	w.t.Helper()
	for range 1000 {
		list := w.next()
		for _, e := range list {
			w.end(e)
		}
		if w.run.Status.Ended() || len(list) > 0 {
			if w.run.Status.Ended() {
				return
			}
			continue
		}
		due := workflow.NextAlarm(w.run)
		if !due.Before(w.run.Deadline) {
			return
		}
		w.now = due
		w.advance(workflow.Event{})
	}
	w.t.Fatal("the run did not end")
}

// states returns the steps' statuses by letter: s(ucceeded), f(ailed), - (skipped), c(ancelled), w(aiting), r(unning),
// p(ending).
func (w *world) states() string {
	var out []string
	for _, s := range w.run.Steps {
		letter := string(s.Status[0])
		if s.Status == schemas.WorkflowSkipped {
			letter = "-"
		}
		out = append(out, s.ID+":"+letter)
	}
	return strings.Join(out, " ")
}

// TestControlFlow has the control-flow cases of the conformance features of the Open Workflow Specification
// (do, switch, for, fork, try, raise, wait, emit, data flow, sub-workflow) that have a meaning here.
func TestControlFlow(t *testing.T) {
	for _, c := range []struct {
		name, definition, inputs string
		do                       func(e workflow.Effect) (string, error)
		begun                    string
		states                   string
		status                   schemas.WorkflowStatus
		outputs, failure         string
	}{
		{
			name: "do: one after the other", begun: "a b c", states: "a:s b:s c:s", status: "succeeded", outputs: "{}",
			definition: "{name: x, steps: [{id: a, code: '1'}, {id: b, code: '1'}, {id: c, code: '1'}]}",
		},
		{
			name: "data flow: inputs, results and outputs", inputs: `{"n":20}`, begun: "double add", status: "succeeded",
			definition: `{name: x, inputs: {n: {type: integer}}, steps: [
				{id: double, code: '1', with: {v: "${ inputs.n * 2 }",
				 w: ["${ inputs.n }", "n is ${ inputs.n }, $${ too"]}},
				{id: add, code: '1', with: "${ steps.double.result.v + 2 }"}],
				outputs: {sum: {type: integer, value: "${ steps.add.result }"}, all: {value: "${ steps.double.result.w }"}}}`,
			states: "double:s add:s", outputs: `{"all":[20,"n is 20, ${ too"],"sum":42}`,
		},
		{
			name: "data flow: an output of another type", begun: "a", states: "a:s", status: "failed",
			definition: `{name: x, steps: [{id: a, code: '1', with: text}],
				outputs: {n: {type: integer, value: "${ steps.a.result }"}}}`,
			failure: "expression_failed: output n: it is of type string, not integer",
		},
		{
			name: "switch: a case matches", inputs: `{"colour":"red"}`, begun: "red join", status: "succeeded",
			definition: `{name: x, inputs: {colour: {}}, steps: [
				{id: red, needs: [], when: inputs.colour == 'red', code: '1', with: 255},
				{id: green, needs: [], when: inputs.colour == 'green', code: '1'},
				{id: other, needs: [], when: "!(inputs.colour in ['red', 'green'])", code: '1'},
				{id: join, needs: [red, green, other], code: '1', with: "${ steps.red.result }"}],
				outputs: {v: {value: "${ steps.join.result }"}}}`,
			states: "red:s green:- other:- join:s", outputs: `{"v":255}`,
		},
		{
			name: "switch: the default", inputs: `{"colour":"blue"}`, begun: "other", status: "succeeded", outputs: "{}",
			definition: `{name: x, inputs: {colour: {}}, steps: [
				{id: red, needs: [], when: inputs.colour == 'red', code: '1'},
				{id: after, needs: [red], code: '1'},
				{id: other, needs: [], when: inputs.colour != 'red', code: '1'}]}`,
			states: "red:- after:- other:s",
		},
		{
			name: "switch: a step after a skipped one that has a condition", begun: "b", states: "a:- b:s",
			definition: "{name: x, steps: [{id: a, when: 'false', code: '1'}, " +
				"{id: b, when: \"steps.a.status == 'skipped'\", code: '1'}]}",
			status: "succeeded", outputs: "{}",
		},
		{
			name: "for: each item in order", inputs: `{"list":["red","green","blue"]}`, begun: "each[0] each[1] each[2]",
			definition: `{name: x, inputs: {list: {type: array}}, steps: [
				{id: each, for_each: {in: inputs.list, max: 3}, code: '1', with: {c: "${ item }", i: "${ index }"}}],
				outputs: {v: {value: "${ steps.each.result.map(r, r.c + string(r.i)) }"}}}`,
			states: "each:s", status: "succeeded", outputs: `{"v":["red0","green1","blue2"]}`,
		},
		{
			name: "for: an empty list", inputs: `{"list":[]}`, begun: "b", states: "a:s b:s", status: "succeeded",
			definition: `{name: x, inputs: {list: {}}, steps: [{id: a, for_each: {in: inputs.list, max: 3}, code: '1'},
				{id: b, code: '1', with: "${ size(steps.a.result) }"}], outputs: {n: {value: "${ steps.b.result }"}}}`,
			outputs: `{"n":0}`,
		},
		{
			name: "for: a list in the definition", begun: "a[0] a[1]", states: "a:s", status: "succeeded",
			definition: `{name: x, steps: [{id: a, for_each: {in: [1, "${ 1 + 1 }"], parallel: 2}, code: '1',
				with: "${ item }"}],
				outputs: {v: {value: "${ steps.a.result }"}}}`,
			outputs: `{"v":[1,2]}`,
		},
		{
			name: "for: more items than the bound", inputs: `{"list":[1,2,3,4]}`, states: "a:f", status: "failed",
			definition: `{name: x, inputs: {list: {}}, steps: [{id: a, for_each: {in: inputs.list, max: 3}, code: '1'}]}`,
			failure:    "expression_failed: for_each: the list has 4 items, more than max, which is 3",
		},
		{
			name: "for: not a list", inputs: `{"list":7}`, states: "a:f", status: "failed",
			definition: `{name: x, inputs: {list: {}}, steps: [{id: a, for_each: {in: inputs.list, max: 3}, code: '1'}]}`,
			failure:    "expression_failed: for_each: the value is not a list: 7",
		},
		{
			name: "for: an item fails", begun: "a[0] a[1]", states: "a:f b:-", status: "failed",
			definition: `{name: x, steps: [{id: a, for_each: {in: [1, 2, 3]}, code: '1', with: "${ item }"},
				{id: b, code: '1'}]}`,
			do: failing("2", "exception: two"), failure: "exception: item 1: two",
		},
		{
			name: "for: an item fails, and the loop goes on", begun: "a[0] a[1] a[2] b", states: "a:f b:s",
			status: "succeeded",
			definition: `{name: x, steps: [
				{id: a, for_each: {in: [1, 2, 3]}, code: '1', with: "${ item }", on_error: continue},
				{id: b, code: '1', with: "${ steps.a.result }"}], outputs: {v: {value: "${ steps.b.result }"}}}`,
			do: failing("2", "exception: two"), outputs: `{"v":[1,null,3]}`,
		},
		{
			name: "for: an item fails at its beginning", begun: "a[0]", states: "a:f", status: "failed",
			definition: `{name: x, steps: [{id: a, for_each: {in: [{k: 1}, {}, {k: 3}], parallel: 3}, code: '1',
				with: "${ item.k }"}]}`,
			failure: "expression_failed: item 1: code: no such key: k",
		},
		{
			name: "for: items fail at their beginning, and the loop goes on", begun: "a[0] a[2]", states: "a:f",
			definition: `{name: x, steps: [{id: a, for_each: {in: [{k: 1}, {}, {k: 3}]}, code: '1',
				with: "${ item.k }", on_error: continue}], outputs: {v: {value: "${ steps.a.result }"}}}`,
			status: "succeeded", outputs: `{"v":[1,null,3]}`,
		},
		{
			name: "a step that is used whole and by member", begun: "a b", states: "a:s b:s", status: "succeeded",
			definition: `{name: x, steps: [{id: a, code: '1', with: 7},
				{id: b, code: '1', with: "${ {'all': steps.a, 's': steps.a.status} }"}],
				outputs: {v: {value: "${ steps.b.result }"}}}`,
			outputs: `{"v":{"all":{"error":null,"result":7,"status":"succeeded"},"s":"succeeded"}}`,
		},
		{
			name: "fork: branches and a join", begun: "left right join", states: "left:s right:s join:s",
			status: "succeeded",
			definition: `{name: x, steps: [{id: left, needs: [], code: '1', with: 1},
				{id: right, needs: [], code: '1', with: 2},
				{id: join, needs: [left, right], code: '1', with: "${ steps.left.result + steps.right.result }"}],
				outputs: {v: {value: "${ steps.join.result }"}}}`,
			outputs: `{"v":3}`,
		},
		{
			name: "fork: a branch fails, the other ends", begun: "left right", states: "left:f right:s join:-",
			definition: `{name: x, steps: [{id: left, needs: [], code: '1', with: 1},
				{id: right, needs: [], code: '1', with: 2},
				{id: join, needs: [left, right], code: '1'}]}`,
			do: failing("1", "timeout: slow"), status: "failed", failure: "timeout: slow",
		},
		{
			name: "try: an error is caught", begun: "a rescue after", states: "a:f rescue:s after:s",
			status: "succeeded",
			definition: `{name: x, steps: [{id: a, code: '1', with: bad, on_error: continue},
				{id: rescue, when: "steps.a.status == 'failed' && steps.a.error.code == 'exception'", code: '1',
				 with: "${ steps.a.error.message }"},
				{id: after, code: '1', with: 1}], outputs: {v: {value: "${ steps.rescue.result }"}}}`,
			do: failing(`"bad"`, "exception: no such file"), outputs: `{"v":"no such file"}`,
		},
		{
			name: "try: another error is not caught", begun: "a", states: "a:f rescue:-",
			status: "succeeded", outputs: "{}",
			definition: `{name: x, steps: [{id: a, code: '1', with: bad, on_error: continue},
				{id: rescue, when: "steps.a.error.code == 'memory_limit'", code: '1'}]}`,
			do: failing(`"bad"`, "exception: no such file"),
		},
		{
			name: "try: an error ends the run, and finally cleans up", begun: "a clean", states: "a:f b:- clean:s",
			definition: `{name: x, steps: [{id: a, code: '1', with: bad}, {id: b, code: '1'}],
				finally: [{id: clean, code: '1', with: "${ run.status } ${ run.error.code } ${ run.error.step }"}]}`,
			do: failing(`"bad"`, "exception: no"), status: "failed", failure: "exception: no",
		},
		{
			name: "try: attempts with back-off", begun: "a a#2 a#3", states: "a:s", status: "succeeded", outputs: "{}",
			definition: `{name: x, steps: [{id: a, code: '1', retry: {attempts: 3, backoff: 10s}}]}`,
			do: func(e workflow.Effect) (string, error) {
				if e.Place.Attempt < 3 {
					return "", errors.New("exception: not yet")
				}
				return "1", nil
			},
		},
		{
			name: "try: all attempts fail", begun: "a a#2", states: "a:f", status: "failed",
			definition: `{name: x, steps: [{id: a, code: '1', with: bad, retry: {attempts: 2}}]}`,
			do:         failing(`"bad"`, "exception: no"), failure: "exception: no",
		},
		{
			name: "wait, then emit", begun: "b", states: "a:s b:s", status: "succeeded", outputs: `{"v":"1 s"}`,
			definition: `{name: x, steps: [{id: a, wait: {for: 10m}}, {id: b, emit: {type: done}, with: "${ 1 } s"}],
				outputs: {v: {value: "${ steps.b.result }"}}}`,
		},
		{
			name: "wait until a time of a step", inputs: `{"at":"2026-03-01T15:00:00Z"}`, states: "a:s", status: "succeeded",
			definition: `{name: x, inputs: {at: {}}, steps: [{id: a, wait: {until: "${ inputs.at }"}}]}`, outputs: "{}",
		},
		{
			name: "wait until what is not a time", inputs: `{"at":"soon"}`, states: "a:f", status: "failed",
			definition: `{name: x, inputs: {at: {}}, steps: [{id: a, wait: {until: "${ inputs.at }"}}]}`,
			failure: `expression_failed: wait: until is "soon": want a time with its date and zone, ` +
				`such as 2026-01-02T15:04:05Z (RFC 3339)`,
		},
		{
			name: "sub-workflow", begun: "a", states: "a:s", status: "succeeded", outputs: `{"v":{"n":1}}`,
			definition: `{name: x, steps: [{id: a, with: {n: 1}, workflow: {name: y, inputs: {n: {type: integer}},
				steps: [{id: a, code: '1'}]}}], outputs: {v: {value: "${ steps.a.result }"}}}`,
		},
		{
			name: "sub-workflow with a wrong input", states: "a:f", status: "failed",
			definition: `{name: x, steps: [{id: a, with: {n: one}, workflow: {name: y, inputs: {n: {type: integer}},
				steps: [{id: a, code: '1'}]}}]}`,
			failure: "expression_failed: workflow: input n: it is of type string, not integer",
		},
		{
			name: "an expression that fails", inputs: `{"m":{}}`, states: "a:f", status: "failed",
			definition: `{name: x, inputs: {m: {}}, steps: [{id: a, when: inputs.m.k == 1, code: '1'}]}`,
			failure:    "expression_failed: when: no such key: k",
		},
		{
			name: "an expression that does not end", inputs: `{"n":[1,2,3,4,5,6,7,8,9,10]}`, states: "a:f", status: "failed",
			definition: `{name: x, inputs: {n: {}}, steps: [{id: a, code: '1',
				when: "inputs.n.all(a, inputs.n.all(b, inputs.n.all(c, inputs.n.all(d, inputs.n.all(e, a + b + c + d + e > 0)))))"}]}`,
			failure: "expression_failed: when: operation cancelled: actual cost limit exceeded",
		},
		{
			name: "a result of 5 MB", begun: "a b", states: "a:s b:s c:f", status: "failed",
			definition: `{name: x, steps: [{id: a, code: '1', with: large},
				{id: b, code: '1', with: "${ steps.a.status }"},
				{id: c, code: '1', with: "${ steps.a.result }"}]}`,
			do: func(e workflow.Effect) (string, error) {
				if e.Place.Step == "a" {
					return `"` + strings.Repeat("x", 5<<20) + `"`, nil
				}
				return "1", nil
			},
			failure: "step_result_too_large: code: the result of step a is 5242882 bytes, and a workflow passes on " +
				"at most 262144: write large data into a file of the workspace",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t, c.definition, c.inputs)
			if c.do != nil {
				w.do = c.do
			}
			w.play()
			if got := strings.Join(w.begun, " "); got != c.begun {
				t.Errorf("began %q, want %q", got, c.begun)
			}
			if got := w.states(); got != c.states {
				t.Errorf("steps are %q, want %q", got, c.states)
			}
			if w.run.Status != c.status || string(w.run.Outputs) != c.outputs {
				t.Errorf("run is %s with outputs %s, want %s with %s", w.run.Status, w.run.Outputs, c.status, c.outputs)
			}
			failure := ""
			if w.run.Error != nil {
				failure = w.run.Error.Error()
			}
			if failure != c.failure {
				t.Errorf("error is %q, want %q", failure, c.failure)
			}
		})
	}
}

// failing returns a function do that fails the tasks with an input.
func failing(input, message string) func(workflow.Effect) (string, error) {
	return func(e workflow.Effect) (string, error) {
		if string(inputOf(e)) == input {
			return "", errors.New(message)
		}
		return string(inputOf(e)), nil
	}
}

// TestRepeatedEvents checks that an event that was applied changes nothing when it comes again, in any order.
func TestRepeatedEvents(t *testing.T) {
	w := start(t, `{name: x, steps: [{id: a, needs: [], code: '1', with: 1, retry: {attempts: 2}},
		{id: b, needs: [], for_each: {in: [1, 2], parallel: 2}, code: '1'}, {id: c, needs: [a, b], code: '1'}]}`, "")
	var past []workflow.Event
	for range 10 {
		for _, e := range w.next() {
			ev := workflow.Event{Ended: &workflow.Ended{Place: e.Place, Status: schemas.WorkflowSucceeded}}
			if e.Place.ID() == "a/-1/1" {
				ev.Ended.Status = schemas.WorkflowFailed
				ev.Ended.Error = &schemas.WorkflowError{Code: "exception", Message: "no"}
			}
			w.advance(ev)
			past = append(past, ev)
			before := w.run
			for _, old := range past {
				w.advance(old)
			}
			if d := cmp.Diff(before, w.run); d != "" {
				t.Fatalf("repeated events changed the run (-before +after):\n%s", d)
			}
		}
		w.now = w.now.Add(time.Minute)
		w.advance(workflow.Event{})
	}
	if got := w.states(); got != "a:s b:s c:s" || w.run.Status != schemas.WorkflowSucceeded {
		t.Errorf("run is %s with %s, want succeeded", w.run.Status, got)
	}
	if want := []string{"a", "b[0]", "b[1]", "a#2", "c"}; !slices.Equal(w.begun, want) {
		t.Errorf("began %q, want %q", w.begun, want)
	}
}

const asking = `{name: x, steps: [
	{id: a, ask: {message: "Pay ${ 5 } euros?", form: {type: object, required: [ok],
		properties: {ok: {type: boolean}, why: {type: string, default: none}}}}, timeout: 1h},
	{id: b, code: '1', with: "${ steps.a.result }"}]}`

func TestAsk(t *testing.T) {
	w := start(t, asking, "")
	if a := w.run.Steps[0]; w.run.Status != schemas.WorkflowWaiting || a.Message != "Pay 5 euros?" ||
		!a.Due.Equal(began.Add(time.Hour)) {
		t.Fatalf("run is %s, step %+v, want it to wait for an hour", w.run.Status, a)
	}
	answer := func(values string) error {
		return w.try(workflow.Event{Answered: &workflow.Answered{Step: "a", Item: -1, Values: json.RawMessage(values)}})
	}
	for _, c := range []struct{ values, code, path string }{
		{`{}`, "bad_answer", "/values/ok"},
		{`{"ok":"yes"}`, "bad_answer", "/values/ok"},
		{`{"ok":true,"other":1}`, "bad_answer", "/values/other"},
		{`[]`, "bad_answer", "/values"},
		{`null`, "bad_answer", "/values"},
		{`{"ok":true} {"ok":false}`, "bad_answer", "/values"},
	} {
		refused, ok := errors.AsType[*workflow.AnswerError](answer(c.values))
		if !ok || refused.Code != c.code || refused.Path != c.path {
			t.Errorf("answer %s = %+v, want %s at %q", c.values, refused, c.code, c.path)
		}
	}
	if err := answer(`{"ok":true}`); err != nil {
		t.Fatal(err)
	}
	w.play()
	if got := string(w.run.Steps[1].Result); w.run.Status != schemas.WorkflowSucceeded || got != `{"ok":true,"why":"none"}` {
		t.Errorf("run is %s, result %s, want the answer with the default", w.run.Status, got)
	}
	if refused, ok := errors.AsType[*workflow.AnswerError](answer(`{"ok":false}`)); !ok || refused.Code != "not_waiting" {
		t.Errorf("a second answer = %v, want not_waiting", refused)
	}
}

// TestAskForEachItem answers a loop that asks: an answer names its item.
func TestAskForEachItem(t *testing.T) {
	w := start(t, `{name: x, steps: [
		{id: a, for_each: {in: [1, 2, 3], parallel: 2}, ask: {message: "Is ${ item } right?",
			form: {type: object, required: [n], properties: {n: {type: integer}}}}},
		{id: b, ask: {form: {type: object, properties: {ok: {type: boolean}}}}},
		{id: c, code: '1', with: "${ steps.a.result.map(r, r.n) }"}]}`, "")
	answer := func(step string, item int, values string) string {
		given := workflow.Answered{Step: step, Item: item, Values: json.RawMessage(values)}
		err := w.try(workflow.Event{Answered: &given})
		if refused, ok := errors.AsType[*workflow.AnswerError](err); ok {
			return strings.Join(strings.Fields(refused.Code+" "+refused.Path+" "+refused.Message), " ")
		}
		return fmt.Sprint(err)
	}
	const form = `{"n":9007199254740993}`
	for _, c := range []struct {
		step         string
		item         int
		values, want string
	}{
		{"a", -1, form, "bad_answer /item the step a is a loop, which asks for each of its items: name the item; " +
			"those that wait are 0, 1"},
		{"a", 3, form, "bad_answer /item the loop a has 3 items, and no item 3: the first is item 0; " +
			"those that wait are 0, 1"},
		{"a", 2, form, "not_waiting the step a does not wait for an answer: it is pending"},
		{"a", 1, `{"n":9007199254740993.5}`, `bad_answer /values/n n: "n" must be a whole number`},
		{"b", 0, form, "bad_answer /item the step b is not a loop: it asks once, so leave the item out"},
		{"b", -1, form, "not_waiting the step b does not wait for an answer: it is pending"},
		{"c", -1, form, "not_waiting the step c does not ask"},
		{"d", -1, form, "unknown_step there is no step d; did you mean a?"},
		{"a", 1, form, "<nil>"},
		{"a", 1, form, "not_waiting the step a does not wait for an answer: it is succeeded"},
		{"a", -1, form, "bad_answer /item the step a is a loop, which asks for each of its items: name the item; " +
			"those that wait are 0, 2"},
		{"a", 0, form, "<nil>"},
		{"a", 2, form, "<nil>"},
		{"a", -1, form, "bad_answer /item the step a is a loop, which asks for each of its items: name the item"},
		{"b", -1, "{}", "<nil>"},
	} {
		if got := answer(c.step, c.item, c.values); got != c.want {
			t.Errorf("answer of %s[%d] with %s = %q, want %q", c.step, c.item, c.values, got, c.want)
		}
	}
	w.play()
	const want = "[9007199254740993,9007199254740993,9007199254740993]"
	if got := string(w.run.Steps[2].Result); w.run.Status != schemas.WorkflowSucceeded || got != want {
		t.Errorf("run is %s, result %s, want %s", w.run.Status, got, want)
	}
}

func TestAskTimesOut(t *testing.T) {
	w := start(t, asking, "")
	w.now = began.Add(time.Hour)
	w.advance(workflow.Event{})
	got, want := fmt.Sprint(w.run.Status, " ", w.run.Error), "failed step_timeout: no event or answer came within 1h"
	if got != want {
		t.Errorf("run is %q, want %q", got, want)
	}
}

func TestWaitForEvent(t *testing.T) {
	w := start(t, `{name: x, inputs: {id: {}}, steps: [
		{id: a, wait: {event: {type: "order.*", filter: data.id == inputs.id}}, timeout: 1h}],
		outputs: {v: {value: "${ steps.a.result.total }"}}}`, `{"id":7}`)
	if got := w.plan.Awaits(w.run); !slices.Equal(got, []string{"order.*"}) {
		t.Fatalf("Awaits = %q, want order.*", got)
	}
	places := func(kind, data string) []workflow.Place {
		attributes := map[string]any{"type": kind, "source": "shop", "id": "1"}
		list, _, err := w.plan.Waiting(t.Context(), w.run, attributes, json.RawMessage(data), w.load)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if len(places("order.paid", `{"id":8}`))+len(places("invoice", `{"id":7}`))+len(places("order.paid", `"text"`)) > 0 {
		t.Error("an event that does not match has places, want none")
	}
	list := places("order.paid", `{"id":7,"total":12}`)
	if len(list) != 1 {
		t.Fatalf("an event that matches has the places %v, want one", list)
	}
	w.advance(workflow.Event{Occurred: &workflow.Occurred{Place: list[0], Data: json.RawMessage(`{"id":7,"total":12}`)}})
	if string(w.run.Outputs) != `{"v":12}` {
		t.Errorf("outputs are %s, want the event's total", w.run.Outputs)
	}
}

func TestCancel(t *testing.T) {
	w := start(t, `{name: x, steps: [{id: a, needs: [], code: '1'},
		{id: b, needs: [], wait: {for: 1h}}, {id: c, code: '1'}],
		finally: [{id: clean, code: '1', with: "${ run.status }"}]}`, "")
	w.advance(workflow.Event{Cancel: true})
	effects, err := w.plan.Effects(t.Context(), w.run, func(workflow.Place) bool { return true }, w.load)
	if err != nil || len(effects) != 1 || !effects[0].Cancel || effects[0].Place.Step != "a" {
		t.Fatalf("Effects = %+v, %v, want a to be cancelled", effects, err)
	}
	w.advance(workflow.Event{Ended: &workflow.Ended{Place: effects[0].Place, Status: schemas.WorkflowCancelled}})
	w.play()
	if got := w.states(); got != "a:c b:c c:- clean:s" || w.run.Status != schemas.WorkflowCancelled {
		t.Errorf("run is %s with %s, want it cancelled, and cleaned up", w.run.Status, got)
	}
	if got := string(w.run.Steps[3].Result); got != `"cancelled"` {
		t.Errorf("run.status is %s in finally, want cancelled", got)
	}
}

// TestCancelWithoutDescription checks that the task of a cancelled step is valid although its description can no longer
// be evaluated: if it has not been submitted, the cancellation stores it as cancelled.
func TestCancelWithoutDescription(t *testing.T) {
	const task = "say ${ 1 / (run.status == 'running' ? 1 : 0) }"
	w := start(t, `{name: x, steps: [{id: a, task: "`+task+`"}]}`, "")
	w.advance(workflow.Event{Cancel: true})
	effects, err := w.plan.Effects(t.Context(), w.run, func(workflow.Place) bool { return true }, w.load)
	if err != nil || len(effects) != 1 || !effects[0].Cancel || effects[0].Task.Description != task {
		t.Errorf("Effects = %+v, %v, want a to be cancelled, with its text as description", effects, err)
	}
}

func TestRunTimesOut(t *testing.T) {
	w := start(t, `{name: x, timeout: 2h, steps: [
		{id: a, needs: [], wait: {event: {type: never}}}, {id: b, needs: [], code: '1'}],
		finally: [{id: clean, wait: {event: {type: never}}}, {id: tell, for_each: {in: [1]}, code: '1'}]}`, "")
	b := w.next()[0].Place
	if got := workflow.NextAlarm(w.run); !got.Equal(began.Add(2 * time.Hour)) {
		t.Fatalf("NextAlarm = %s, want the run's deadline", got)
	}
	w.now = began.Add(2 * time.Hour)
	w.advance(workflow.Event{})
	stopped := w.run
	w.now = w.now.Add(time.Minute)
	w.advance(workflow.Event{})
	if d := cmp.Diff(stopped, w.run); d != "" || w.states() != "a:c b:r clean:p tell:p" {
		t.Fatalf("while a task goes on after the deadline, the run is %s and changes (-before +after):\n%s",
			w.states(), d)
	}
	w.advance(workflow.Event{Ended: &workflow.Ended{Place: b, Status: schemas.WorkflowCancelled}})
	if got := w.states(); got != "a:c b:c clean:w tell:p" || w.run.Status.Ended() {
		t.Fatalf("run is %s with %s, want it to clean up", w.run.Status, got)
	}
	w.now = workflow.NextAlarm(w.run)
	w.advance(workflow.Event{})
	got := w.states()
	if got != "a:c b:c clean:c tell:c" || w.run.Error.Code != "workflow_timeout" || !w.run.Status.Ended() {
		t.Errorf("run is %s with %s, %v, want it to end", w.run.Status, got, w.run.Error)
	}
}

// TestCancelFinally cancels a run a second time: that ends the steps under finally, also a loop that has not begun.
func TestCancelFinally(t *testing.T) {
	w := start(t, `{name: x, steps: [{id: a, wait: {event: {type: never}}}],
		finally: [{id: clean, wait: {event: {type: never}}}, {id: tell, for_each: {in: [1]}, code: '1'}]}`, "")
	w.advance(workflow.Event{Cancel: true})
	w.advance(workflow.Event{Cancel: true})
	if got := w.states(); got != "a:c clean:c tell:c" || w.run.Status != schemas.WorkflowCancelled {
		t.Errorf("run is %s with %s, want it to end", w.run.Status, got)
	}
}

// TestWorkflowUnderFinally checks that a workflow under finally has the time of finally.
func TestWorkflowUnderFinally(t *testing.T) {
	w := start(t, `{name: x, timeout: 2h, steps: [{id: a, workflow: {name: y, steps: [{id: b, code: '1'}]}}],
		finally: [{id: z, workflow: {name: y, steps: [{id: b, code: '1'}]}}]}`, "")
	var due []time.Duration
	for range w.run.Steps {
		for _, e := range w.next() {
			due = append(due, e.Due.Sub(began))
			w.end(e)
		}
	}
	if d := cmp.Diff([]time.Duration{2 * time.Hour, 3 * time.Hour}, due); d != "" {
		t.Errorf("times by which the workflows must end (-want +got):\n%s", d)
	}
}

// TestRecordSize checks that a loop of 1000 items that all fail fits into its record, whether they fail at their
// beginning or later.
func TestRecordSize(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, with := range []string{"1", "${ item." + long + " }"} {
		w := start(t, fmt.Sprintf(`{name: x, inputs: {n: {}}, steps: [{id: a,
			for_each: {in: inputs.n, max: 1000, parallel: 100}, code: '1', with: %q, on_error: continue}]}`, with),
			"{\"n\":["+strings.Repeat("{},", 999)+"{}]}")
		w.unchecked = true
		w.do = func(workflow.Effect) (string, error) { return "", errors.New("exception: " + long) }
		w.play()
		data, err := json.Marshal(w.run)
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, item := range w.run.Steps[0].Items {
			if item.Status == schemas.WorkflowFailed {
				failed++
			}
		}
		if failed != 1000 || len(data) > workflow.MaxRecord {
			t.Errorf("record of %d failed items with %.20s is %d bytes, want 1000 items, and at most %d bytes", failed,
				with, len(data), workflow.MaxRecord)
		}
	}
}

func TestRerun(t *testing.T) {
	p := compile(t, `{name: x, steps: [{id: a, code: '1'},
		{id: b, needs: [a], code: '1'}, {id: other, needs: [a], code: '1'},
		{id: late, needs: [a], code: '1'}, {id: c, needs: [b], code: '1'}], finally: [{id: z, code: '1'}]}`)
	old := p.New(schemas.WorkflowRun{}, began)
	old.Status = schemas.WorkflowFailed
	for i, s := range []schemas.StepRun{
		{Status: "succeeded", StartedAt: began, After: 1, Result: make(json.RawMessage, 1000), ResultBytes: 1000},
		{Status: "failed", StartedAt: began, Before: 1},
		{Status: "succeeded", StartedAt: began, Before: 1, Result: json.RawMessage("1")},
		{Status: "succeeded", StartedAt: began, Before: 1, After: 2},
		{Status: "skipped"},
		{Status: "succeeded", StartedAt: began},
	} {
		s.ID = old.Steps[i].ID
		old.Steps[i] = s
	}
	r, err := p.Rerun(old, "b")
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, s := range r.Steps {
		if s.Kept {
			kept = append(kept, s.ID)
		}
		if s.Before != 0 || s.ResultBytes > 0 && s.Result != nil {
			t.Errorf("Rerun keeps step %s with version %d and %d bytes in its record, want none", s.ID, s.Before,
				len(s.Result))
		}
	}
	if !slices.Equal(kept, []string{"a", "other"}) || r.Generation != 1 || !slices.Equal(r.Keep, []string{"result.a"}) {
		t.Errorf("Rerun keeps %q with %q at generation %d, want a and other, result.a, 1", kept, r.Keep, r.Generation)
	}
	if _, err := p.Rerun(old, "c"); err == nil {
		t.Error("Rerun from a step that has not begun = nil, want an error")
	}
	if _, err := p.Rerun(old, "z"); err == nil || !strings.Contains(err.Error(), "belongs to `finally`") {
		t.Errorf("Rerun from a step under finally = %v, want an error that says so", err)
	}
	if _, err := p.Rerun(old, "bb"); err == nil || !strings.Contains(err.Error(), "did you mean b?") {
		t.Errorf("Rerun from an unknown step = %v, want the nearest", err)
	}
	if _, err := p.Rerun(old, strings.Repeat("b", 1000)); err == nil || len(err.Error()) > 150 {
		t.Errorf("Rerun from a step with a long name = %v, want an error with its beginning", err)
	}
}

// A branch that was not chosen stays skipped, so that what comes after the branches is kept: a question is not asked
// again. Steps that a failed run skipped because it ended begin in the new run.
func TestRerunAfterBranches(t *testing.T) {
	p := compile(t, `{name: x, inputs: {big: {type: boolean}}, steps: [
		{id: big, when: inputs.big, code: '1'}, {id: small, needs: [], when: "!inputs.big", code: '1'},
		{id: ask, needs: [big, small], ask: {form: {type: object, properties: {ok: {type: boolean}}}}},
		{id: last, code: '1'}, {id: beside, needs: [ask], when: "!inputs.big", code: '1'}]}`)
	for status, want := range map[schemas.WorkflowStatus]string{
		"succeeded": "big small ask beside", "failed": "big small ask",
	} {
		old := p.New(schemas.WorkflowRun{}, began)
		old.Status = status
		for i, s := range []schemas.WorkflowStatus{"succeeded", "skipped", "succeeded", status, "skipped"} {
			old.Steps[i].Status = s
			if s != "skipped" {
				old.Steps[i].StartedAt = began
			}
		}
		r, err := p.Rerun(old, "last")
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for i, s := range r.Steps {
			if s.Kept && s.Status == old.Steps[i].Status {
				kept = append(kept, s.ID)
			}
		}
		if got := strings.Join(kept, " "); got != want {
			t.Errorf("Rerun of a run that %s keeps %q, want %q", status, got, want)
		}
	}
}

// A rerun from a question before the first task begins with the files that the workspace had before the run, not with
// an empty workspace.
func TestRerunFromFirstQuestion(t *testing.T) {
	p := compile(t, `{name: x, steps: [{id: ask, ask: {form: {type: object, properties: {ok: {type: boolean}}}}},
		{id: b, code: '1'}]}`)
	old := p.New(schemas.WorkflowRun{}, began)
	old.Status, old.Steps[0].StartedAt, old.Steps[0].Status = "succeeded", began, "succeeded"
	for after, want := range map[int64]int64{8: 7, 1: 0} { // 1: the task created the workspace
		old.Steps[1] = schemas.StepRun{ID: "b", Status: "succeeded", StartedAt: began, Before: after - 1, After: after}
		if r, err := p.Rerun(old, "ask"); err != nil || r.Generation != want || !r.Changed {
			t.Errorf("Rerun begins with generation %d, %v, changed %v, want %d and true", r.Generation, err,
				r.Changed, want)
		}
	}
}

// race applies two events at once to the run, as two processes do: both store their values, the loser last, and only
// the winner's record counts.
func (w *world) race(winner, loser workflow.Event) {
	w.t.Helper()
	won, err := w.plan.Advance(w.t.Context(), w.run, winner, w.now, w.load)
	if err != nil {
		w.t.Fatal(err)
	}
	lost, err := w.plan.Advance(w.t.Context(), w.run, loser, w.now, w.load)
	if err != nil {
		w.t.Fatal(err)
	}
	maps.Copy(w.values, won.Values)
	maps.Copy(w.values, lost.Values)
	w.run = won.Run
}

func answer(step string, item int, values string) workflow.Event {
	return workflow.Event{Answered: &workflow.Answered{Step: step, Item: item, Values: json.RawMessage(values)}}
}

const asksThenLoops = `{"name":"x","steps":[
	{"id":"a","ask":{"form":{"type":"object","properties":{"n":{"type":"integer"}}}}},
	{"id":"l","for_each":{"in":"steps.a.result.n == 5 ? [1,2,3,4,5] : [6]","max":10},
	 "code":"pass","with":{"x":"${item}"}}],
	"outputs":{"all":{"value":"${ steps.l.result.map(r, r.x) }"}}}`

// TestItemsOfTheWinner checks that a loop has the items of the answer that counts, and not those of an answer that
// another process accepted at the same time.
func TestItemsOfTheWinner(t *testing.T) {
	for _, c := range []struct{ winner, loser, want string }{
		{`{"n":5}`, `{"n":1}`, `{"all":[1,2,3,4,5]}`},
		{`{"n":1}`, `{"n":5}`, `{"all":[6]}`},
	} {
		w := start(t, asksThenLoops, "")
		w.race(answer("a", -1, c.winner), answer("a", -1, c.loser))
		w.play()
		if string(w.run.Outputs) != c.want {
			t.Errorf("run after %s is %s with %s, want %s", c.winner, w.run.Status, w.run.Outputs, c.want)
		}
	}
}

// TestLoopResultOfTheWinner is like TestItemsOfTheWinner, for the result of a loop, which is kept apart.
func TestLoopResultOfTheWinner(t *testing.T) {
	w := start(t, `{"name":"x","steps":[
		{"id":"l","for_each":{"in":"[1]","max":1},
		 "ask":{"form":{"type":"object","properties":{"v":{"type":"string"}}}}},
		{"id":"b","code":"pass","with":"${ steps.l.result[0].v.size() }"}],
		"outputs":{"n":{"value":"${ steps.b.result }"}}}`, "")
	text := func(n int) string { return fmt.Sprintf(`{"v":%q}`, strings.Repeat("x", n)) }
	w.race(answer("l", 0, text(1000)), answer("l", 0, text(2000)))
	w.play()
	if string(w.run.Outputs) != `{"n":1000}` {
		t.Errorf("run is %s with %s, want the size of the answer that counts, 1000", w.run.Status, w.run.Outputs)
	}
	again, err := w.plan.Rerun(w.run, "b")
	if err != nil || !slices.Contains(again.Keep, again.Steps[0].ResultKey) || again.Steps[0].ResultKey == "" {
		t.Errorf("Rerun keeps %v, %v, want the result %q of the loop", again.Keep, err, again.Steps[0].ResultKey)
	}
}

// TestItemsOfAnEarlierVersion checks runs whose records name no key of the items: they read the list that earlier
// versions stored, and a list that does not belong to the record fails the run.
func TestItemsOfAnEarlierVersion(t *testing.T) {
	for _, c := range []struct{ list, outputs, failure string }{
		{`[1,2,3,4,5]`, `{"all":[1,2,3,4,5]}`, ""},
		{`[6]`, "", "item 1: code: the stored list of the loop l has 1 items, so it has no item 1"},
	} {
		w := start(t, asksThenLoops, "")
		w.advance(answer("a", -1, `{"n":5}`))
		w.run.Steps[1].ItemsKey = ""
		w.values["items.l"] = json.RawMessage(c.list)
		w.play()
		failure := ""
		if w.run.Error != nil {
			failure = w.run.Error.Message
		}
		if string(w.run.Outputs) != c.outputs || !strings.HasPrefix(failure, c.failure) {
			t.Errorf("run with the list %s is %s with %s, %q, want %s, %q",
				c.list, w.run.Status, w.run.Outputs, failure, c.outputs, c.failure)
		}
	}
}

// TestRunningItemThatTheListLacks checks that an item that runs, and that the stored list lacks, has an effect that
// fails it, so that the run ends.
func TestRunningItemThatTheListLacks(t *testing.T) {
	w := start(t, strings.Replace(asksThenLoops, `"max":10`, `"max":10,"parallel":5`, 1), "")
	w.advance(answer("a", -1, `{"n":5}`))
	w.run.Steps[1].ItemsKey = ""
	w.values["items.l"] = json.RawMessage(`[6]`)
	var failed []int
	for _, e := range w.next() {
		if e.Failed != nil {
			failed = append(failed, e.Place.Item)
		}
	}
	if !slices.Equal(failed, []int{1, 2, 3, 4}) {
		t.Errorf("effects of the items %v fail, want those of 1 to 4, which the list lacks", failed)
	}
}

// TestTooLargeItemsAreNotStored checks that a list that is refused is not stored: the queue would refuse it, too.
func TestTooLargeItemsAreNotStored(t *testing.T) {
	w := start(t, `{"name":"x","inputs":{"v":{"type":"string"}},"steps":[
		{"id":"l","for_each":{"in":["${inputs.v}","${inputs.v}"]},"code":"pass"}]}`,
		fmt.Sprintf(`{"v":%q}`, strings.Repeat("x", workflow.MaxValue-100)))
	for key, value := range w.values {
		if len(value) > workflow.MaxValue {
			t.Errorf("the value %s of %d bytes is stored", key, len(value))
		}
	}
	if w.run.Status != schemas.WorkflowFailed || w.run.Error.Code != "expression_failed" {
		t.Errorf("run is %s, %v, want failed", w.run.Status, w.run.Error)
	}
}

// TestWaitUntilThePast checks that a time that has passed is now, also one that JSON or the record cannot express: the
// first year in UTC, or the zero time, which means none.
func TestWaitUntilThePast(t *testing.T) {
	for _, until := range []string{"0000-01-01T00:00:00+01:00", "0001-01-01T00:00:00Z", "2026-02-28T12:00:00Z"} {
		w := start(t, `{"name":"x","inputs":{"at":{}},"steps":[{"id":"a","wait":{"until":"${ inputs.at }"}}]}`,
			fmt.Sprintf(`{"at":%q}`, until))
		if due := w.run.Steps[0].Due; w.run.Status == schemas.WorkflowWaiting && !due.Equal(w.now) {
			t.Errorf("step that waits until %s is due at %v, want now, %v", until, due, w.now)
		}
		w.play()
		if w.run.Status != schemas.WorkflowSucceeded || !w.run.EndedAt.Equal(began) {
			t.Errorf("run that waits until %s is %s at %v, want succeeded at once", until, w.run.Status, w.run.EndedAt)
		}
	}
}

// TestFilterOfAStep checks that an event whose filter is interrupted is an error, and that one whose filter cannot be
// evaluated is rejected with the reason.
func TestFilterOfAStep(t *testing.T) {
	w := start(t, `{"name":"x","steps":[{"id":"a","wait":{"event":{"type":"told","filter":"data.n == 1"}}}]}`, "")
	attributes := map[string]any{"type": "told", "source": "/test"}
	ended, end := context.WithCancel(t.Context())
	end()
	places, _, err := w.plan.Waiting(ended, w.run, attributes, json.RawMessage(`{"n":1}`), w.load)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Waiting with a cancelled context = %v, %v, want the error", places, err)
	}
	places, rejected, err := w.plan.Waiting(t.Context(), w.run, attributes, json.RawMessage(`{}`), w.load)
	if err != nil || len(places) > 0 || !strings.Contains(fmt.Sprint(rejected), "step a: no such key: n") {
		t.Errorf("Waiting for an event without n = %v, %v, %v, want the reason", places, rejected, err)
	}
}

// TestCancelDuringARetry checks that a step under finally that fails after a cancel is not tried again.
func TestCancelDuringARetry(t *testing.T) {
	w := start(t, `{name: x, steps: [{id: a, code: '1'}],
		finally: [{id: clean, code: '1', retry: {attempts: 3, backoff: 10m}}]}`, "")
	w.end(w.next()[0])
	clean := w.next()[0]
	w.advance(workflow.Event{Cancel: true})
	w.advance(workflow.Event{Ended: &workflow.Ended{
		Place: clean.Place, Status: schemas.WorkflowFailed, Error: &schemas.WorkflowError{Code: "exception"},
	}})
	if got := w.states(); got != "a:s clean:f" || !w.run.Status.Ended() {
		t.Errorf("run is %s with %s, want it to end with a failed step", w.run.Status, got)
	}
}

// TestBracesInStrings checks that strings of CEL do not end an expression, whatever their quotes.
func TestBracesInStrings(t *testing.T) {
	w := start(t, `{name: x, steps: [{id: a, code: '1',
		with: '${ r"\" + "}\"}" + """a"}b""" + R''}'' + {"k": "z"}.k }!'}]}`, "")
	if got, want := string(w.next()[0].Task.Inputs), `"\\}\"}a\"}b}z!"`; got != want {
		t.Errorf("with = %s, want %s", got, want)
	}
}
