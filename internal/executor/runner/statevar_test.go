package runner

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestStateUsed checks which programs use the variable state, and which have one of their own.
func TestStateUsed(t *testing.T) {
	programs := map[bool][]string{
		true: {
			"state['n'] = 1",
			"state['n'] += 1",
			"state['n']: int",
			"state |= {'n': 1}",
			"state = state or {}",
			"state: dict\nstate['n'] = 1",
			"state: dict = state",
			"x = state = state['n']",
			"(state := state)",
			"del state['n']",
			"x = f'{state}'",
			"state['n'] = 1\nx = " + strings.Repeat("1 + ", 900) + "1",

			"for state in state['states']: pass",
			"[state for state in state['states']]",
			"[x for x in 'ab' for y in state]",
			"{x: 1 for x in 'ab' if state}",
			"try: pass\nexcept E as e: state['n'] = 1",

			"class A:\n  state = 1\nstate['n'] = 1",
			"class A:\n  state: str = 'CA'\nstate['n'] = 1",
			"class A:\n  def state(self): pass\nstate['n'] = 1",
			"class A:\n  state = 1\n  def f(self): return state['n']",
			"class A:\n  state = 1\n  x = [state[x] for x in 'ab']",
			"class A:\n  class B:\n    state = 1\n  x = state",
			"class A:\n  state = state['n']",
			"class A:\n  state += 1",

			"def f(): state['n'] = 1",
			"def f(s=state): pass",
			"def f(*, s=state): pass",
			"lambda s=state: 1",
			"def f(x=lambda state: 1): return state['n']",
			"@state.get\ndef state(): pass",
			"def f():\n  x = [state for state in 'ab']\n  return state['n']",
			"def f():\n  def g(): state = 1\n  return state['n']",
			"def f():\n  global state\n  state = {**state}",
		},
		false: {
			"1",
			"state = 1\nstate",
			"state: dict = {}\nstate",
			"x = state = 1\nstate",
			"x, state = 1, 2\nstate",
			"(state := 1)\nstate",
			"x.state",
			"import state\nstate",
			"import state.x\nstate",
			"import x as state\nstate",
			"from x import state\nstate",

			"for state in 'ab': state",
			"[state for state in 'ab']",
			"[1 for x in 'ab' for state in x if state]",
			"[state for x in 'ab' if (state := x)]",
			"with x as state: state",
			"try: pass\nexcept E as state: state",
			"match x:\n  case state: state",
			"match x:\n  case [*state]: state",
			"match x:\n  case {'a': 1, **state}: state",

			"class state: pass\nstate",
			"class A: state: str",
			"class A:\n  state = 1\n  x = state",
			"class A:\n  def f(self): return self.state",

			"def state(): pass\nstate",
			"def f(state): return state",
			"def f(*state): return state",
			"def f(*, state=1): return state",
			"lambda **state: state",
			"def f():\n  state = 1\n  return state",
			"def f():\n  import state\n  def g(): return state",
			"def f():\n  for state in 'ab': pass\n  return [state for x in 'ab']",
			"def f():\n  [x for x in 'ab' if (state := x)]\n  return state",
			"def f():\n  try: pass\n  except E as state: return state",
			"def f(state):\n  class A: x = state",
			"state = 1\ndef f(): return state",
			"def f(): return state\nstate = 1",
		},
	}
	const check = `
import ast, json, sys
programs = [p for p in json.loads(sys.argv[1]) if sys.version_info >= (3, 10) or not p.startswith("match")]
sys.modules["codefleet"] = codefleet = type(sys)("codefleet")
codefleet.jsonable = None
statevar = {}
exec(sys.stdin.read(), statevar)
print(json.dumps([program for program in programs if statevar["used"](ast.parse(program))]))
`
	for want, programs := range programs {
		list, err := json.Marshal(programs)
		if err != nil {
			t.Fatal(err)
		}
		out := python(t, check, source("statevar"), string(list))
		var used []string
		if err := json.Unmarshal([]byte(out), &used); err != nil {
			t.Fatal(err)
		}
		found := make(map[string]bool)
		for _, program := range used {
			found[program] = true
		}
		for _, program := range programs {
			if found[program] != want {
				t.Errorf("used(%q) = %t, want %t", program, !want, want)
			}
		}
	}
}

// TestStateFileName checks that a document may have the longest name of a file.
func TestStateFileName(t *testing.T) {
	const check = `
import os, sys
sys.modules["codefleet"] = codefleet = type(sys)("codefleet")
codefleet.jsonable = None
statevar = {}
exec(sys.stdin.read(), statevar)
name = "x" * 250 + ".json"
statevar["Variable"](sys.argv[1], name, None, True).replace(b"{}")
print(os.listdir(sys.argv[1]) == [name])
`
	if out := python(t, check, source("statevar"), t.TempDir()); out != "True\n" {
		t.Errorf("Python: %s, want that the document is the only file", out)
	}
}
