package executortest

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/removal"
)

// want is the expected verdict.
type want struct {
	status         string // default succeeded
	result         string // default null
	output, stderr string
	code           string
	message, cause string // substrings of the failure's message and cause
	line           int
}

// check fails the test unless the verdict is as wanted.
func (w want) check(t *testing.T, v executor.Verdict) {
	t.Helper()
	got := want{status: v.Status, result: string(v.Result), output: v.Output, stderr: v.Stderr}
	if w.status == "" {
		w.status = executor.Succeeded
	}
	if w.result == "" {
		w.result = "null"
	}
	if f := v.Error; f != nil {
		got.code, got.line = f.Code, f.Line
		if strings.Contains(f.Message, w.message) {
			got.message = w.message
		} else {
			got.message = f.Message
		}
		if strings.Contains(f.Cause, w.cause) {
			got.cause = w.cause
		} else {
			got.cause = f.Cause
		}
	}
	if diff := cmp.Diff(w, got, cmp.AllowUnexported(want{})); diff != "" {
		t.Errorf("verdict (-want +got):\n%s\n%s", truncate(diff), format(v))
	}
}

var programs = []struct {
	name, code string
	want       want
}{
	{"the last expression", "x = 6\nx * 7", want{result: "42"}},
	{"the variable result", "result = {'a': (1, 2)}\nprint('x')", want{result: `{"a":[1,2]}`, output: "x\n"}},
	{"the last expression first", "result = 1\n2", want{result: "2"}},
	{"a function called result", "def result(): pass", want{}},
	{"nothing", "", want{}},
	{"inputs", "inputs['n'] + 1", want{result: "42"}},
	{
		"conversions", `
import dataclasses, datetime, decimal, enum, collections
@dataclasses.dataclass
class Point:
    x: int
    y: float
class Colour(enum.Enum):
    RED = 'red'
Pair = collections.namedtuple('Pair', 'a b')
[Point(1, float('nan')), datetime.date(2026, 1, 2), {3, 1, 2}, b'\x00\xff', Colour.RED, Pair(1, 2),
 {1: None, None: True}, decimal.Decimal('1.10'), range(3), float('inf'), {'k': 1}.keys(), '\u00e9']`,
		want{result: `[{"x":1,"y":null},"2026-01-02",[1,2,3],{"$base64":"AP8="},"red",{"a":1,"b":2},` +
			`{"1":null,"null":true},"1.10",[0,1,2],null,["k"],"\u00e9"]`},
	},
	{
		"values without a JSON form", "class A:\n  def __repr__(self): return 'an A'\n[A(), A]",
		want{result: `[{"$type":"__main__.A","$repr":"an A"},` +
			`{"$type":"builtins.type","$repr":"<class '__main__.A'>"}]`},
	},
	{
		"a repr that raises", "class A:\n  def __repr__(self): 1/0\nA()",
		want{result: `{"$type":"__main__.A","$repr":"<repr: ZeroDivisionError>"}`},
	},
	{"the longest integer", "1 - 10**4300", want{result: "-" + strings.Repeat("9", 4300)}},
	{
		"a longer integer", "import sys\nsys.set_int_max_str_digits(0)\n[-10**4300]",
		want{result: `[{"$type":"builtins.int","$repr":"-1` + strings.Repeat("0", 1998) + `"}]`},
	},
	{"a large result", "'x' * 980_000", want{result: `"` + strings.Repeat("x", 980_000) + `"`}},
	{
		"a result above the limit", "'x' * 1_000_000",
		want{status: "failed", code: "result_too_large", message: "983040"},
	},
	{
		"an endless result", "a = []\nfor _ in range(59): a = [a, a]\na",
		want{status: "failed", code: "result_too_large"},
	},
	{
		"a syntax error", "x = 1\ny = = 2",
		want{status: "failed", code: "syntax_error", message: "SyntaxError", cause: "y = = 2", line: 2},
	},
	{
		"a NUL character", "x = 1\ny\x00",
		want{status: "failed", code: "syntax_error", message: "the program contains a NUL character", line: 2},
	},
	{
		"an exception", "def f(x):\n  return 1 / x\n\nf(0)\n",
		want{
			status: "failed", code: "exception", message: "ZeroDivisionError: division by zero", line: 2,
			cause: "Traceback (most recent call last):\n  File \"program.py\", line 4, in <module>",
		},
	},
	{
		"an exception in a library", "import json\njson.loads('{')",
		want{status: "failed", code: "exception", message: "JSONDecodeError", line: 2, cause: "in raw_decode"},
	},
	{
		"an exception that raises", "class E(Exception):\n  def __str__(self): 1/0\nraise E",
		want{status: "failed", code: "exception", message: "E: <", line: 3},
	},
	{"recursion", "def f(): f()\nf()", want{status: "failed", code: "exception", message: "RecursionError", line: 1}},
	{"nesting", strings.Repeat("-", 100_000) + "1", want{status: "failed", code: "syntax_error"}},
	{"SystemExit(0)", "result = 5\nraise SystemExit(0)", want{result: "5"}},
	{"SystemExit(3)", "import sys\nsys.exit(3)", want{status: "failed", code: "exit_code", message: "exit code 3"}},
	{
		"SystemExit(text)", "exit('no more')",
		want{status: "failed", code: "exit_code", message: "exit code 1", stderr: "no more\n"},
	},
	{
		"SystemExit(text) without standard error", "import sys\nsys.stderr.close()\nsys.exit('no more')",
		want{status: "failed", code: "exit_code", message: "exit code 1"},
	},
	{
		"SystemExit of what has no text",
		"class X:\n  def __str__(self): raise ValueError\nimport sys\nsys.exit(X())",
		want{status: "failed", code: "exit_code", message: "exit code 1"},
	},
	{"no standard output", "import sys\ndel sys.stdout, sys.stderr\n5", want{result: "5"}},
	{
		"a standard output that raises",
		"import sys\nclass X:\n  def write(self, s): raise SystemExit\n  flush = write\n" +
			"sys.stdout = sys.stderr = X()\n5",
		want{result: "5"},
	},
	{
		"an exit handler that raises without standard error",
		"import atexit, sys\natexit.register(lambda: 1/0)\nsys.stderr.close()\n5",
		want{result: "5"},
	},
	{
		"a mapping above the memory limit", "import mmap\nmmap.mmap(-1, 1 << 33)",
		want{status: "failed", code: "memory_limit", line: 2},
	},
	{
		"an exception whose class has no name",
		"class M(type):\n  __name__ = property(lambda cls: 1/0)\nclass E(OSError, metaclass=M):\n" +
			"  errno = property(lambda self: 1/0)\nraise E",
		want{status: "failed", code: "exception", message: "E", line: 5},
	},
	{
		"the lowest recursion limit",
		"import sys\nfor n in range(1, 50):\n  try: sys.setrecursionlimit(n); break\n  except RecursionError: pass\n5",
		want{result: "5"},
	},
	{
		"a profile function that raises", `
import sys
def profile(frame, event, arg):
    if frame.f_code.co_filename != "program.py": raise KeyboardInterrupt
sys.setprofile(profile)
5`, want{status: "failed", code: "exception", message: "KeyboardInterrupt", line: 4},
	},
	{
		"a signal handler that raises", `
import signal
def handler(number, frame): raise TimeoutError("too late")
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.0003)
while True: pass`, want{status: "failed", code: "exception", message: "TimeoutError", line: 3},
	},
	{
		"a call that took NaN ms",
		"from client.mcp_client import report_call\nreport_call('a', 't', float('nan'), True)",
		want{status: "failed", code: "exception", message: "ValueError", line: 2},
	},
	{
		"a call with long names", "from client.mcp_client import report_call\nreport_call('a' * 70000, 't', 1, True)",
		want{},
	},
	{
		"SIGXCPU", "import os, signal\nos.kill(os.getpid(), signal.SIGXCPU)",
		want{status: "failed", code: "signal", message: "SIGXCPU"},
	},
	{"os._exit(7)", "import os\nos._exit(7)", want{status: "failed", code: "exit_code", message: "exit code 7"}},
	{
		"os._exit(121)", "import os\nos._exit(121)",
		want{status: "failed", code: "exit_code", message: "exit code 121"},
	},
	{"os._exit(0)", "import os\nos._exit(0)", want{}},
	{
		"a segmentation fault", "import ctypes\nctypes.string_at(0)",
		want{status: "failed", code: "signal", message: "SIGSEGV"},
	},
	{
		"abort", "import os\nprint('x')\nos.abort()",
		want{status: "failed", code: "signal", message: "SIGABRT", output: "x\n"},
	},
	{
		"killing itself", "import os\nos.kill(os.getpid(), 9)",
		want{status: "failed", code: "signal", message: "SIGKILL"},
	},
	{
		"streams", "import sys\nprint('a', end='')\nprint('b', file=sys.stderr)\nsys.stdout.write('c')\nNone",
		want{output: "ac", stderr: "b\n"},
	},
	{"bytes that are not text", "import os\nos.write(1, b'a\\xffb')\nNone", want{output: "a\uFFFDb"}},
	{"surrogates", "print('\\udcff')", want{output: "\\udcff\n"}},
	{
		"surrogates in the result", "import pathlib\n{'\\udcff': ['\\ud800x', pathlib.Path('\\udcff'), '\U0001F600']}",
		want{result: `{"\\udcff":["\\ud800x","\\udcff","\ud83d\ude00"]}`},
	},
	{"standard input", "input()", want{status: "failed", code: "exception", message: "EOFError", line: 1}},
	{
		"main", "__name__ == '__main__' and __import__('sys').modules['__main__'].__dict__ is globals()",
		want{result: "true"},
	},
	{
		"threads are waited for",
		"import threading\nresult = []\nthreading.Thread(target=lambda: (threading.Event().wait(.05), " +
			"result.append(1))).start()",
		want{result: "[1]"},
	},
	{"atexit", "import atexit\natexit.register(print, 'bye')\nNone", want{output: "bye\n"}},
	{
		"a fork", "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('twice')\npid > 0",
		want{output: "twice\ntwice\n", result: "true"},
	},
	{
		"a subprocess",
		"import subprocess\nsubprocess.run(['/bin/sh', '-c', 'echo out; echo err >&2; exit 3']).returncode",
		want{result: "3", output: "out\n", stderr: "err\n"},
	},
	{"futures", "from __future__ import annotations\ndef f(x: nothing): pass\nf(1)", want{}},
	{
		"the working directory",
		"import os\nopen('made.txt', 'w').write('x')\n[n for n in os.listdir() if n not in ('client', 'servers')]",
		want{result: `["made.txt"]`},
	},
	{
		"modules of the workspace",
		"open('mine.py', 'w').write('x = 3')\nopen('json.py', 'w').write('1/0')\nimport mine, json\nmine.x",
		want{result: "3"},
	},
	{
		"descriptors",
		"import os\nsorted(int(n) for n in os.listdir('/proc/self/fd'))[:4], len(os.listdir('/proc/self/fd'))",
		want{result: "[[0,1,2,3],5]"},
	},
	{
		"environment", "import os\n[os.environ.get('GREETING'), os.environ.get('SECRET_OF_THE_HOST')]",
		want{result: `["hello",null]`},
	},
	{"its own session", "import os\nos.getsid(0) == os.getpid() == os.getpgid(0)", want{result: "true"}},
	{
		"privileges", "[l for l in open('/proc/self/status') if l.startswith('NoNewPrivs')][0].split()[1]",
		want{result: `"1"`},
	},
}

