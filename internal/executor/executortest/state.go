package executortest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
)

var stateCases = []struct {
	name, document, code string
	after                string // the document after the program; default unchanged
	want                 want
}{
	{"first use", "", "state['step'] = 1", "{\n  \"step\": 1\n}\n", want{}},
	{
		"a changed key", `{"a": 1, "b": [2]}`, "state['b'].append(3)\nstate['a']",
		"{\n  \"a\": 1,\n  \"b\": [\n    2,\n    3\n  ]\n}\n",
		want{result: "1"},
	},
	{"a removed key", `{"a": 1, "b": 2}`, "del state['b']", "{\n  \"a\": 1\n}\n", want{}},
	{"another object", `{"a": 1}`, "state = {**state, 'n': 2}", "{\n  \"a\": 1,\n  \"n\": 2\n}\n", want{}},
	{"in a function", `{"a": 1}`, "def bump():\n  state['a'] += 1\nbump()", "{\n  \"a\": 2\n}\n", want{}},
	{"no longer an object", `{"a": 1}`, "state['a'] = 2\nstate = 'done'", "", want{}},
	{"only read", `{"a":1}`, "state['a']", "", want{result: "1"}},
	{"not changed in effect", `{"a":1}`, "state['a'] = 1", "", want{}},
	{"a variable of its own", `{"a":1}`, "state = {'x': 1}\nstate['x']", "", want{result: "1"}},
	{
		"a loop's variable", `{"a":1}`, "[state for state in 'xy']\nfor state in ['CA']: pass\nstate", "",
		want{result: `"CA"`},
	},
	{"not JSON, not used", "{", "'state'", "", want{result: `"state"`}},
	{
		"a file that the program writes too", `{"a": 1, "b": 1}`,
		"import json\njson.dump({'a': 5, 'b': 1}, open('state.json', 'w'))\nstate['b'] = 2",
		"{\n  \"a\": 5,\n  \"b\": 2\n}\n",
		want{},
	},
	{
		"a date, and NumPy's way", "", "import datetime\nclass N:\n  def tolist(self): return 7\n" +
			"state['d'] = [datetime.date(2026, 1, 2), N()]",
		"{\n  \"d\": [\n    \"2026-01-02\",\n    7\n  ]\n}\n",
		want{},
	},
	{
		"not saved after a failure", `{"a": 1}`, "state['a'] = 2\n1/0", "",
		want{
			status: executor.Failed, code: "exception", message: "division by zero", line: 2,
			cause:  "ZeroDivisionError",
			stderr: "",
		},
	},
	{
		"not saved completely", `{"a": 1}`, "import resource\n" +
			"resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n" +
			"state['a'] = 'x' * 5000", "",
		want{
			status: executor.Failed, code: "exception", message: "OSError: [Errno 27] File too large",
			cause: "OSError",
		},
	},
	{
		"a link in its place", "", "import os\nos.symlink('/dev/null', 'state.json')\nstate['a'] = 2", "",
		want{status: executor.Failed, code: "bad_state", message: "state.json is a link, not a file"},
	},
	{
		"a directory in its place", "", "import os\nos.mkdir('state.json')\nstate['a'] = 2", "",
		want{status: executor.Failed, code: "bad_state", message: "state.json is not a regular file"},
	},
	{"another working directory", `{"a": 1}`, "import os\nos.chdir('/')\nstate['a'] = 2", "{\n  \"a\": 2\n}\n", want{}},
	{"exit code 0", `{"a": 1}`, "state['a'] = 2\nexit(0)", "{\n  \"a\": 2\n}\n", want{}},
	{"not JSON", "{", "state['a']", "", want{
		status: executor.Failed, code: "bad_state", message: "state.json is not JSON",
	}},
	{"a list", "[1]", "state['a']", "", want{
		status: executor.Failed, code: "bad_state", message: `state.json is not a JSON object, as in {"step": 2}`,
	}},
	{"too large", `{"a": "` + strings.Repeat("x", 4<<20) + `"}`, "state['a']", "", want{
		status: executor.Failed, code: "bad_state", message: "state.json is 4194313 bytes; the limit is 4194304",
	}},
	{"becomes too large", "", "state['a'] = 'x' * (50 << 20)", "", want{
		status: executor.Failed, code: "bad_state", message: "bytes; the limit is 4194304",
	}},
	{"a value without a JSON form", "", "state['a'] = {1, 2}", "", want{
		status: executor.Failed, code: "bad_state",
		message: "state['a'] cannot be saved as JSON: a value of type set has no JSON form",
	}},
	{"not a number", "", "state['a'] = float('nan')", "", want{
		status: executor.Failed, code: "bad_state",
		message: "state['a'] cannot be saved as JSON",
	}},
	{
		"the longest integer", "", "state['n'] = 1 - 10**4300",
		"{\n  \"n\": -" + strings.Repeat("9", 4300) + "\n}\n",
		want{},
	},
	{"a longer integer", "", "import sys\nsys.set_int_max_str_digits(0)\nstate['n'] = [-10**4300]", "", want{
		status: executor.Failed, code: "bad_state",
		message: "state['n'] cannot be saved as JSON: an integer has more than 4300 digits",
	}},
	{"an integer that is not text", "", "state['n'] = 10**4300", "", want{
		status: executor.Failed, code: "bad_state",
		message: "state['n'] cannot be saved as JSON: an integer has more than 4300 digits",
	}},
	{"nested deeply", "", nest + "state['n'] = nested(499)", indented(499), want{}},
	{"nested too deeply", "", "import sys\nsys.setrecursionlimit(9000)\n" + nest + "state['n'] = nested(500)", "", want{
		status: executor.Failed, code: "bad_state",
		message: "state['n'] cannot be saved as JSON: it is nested too deeply",
	}},
	{
		"a document nested too deeply",
		`{"n":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, "state", "",
		want{
			status: executor.Failed, code: "bad_state",
			message: "state.json is not JSON: maximum recursion depth exceeded",
		},
	},
	{"surrogates", "", "state['a'] = {'b\\udcff': 1}", "", want{
		status: executor.Failed, code: "bad_state", message: "state['a'] cannot be saved as JSON: 'utf-8' codec",
	}},
	{"a key with surrogates", "", "state['b\\udcff'] = 1", "", want{
		status: executor.Failed, code: "bad_state",
		message: `state['b\udcff'] cannot be saved as JSON: 'utf-8' codec`,
	}},
	{"a document with NaN", `{"a": NaN}`, "state['b'] = 1", "", want{
		status: executor.Failed, code: "bad_state", message: "state.json is not JSON: JSON has no NaN",
	}},
	{"a document with a number beyond floats", `{"a": 1e999}`, "state['b'] = 1", "", want{
		status: executor.Failed, code: "bad_state", message: "state.json is not JSON: the number 1e999 is too large",
	}},
	{"a document with a name twice", `{"a": {"b": 1, "b": 2}}`, "state['c'] = 1", "", want{
		status: executor.Failed, code: "bad_state", message: "state.json is not JSON: the name 'b' occurs twice",
	}},
	{"a document with a name twice after many others", manyNames(), "state['c'] = 1", "", want{
		status: executor.Failed, code: "bad_state", message: "state.json is not JSON: the name 'b' occurs twice",
	}},
	{"a document of 501 levels", strings.Repeat(`{"a":`, 501) + "1" + strings.Repeat("}", 501), "state", "", want{
		status: executor.Failed, code: "bad_state", message: "state.json is not JSON: it is nested too deeply",
	}},
	{"a document with a long fraction", `{"a": 0.` + strings.Repeat("1", 4300) + `}`, "state", "", want{
		status: executor.Failed, code: "bad_state", message: "a number has more than 4300 digits",
	}},
	{"a document that is not UTF-8", "{\"a\": \"\xff\"}", "state['b'] = 1", "", want{
		status: executor.Failed, code: "bad_state", message: "state.json is not JSON: 'utf-8' codec can't decode",
	}},
	{"a document in UTF-16", "{\x00}\x00", "state['b'] = 1", "", want{
		status: executor.Failed, code: "bad_state", message: "state.json is not JSON",
	}},
	{"a document with a byte order mark", "\ufeff{}", "state['b'] = 1", "", want{
		status: executor.Failed, code: "bad_state", message: "state.json is not JSON: Unexpected UTF-8 BOM",
	}},
	{
		"a document that is too large with indentation", `{"a":[` + strings.Repeat("[],", 600_000) + `[]]}`,
		"state['b'] = 'é'", `{"a":[` + strings.Repeat("[],", 600_000) + `[]],"b":"é"}` + "\n",
		want{},
	},
	{"a key that is not a string", "", "state[1] = 2", "", want{
		status: executor.Failed, code: "bad_state",
		message: "state: the key 1 is not a string",
	}},
	{"keys of different types", "", "state['a'] = {1: 2, '1': 3}", "", want{
		status: executor.Failed, code: "bad_state",
		message: "state['a'] cannot be saved as JSON: a dictionary has keys of different types",
	}},
	{
		"keys with the same text",
		"", "class K(str):\n  def __hash__(self): return id(self)\n  __eq__ = object.__eq__\n" +
			"state[K('a')] = 1; state[K('a')] = 2; state['a'] = 3",
		"{\n  \"a\": 3\n}\n",
		want{},
	},
	{
		"a key of the document as another object", `{"a":1}`,
		"class K(str):\n  def __hash__(self): return id(self)\n  __eq__ = object.__eq__\n" +
			"del state['a']; state[K('a')] = 2",
		"{\n  \"a\": 2\n}\n",
		want{},
	},
}

// manyNames returns a document with many names, of which only the last one occurs twice.
func manyNames() string {
	var names strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&names, `"%d":0,`, i)
	}
	return "{" + names.String() + `"b":1,"b":2}`
}

// nest is the start of a program that nests lists.
const nest = "def nested(levels):\n  value = 1\n  for _ in range(levels): value = [value]\n  return value\n"

// indented returns a state document with nested lists.
func indented(levels int) string {
	var open, end strings.Builder
	for i := 1; i <= levels; i++ {
		open.WriteString("[\n" + strings.Repeat("  ", i+1))
		end.WriteString("\n" + strings.Repeat("  ", levels+1-i) + "]")
	}
	return "{\n  \"n\": " + open.String() + "1" + end.String() + "\n}\n"
}

// testState tests the variable state, and the module client.session.
func testState(t *testing.T, newDriver driverFunc) {
	b := open(t, newDriver(t), executor.Spec{})
	file := filepath.Join(b.spec.Workspace, "state.json")
	document := executor.StateDocument{File: "state.json", Save: true}
	for _, c := range stateCases {
		t.Run(c.name, func(t *testing.T) {
			if c.document != "" {
				writeFiles(t, b.spec.Workspace, map[string]string{"state.json": c.document})
			}
			if err := os.Chmod(file, 0o666); err != nil && c.document != "" {
				t.Fatal(err)
			}
			v := b.runProgram(t, executor.Program{Code: c.code, State: &document}, executor.Hooks{})
			c.want.check(t, v)
			if saved := c.after != ""; v.StateSaved != saved {
				t.Errorf("StateSaved = %t, want %t", v.StateSaved, saved)
			}
			if c.after == "" {
				c.after = c.document
			}
			got, _ := os.ReadFile(file)
			if string(got) != c.after {
				t.Errorf("state.json = %.200s, want %.200s", got, c.after)
			}
			if left, _ := filepath.Glob(filepath.Join(b.spec.Workspace, ".*")); left != nil {
				t.Errorf("the program has left %v", left)
			}
			emptyWorkspace(t, b.spec.Workspace)
		})
	}
	t.Run("not enabled", func(t *testing.T) {
		v := b.runProgram(t, executor.Program{Code: "state['a'] = 1"}, executor.Hooks{})
		want{
			status: executor.Failed, code: "exception", message: "NameError: name 'state' is not defined", line: 1,
			cause: "NameError",
		}.check(t, v)
	})
	t.Run("not saved", func(t *testing.T) {
		p := executor.Program{Code: "state['a'] = 1", State: &executor.StateDocument{File: "state.json"}}
		v := b.runProgram(t, p, executor.Hooks{})
		want{}.check(t, v)
		if v.StateSaved {
			t.Error("StateSaved = true, want false")
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("state.json exists, want none: it is not to be saved")
		}
	})
	t.Run("content of the host", func(t *testing.T) {
		p := executor.Program{
			Code: "state['n'] += inputs\nstate['n']", Inputs: json.RawMessage("2"),
			State: &executor.StateDocument{File: "state/plan.yaml", Content: json.RawMessage(`{"n":40}`), Save: true},
		}
		v := b.runProgram(t, p, executor.Hooks{})
		want{result: "42"}.check(t, v)
		if !v.StateSaved {
			t.Error("StateSaved = false, want true")
		}
		got, _ := os.ReadFile(filepath.Join(b.spec.Workspace, "state/plan.yaml"))
		if want := "{\n  \"n\": 42\n}\n"; string(got) != want {
			t.Errorf("state/plan.yaml = %q, want %q", got, want)
		}
		emptyWorkspace(t, b.spec.Workspace)
	})
	t.Run("content of the host, and a file of the program", func(t *testing.T) {
		v := b.runProgram(t, executor.Program{
			Code: "import os\nos.mkdir('state')\nwith open('state/plan.yaml', 'w') as f: f.write('m: 1')\n" +
				"state['n'] = 41",
			State: &executor.StateDocument{File: "state/plan.yaml", Content: json.RawMessage(`{"n":40}`), Save: true},
		}, executor.Hooks{})
		want{
			status: executor.Failed, code: "bad_state",
			message: "the program has changed state/plan.yaml both as a file and through `state`",
		}.check(t, v)
		if got, _ := os.ReadFile(filepath.Join(b.spec.Workspace, "state/plan.yaml")); string(got) != "m: 1" {
			t.Errorf("state/plan.yaml = %q, want what the program wrote", got)
		}
		emptyWorkspace(t, b.spec.Workspace)
	})
	t.Run("an integer that is too large for YAML", func(t *testing.T) {
		v := b.runProgram(t, executor.Program{
			Code:  "state['n'] = -10**308",
			State: &executor.StateDocument{File: "state/plan.yaml", Content: json.RawMessage(`{"n":40}`), Save: true},
		}, executor.Hooks{})
		want{
			status: executor.Failed, code: "bad_state",
			message: "state['n'] cannot be saved as JSON: an integer has more than 308 digits",
		}.check(t, v)
	})
	t.Run("session", func(t *testing.T) { testSession(t, b) })
}

const importSession = "from client.session import checkpoint, resume\n"

func testSession(t *testing.T, b *box) {
	writeFiles(t, b.spec.Workspace, map[string]string{"sessions/s_1.json": `{"tasks":[{}],"checkpoint":{"step":3}}`})
	defer emptyWorkspace(t, b.spec.Workspace)
	session := &executor.TaskSession{Name: "s_1", File: "sessions/s_1.json"}
	for _, c := range []struct {
		name, code string
		session    *executor.TaskSession
		checkpoint string
		want       want
	}{
		{"resume", "from client.session import resume\nresume()", session, "", want{result: `{"step":3}`}},
		{
			"log", "from client import session\n[session.name, len(session.log()['tasks'])]", session, "",
			want{result: `["s_1",1]`},
		},
		{
			"another working directory",
			"import os\nfrom client import session\nos.chdir('/')\n[session.resume(), len(session.log()['tasks'])]",
			session, "",
			want{result: `[{"step":3},1]`},
		},
		{
			"checkpoint", importSession + "checkpoint({'a': 1}, step=4)\nresume()", session,
			`{"a": 1, "step": 4}`,
			want{result: `{"a":1,"step":4}`},
		},
		{
			"the last one counts", importSession + "checkpoint(step=1)\ncheckpoint(step=2)", session,
			`{"step": 2}`,
			want{},
		},
		{"too large", "from client.session import checkpoint\ncheckpoint(a='x' * 20000)", session, "", want{
			status: executor.Failed, code: "exception",
			message: "ValueError: the checkpoint is 20009 bytes of JSON; the limit is 16384",
			cause:   "ValueError", line: 2,
		}},
		{"surrogates", importSession + "checkpoint(last='a\\udcff')", session, "", want{
			status: executor.Failed, code: "exception",
			message: `UnicodeEncodeError: 'utf-8' codec can't encode character '\udcff'`,
			cause:   "UnicodeEncodeError", line: 2,
		}},
		{
			"the longest integer", importSession + "checkpoint(n=1 - 10**4300)", session,
			`{"n": -` + strings.Repeat("9", 4300) + `}`,
			want{},
		},
		{
			"a longer integer",
			importSession + "import sys\nsys.set_int_max_str_digits(0)\ncheckpoint(n=-10**4300)", session, "",
			want{
				status: executor.Failed, code: "exception",
				message: "ValueError: an integer has more than 4300 digits",
				cause:   "ValueError", line: 4,
			},
		},
		{
			"nested deeply", importSession + nest + "checkpoint(n=nested(63))", session,
			`{"n": ` + strings.Repeat("[", 63) + "1" + strings.Repeat("]", 63) + "}",
			want{},
		},
		{"nested too deeply", importSession + nest + "checkpoint(n=nested(64))", session, "", want{
			status: executor.Failed, code: "exception", message: "ValueError: it is nested too deeply",
			cause: "ValueError", line: 6,
		}},
		{"keys with one name", importSession + "checkpoint({1: 'a', '1': 'b'})", session, `{"1": "b"}`, want{}},
		{
			"a long checkpoint and a long error",
			importSession + "checkpoint(x='\"' * 8150)\nraise ValueError('\U0001F600' * 10_000)", session,
			`{"x": "` + strings.Repeat(`\"`, 8150) + `"}`,
			want{
				status: executor.Failed, code: "exception", message: "ValueError: \U0001F600\U0001F600",
				cause: "ValueError",
				line:  3,
			},
		},
		{"no session", "from client.session import checkpoint\ncheckpoint(step=1)", nil, "", want{
			status: executor.Failed, code: "exception", message: "RuntimeError: this task has no session",
			cause: "RuntimeError", line: 2,
		}},
		{"forged", "from client import session\nsession.saved = '[1]'", session, "", want{}},
		{"forged JSON", "from client import session\nsession.saved = '{' * 100", session, "", want{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := b.runProgram(t, executor.Program{Code: c.code, Session: c.session}, executor.Hooks{})
			c.want.check(t, v)
			if string(v.Checkpoint) != c.checkpoint {
				t.Errorf("Checkpoint = %s, want %s", v.Checkpoint, c.checkpoint)
			}
		})
	}
}