// testOwnLines checks that errors quote the program, although the workspace has a file with its name.
func testOwnLines(t *testing.T, b *box) {
	defer emptyWorkspace(t, b.spec.Workspace)
	writeFiles(t, b.spec.Workspace, map[string]string{"program.py": strings.Repeat("another = 'file'\n", 10)})
	for name, code := range map[string]string{
		"syntax":         "x = 1\n= own_line",
		"compiler":       "x = 1\nreturn own_line",
		"exception":      "x = 1\nown_line",
		"other newlines": "x = '\u2028\x0c'\nown_line",
		"cleared cache":  "import linecache\nlinecache.clearcache()\nlinecache.checkcache()\nown_line",
		"printed": "import linecache, traceback\nlinecache.clearcache()\n" +
			"try: own_line\nexcept NameError: traceback.print_exc()",
		"thread": "import threading\ndef f(): own_line\nt = threading.Thread(target=f)\nt.start()\nt.join()",
		"thread's exit": "import sys, threading\nt = threading.Thread(target=sys.exit)\n" +
			"t.start()\nt.join()\nown_line",
		"in a destructor": "class A:\n  def __del__(self): own_line\nA()\nNone",
		"at exit":         "import atexit\ndef f(): own_line\natexit.register(f)\nNone",
	} {
		v := b.run(t, code)
		said := v.Stderr
		if v.Error != nil {
			said += v.Error.Cause
		}
		if !strings.Contains(said, "own_line\n") || strings.Contains(said, "another") {
			t.Errorf("%s: the error is\n%s\nwant it to quote the program's own_line", name, said)
		}
	}
}

func testPrograms(t *testing.T, newDriver driverFunc) {
	t.Setenv("SECRET_OF_THE_HOST", "secret")
	b := open(t, newDriver(t), executor.Spec{})
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			v := b.runProgram(t, executor.Program{
				Code:   p.code,
				Inputs: json.RawMessage(`{"n": 41}`),
				Env:    map[string]string{"GREETING": "hello"},
			}, executor.Hooks{})
			p.want.check(t, v)
			if v.Dirty || !b.single.Alive() {
				t.Errorf("after the program: dirty %v, alive %v, want a clean, living box", v.Dirty, b.single.Alive())
			}
			emptyWorkspace(t, b.spec.Workspace)
		})
	}
	t.Run("own lines", func(t *testing.T) { testOwnLines(t, b) })
	t.Run("randomness", func(t *testing.T) { testRandomness(t, b) })
	t.Run("resources", func(t *testing.T) {
		v := b.run(t, "x = bytearray(50_000_000)\nfor i in range(3_000_000): pass")
		if v.CPUMS < 10 || v.CPUMS > 20_000 || v.PeakMemoryMB < 48 || v.PeakMemoryMB > 500 {
			t.Errorf("resources of a busy program with 50 MB = %v ms and %v MB, want 10 to 20,000 ms and 48 to 500 MB",
				v.CPUMS, v.PeakMemoryMB)
		}
	})
	t.Run("mapped", func(t *testing.T) {
		const code = "import mmap\nf = open('mapped', 'wb+')\nf.truncate(4 << 20)\n" +
			"m = mmap.mmap(f.fileno(), 4 << 20)\nm[:] = b'x' * (4 << 20)\n1"
		want{result: "1"}.check(t, b.run(t, code))
		got, err := os.ReadFile(filepath.Join(b.spec.Workspace, "mapped"))
		if err != nil || string(got) != strings.Repeat("x", 4<<20) {
			t.Errorf("the file has %d bytes, %d of them written through the mapping, %v; want 4 MiB, all written",
				len(got), strings.Count(string(got), "x"), err)
		}
		emptyWorkspace(t, b.spec.Workspace)
	})
	t.Run("large inputs", func(t *testing.T) {
		inputs, err := json.Marshal(strings.Repeat("x", 5<<20))
		if err != nil {
			t.Fatal(err)
		}
		v := b.runProgram(t, executor.Program{Code: "len(inputs)", Inputs: inputs}, executor.Hooks{})
		want{result: "5242880"}.check(t, v)
	})
	t.Run("a number in the inputs that no float can hold", func(t *testing.T) {
		v := b.runProgram(t, executor.Program{Code: "inputs", Inputs: json.RawMessage("[1e400]")}, executor.Hooks{})
		want{
			status: "failed", code: "exception", message: "ValueError: the number 1e400 is too large for a float",
		}.check(t, v)
	})
	t.Run("facts", func(t *testing.T) { testFacts(t, b) })
	t.Run("facts without a check", func(t *testing.T) { testFactsWithoutCheck(t, b) })
	t.Run("blocked", func(t *testing.T) { testBlocked(t, b) })
}

// isView reports whether a name in the workspace is the mount point of a view.
func isView(name string) bool { return name == "client" || name == "servers" }

// emptyWorkspace removes the files of a program from its workspace.
func emptyWorkspace(t *testing.T, dir string) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if below, _ := os.ReadDir(filepath.Join(dir, e.Name())); isView(e.Name()) && len(below) == 0 {
			continue // a mount point
		}
		err = errors.Join(err, removal.All(root, e.Name()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func testRandomness(t *testing.T, b *box) {
	draw := func(task string) string {
		const code = "import random, os\n[random.random(), hash('x'), len(os.urandom(4))]"
		return string(b.runProgram(t, executor.Program{TaskID: task, Code: code}, executor.Hooks{}).Result)
	}
	first, again, other := draw("one"), draw("one"), draw("two")
	if first != again || first == other {
		t.Errorf("random numbers of a task = %s and %s, of another task = %s; want only the first two equal",
			first, again, other)
	}
}

func testFacts(t *testing.T, b *box) {
	const code = `import os, numpy.linalg as la
from subprocess import run as go
if False:
    os.system('x'); la.inv(1)
    go(['x'])
    open('f').read()
    ().__class__.__bases__
'ran'`
	var got executor.Facts
	v := b.runProgram(t, executor.Program{Code: strings.Replace(code, ", numpy.linalg as la", "", 1)}, executor.Hooks{
		Check: func(f executor.Facts) error { got = f; return nil },
	})
	want{result: `"ran"`}.check(t, v)
	facts := executor.Facts{
		Lines:   8,
		Imports: []executor.Import{{Module: "os", Line: 1}, {Module: "subprocess", Names: []string{"run"}, Line: 2}},
		Calls: []executor.Name{
			{Name: "os.system", Line: 4},
			{Name: "la.inv", Line: 4},
			{Name: "subprocess.run", Line: 5},
			{Name: ".read", Line: 6},
			{Name: "open", Line: 6},
		},
		Attributes: []executor.Name{{Name: "__bases__", Line: 7}, {Name: "__class__", Line: 7}},
		References: []executor.Name{},
		Paths:      []executor.Path{{Name: "open", Path: "f", Line: 6}},
		Signs:      []executor.Sign{},
	}
	if diff := cmp.Diff(facts, got); diff != "" {
		t.Errorf("facts that hook Check got (-want +got):\n%s", diff)
	}
}

// testFactsWithoutCheck checks that a program does not wait for Facts, and that facts of any size arrive.
func testFactsWithoutCheck(t *testing.T, b *box) {
	names := "import os\n" + strings.Repeat("os."+strings.Repeat("\u4e00", 300)+"\n", 1500)
	deep := "if 0: x = " + strings.Repeat("-(", 90) + "1" + strings.Repeat(")", 90)
	for _, c := range []struct {
		name, code string
		truncated  bool
	}{
		{"small", "6*7", false},
		{"many long names", "if 0:\n " + strings.ReplaceAll(strings.TrimSpace(names), "\n", "\n ") + "\n6*7", true},
		{"nested", deep + "\n6*7", false},
	} {
		var got *executor.Facts
		v := b.runProgram(t, executor.Program{Code: c.code}, executor.Hooks{Facts: func(f executor.Facts) { got = &f }})
		want{result: "42"}.check(t, v)
		lines := strings.Count(c.code, "\n") + 1
		if got == nil || got.Truncated != c.truncated || got.Lines != lines {
			t.Errorf("%s: hook Facts got %+v, want %d lines, truncated %t", c.name, got, lines, c.truncated)
		}
		b.checkNext(t)
	}
}

// testBlocked checks that a program does not run if Check returns an error, and that the verdict has this error.
func testBlocked(t *testing.T, b *box) {
	for _, err := range []error{
		errors.New("no systems here"),
		&executor.Failure{Code: "forbidden_import", Message: "no systems here", Line: 1},
	} {
		v := b.runProgram(t, executor.Program{Code: "import os\nopen('ran', 'w')"}, executor.Hooks{
			Check: func(executor.Facts) error { return err },
		})
		expected := want{status: executor.Blocked, code: errcode.Blocked, message: "no systems here"}
		if f := (*executor.Failure)(nil); errors.As(err, &f) {
			expected.code, expected.line = f.Code, f.Line
		}
		expected.check(t, v)
		if _, err := os.Lstat(filepath.Join(b.spec.Workspace, "ran")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stat of a blocked program's file = %v, want that it does not exist", err)
		}
		b.checkNext(t)
	}
	called := false
	v := b.runProgram(t, executor.Program{Code: "x ="}, executor.Hooks{
		Check: func(executor.Facts) error { called = true; return nil },
	})
	want{status: executor.Failed, code: "syntax_error", line: 1, message: "invalid syntax"}.check(t, v)
	if called {
		t.Error("Check was called for a program that cannot be parsed, want no call")
	}
}
