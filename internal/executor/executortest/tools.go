package executortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
)

// echo returns the arguments of a call as its result.
func echo(_ context.Context, c executor.Call) (executor.CallResult, error) {
	return executor.CallResult{Value: c.Args}, nil
}

// resultOf returns v as the result of a call.
func resultOf(v any) (executor.CallResult, error) {
	data, err := json.Marshal(v)
	return executor.CallResult{Value: data}, err
}

func testTools(t *testing.T, newDriver driverFunc) {
	catalogue := openDir(t)
	module := filepath.Join(catalogue, "v1", "servers", "calculator")
	const add = "from client.mcp_client import call_mcp_tool\n" +
		"def add(a, b):\n    return call_mcp_tool('calculator', 'add', {'a': a, 'b': b}, hash='abc')\n"
	if err := errors.Join(os.MkdirAll(module, 0o755),
		os.WriteFile(filepath.Join(module, "__init__.py"), []byte(add), 0o644)); err != nil {
		t.Fatal(err)
	}
	b := open(t, newDriver(t), executor.Spec{Mounts: []executor.Mount{{
		Source: catalogue, Target: executor.DefaultGuest().Catalogue, ReadOnly: true,
	}}})

	t.Run("a module of the catalogue", func(t *testing.T) {
		var call executor.Call
		v := b.runProgram(t, executor.Program{Catalogue: "v1", Code: "from servers.calculator import add\nadd(1, 2)"},
			executor.Hooks{
				Call: func(_ context.Context, c executor.Call) (executor.CallResult, error) {
					call = c
					return executor.CallResult{Value: json.RawMessage(`{"sum": 3}`)}, nil
				},
			})
		want{result: `{"sum":3}`}.check(t, v)
		if call.Server != "calculator" || call.Tool != "add" || call.Hash != "abc" ||
			string(call.Args) != `{"a":1,"b":2}` {
			t.Errorf(`hook Call got %+v, arguments %s, want calculator.add, hash abc, {"a":1,"b":2}`, call, call.Args)
		}
	})
	t.Run("modules compiled ahead", func(t *testing.T) { testCompiled(t, b, catalogue) })
	for _, c := range toolCalls {
		t.Run(c.name, func(t *testing.T) {
			v := b.runProgram(t, executor.Program{Code: "from client.mcp_client import *\n" + c.code},
				executor.Hooks{Call: c.call})
			c.want.check(t, v)
			b.checkNext(t)
		})
	}
	t.Run("local calls", func(t *testing.T) { testLocal(t, b) })
	t.Run("calls overlap", func(t *testing.T) { testOverlap(t, b) })
	t.Run("output while it runs", func(t *testing.T) { testLive(t, b) })
	t.Run("a call that times out", func(t *testing.T) {
		v := b.runProgram(t, executor.Program{
			Code:   "from client.mcp_client import *\ncall_mcp_tool('s', 't')",
			Limits: executor.Limits{Timeout: 200 * time.Millisecond},
		}, executor.Hooks{Call: func(ctx context.Context, _ executor.Call) (executor.CallResult, error) {
			<-ctx.Done()
			return executor.CallResult{}, ctx.Err()
		}})
		want{status: executor.Timeout, code: "timeout"}.check(t, v)
		b.checkNext(t)
	})
}

var toolCalls = []struct {
	name, code string
	call       func(context.Context, executor.Call) (executor.CallResult, error)
	want       want
}{
	{
		"no tools", "call_mcp_tool('s', 't', {})", nil,
		want{status: "failed", code: "exception", message: "ToolError: s.t: this task has no tools", line: 2},
	},
	{
		"an error", "try:\n  call_mcp_tool('s', 't')\nexcept ToolError as e:\n" +
			"  result = [e.server, e.tool, e.message, e.code]",
		func(context.Context, executor.Call) (executor.CallResult, error) {
			err := errors.New("out of \"order\"\n") //nolint:revive,staticcheck // the text comes from a tool
			return executor.CallResult{}, err
		},
		want{result: `["s","t","out of \"order\"\n","internal"]`},
	},
	{
		"the codes of errors", `
codes = []
for arguments in ({}, {"a": object()}, {"a": "x" * 1_100_000}):
  try: call_mcp_tool("s", "t", arguments)
  except ToolError as e: codes.append(e.code)
import pickle
codes.append(pickle.loads(pickle.dumps(e := ToolError("s", "t", "m", "timeout"))).code)
result = codes`,
		func(context.Context, executor.Call) (executor.CallResult, error) {
			return executor.CallResult{}, fmt.Errorf("wrapped: %w",
				&executor.CallError{Code: "over_budget", Err: errors.New("nine calls")})
		},
		want{result: `["over_budget","bad_arguments","bad_arguments","timeout"]`},
	},
	{"no arguments", "call_mcp_tool('s', 't')", echo, want{result: "{}"}},
	{
		"arguments without a JSON form", "call_mcp_tool('s', 't', {'a': object()})", echo,
		want{status: "failed", code: "exception", message: "not JSON serializable", line: 2},
	},
	{
		"NaN", "call_mcp_tool('s', 't', {'a': float('nan')})", echo,
		want{status: "failed", code: "exception", message: "s.t: arguments", line: 2},
	},
	{"large arguments", "len(call_mcp_tool('s', 't', {'a': 'x' * 900_000})['a'])", echo, want{result: "900000"}},
	{
		"too large arguments", "call_mcp_tool('s', 't', {'a': 'x' * 1_100_000})", echo,
		want{
			status: "failed", code: "exception",
			message: "the arguments are 1100008 bytes of JSON; the limit is 1048576: send a part at a time", line: 2,
		},
	},
	{
		"names that are too long", `
for names in ("s" * 600, "t"), ("s", "t" * 600), ("s", "t", {}, "h" * 600):
    try: call_mcp_tool(*names)
    except ToolError as e: assert str(e).endswith("a name is longer than 512 characters"), e
call_mcp_tool("s" * 512, "t" * 512, {"a": 1})`, echo,
		want{result: `{"a":1}`},
	},
	{
		"arguments that contain themselves", "a = []\na.append(a)\ncall_mcp_tool('s', 't', {'a': a})", echo,
		want{status: "failed", code: "exception", message: "ToolError: s.t: arguments: Circular reference", line: 4},
	},
	{
		"deeply nested arguments", "a = []\nfor i in range(5000): a = [a]\n" +
			"call_mcp_tool('s', 't', {'a': a})", echo,
		want{
			status: "failed", code: "exception", message: "ToolError: s.t: arguments: maximum recursion depth",
			line: 4,
		},
	},
	{
		"a deeply nested result", "call_mcp_tool('s', 't')",
		func(context.Context, executor.Call) (executor.CallResult, error) {
			nested := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
			return executor.CallResult{Value: json.RawMessage(nested)}, nil
		},
		want{
			status: "failed", code: "exception",
			message: "ToolError: s.t: the result cannot be decoded: maximum recursion depth", line: 2,
		},
	},
	{
		"a number in a result that no float can hold", "call_mcp_tool('s', 't')",
		func(context.Context, executor.Call) (executor.CallResult, error) {
			return executor.CallResult{Value: json.RawMessage(`{"n": [1e308, -1e400]}`)}, nil
		},
		want{
			status: "failed", code: "exception",
			message: "ToolError: s.t: the result cannot be decoded: the number -1e400 is too large for a float",
			line:    2,
		},
	},
	{
		"a long number as result", "len(str(call_mcp_tool('s', 't')))",
		func(context.Context, executor.Call) (executor.CallResult, error) {
			return executor.CallResult{Value: json.RawMessage(strings.Repeat("7", 4000))}, nil
		},
		want{result: "4000"},
	},
	{
		"calls in threads, some of which the program does not wait for", `
import threading
def spin():
    while True: call_mcp_tool("s", "t", {"x": "y" * 10000})
for i in range(4): threading.Thread(target=spin, daemon=True).start()
sum(call_mcp_tool("s", "t", {"i": i})["i"] for i in range(200))`, echo,
		want{result: "19900"},
	},
	{
		"a large result", "len(call_mcp_tool('s', 't'))",
		func(context.Context, executor.Call) (executor.CallResult, error) {
			return resultOf(strings.Repeat("x", 5<<20))
		},
		want{result: "5242880"},
	},
	{
		"a result above the limit", "call_mcp_tool('s', 't')",
		func(context.Context, executor.Call) (executor.CallResult, error) {
			return resultOf(strings.Repeat("x", 17<<20))
		},
		want{status: "failed", code: "exception", message: "the limit is 16777216", line: 2},
	},
	{
		"content in addition to the value", `
import threading
from client.mcp_client import with_content
def both(): return [call_mcp_tool("s", "t", {"i": i})["i"] for i in range(2)]
value, content = with_content(both)
inner = lambda: with_content(lambda function: call_mcp_tool("s", "t", {"i": function}), function=5)
several, found = with_content(parallel, [lambda i=i: call_mcp_tool("s", "t", {"i": i})["i"] for i in range(3)], limit=3)
alone = call_mcp_tool("s", "t")
result = [value, content, with_content(inner), several, sorted(found, key=str), alone, with_content(len, "abc")]`,
		func(_ context.Context, c executor.Call) (executor.CallResult, error) {
			return executor.CallResult{Value: c.Args, Content: json.RawMessage(`["content ` +
				strings.NewReplacer("{", "", "}", "", `"`, "").Replace(string(c.Args)) + `"]`)}, nil
		},
		want{result: `[[0,1],["content i:0","content i:1"],[[{"i":5},["content i:5"]],[]],` +
			`[0,1,2],["content i:0","content i:1","content i:2"],{},[3,[]]]`},
	},
	{
		"the content of an error", `
import pickle
from client.mcp_client import with_content
try: with_content(call_mcp_tool, "s", "t")
except ToolError as e: first, again = e, pickle.loads(pickle.dumps(e))
try: call_mcp_tool("s", "t", {"a": object()})
except ToolError as e: refused = e
result = [first.message, first.code, first.structured, first.content] + [again.structured, again.content]
result += [refused.structured, refused.content]`,
		func(context.Context, executor.Call) (executor.CallResult, error) {
			return executor.CallResult{}, &executor.CallError{
				Code: "tool_failed", Err: errors.New("limit"),
				Structured: json.RawMessage(`{"retry_after":7}`), Content: json.RawMessage(`["limit",{"path":"/x"}]`),
			}
		},
		want{result: `["limit","tool_failed",{"retry_after":7},["limit",{"path":"/x"}],` +
			`{"retry_after":7},["limit",{"path":"/x"}],null,[]]`},
	},
	{
		"content above the limit", "call_mcp_tool('s', 't')",
		func(context.Context, executor.Call) (executor.CallResult, error) {
			r, err := resultOf(strings.Repeat("x", 9<<20))
			r.Content = json.RawMessage("[" + string(r.Value) + "]")
			return r, err
		},
		want{status: "failed", code: "exception", message: "the limit is 16777216", line: 2},
	},
	{
		"content of an error above the limit", `
try: call_mcp_tool("s", "t")
except ToolError as e: result = [e.message, e.structured, e.content]`,
		func(context.Context, executor.Call) (executor.CallResult, error) {
			r, err := resultOf(strings.Repeat("x", 17<<20))
			return executor.CallResult{}, errors.Join(err,
				&executor.CallError{Code: "tool_failed", Err: errors.New("no"), Structured: r.Value})
		},
		want{result: `["no",null,[]]`},
	},
	{
		"many calls", "sum(parallel([lambda i=i: call_mcp_tool('s', 't', {'i': i})['i'] for i in range(300)], " +
			"limit=40))", echo,
		want{result: "44850"},
	},
	{
		"more calls at once than threads", "sum(parallel([lambda i=i: call_mcp_tool('s', 't', {'i': i})['i'] " +
			"for i in range(2000)], limit=1000))", echo,
		want{result: "1999000"},
	},
	{
		"parallel that raises", "parallel([lambda: 1, lambda: 1 / 0])", echo,
		want{status: "failed", code: "exception", message: "ZeroDivisionError", line: 2},
	},
	{
		"calls from a fork, and from a fork of it", `
import os
def call_from_fork(twice):
    ours, theirs = os.pipe()
    if os.fork():
        os.close(theirs)
        text = open(ours).read()
        os.wait()
        return text
    if not twice or not os.fork():
        try: text = repr(call_mcp_tool("s", "t"))
        except ToolError as e: text = str(e)
        os.write(theirs, text.encode())
    os._exit(0)
texts = [call_from_fork(False), call_from_fork(True)]
refused = [text.startswith("s.t: only the main process of the program") for text in texts]
refused + [call_mcp_tool("s", "t", {"a": 1})["a"]]`, echo,
		want{result: `[true,true,1]`},
	},
	{"frames by hand", `
import json, os
for i in range(1, 2001):
    line = json.dumps({"t": "call", "id": i, "server": "s", "tool": "t", "hash": ""}).encode() + b'\n{}'
    os.write(3, len(line).to_bytes(4, "big") + line)
replies = b''
while replies.count(b'"reply"') < 2000: replies += os.read(3, 65536)
'done'`, echo, want{result: `"done"`}},
	{
		"a call without names", "call_mcp_tool('', '')", echo,
		want{status: "failed", code: "exception", message: "must name a server and a tool", line: 2},
	},
	{"arguments that are not JSON", `
import os
line = b'{"t":"call","id":1,"server":"s","tool":"t","hash":""}\n{'
os.write(3, len(line).to_bytes(4, "big") + line)
b'are not JSON' in os.read(3, 65536)`, echo, want{result: "true"}},
}

// testOverlap makes eight calls and replies to none of them until all have been made.
func testOverlap(t *testing.T, b *box) {
	var all sync.WaitGroup
	all.Add(8)
	const code = "from client.mcp_client import *\n" +
		"parallel([lambda i=i: call_mcp_tool('s', 't', {'i': i}) for i in range(8)])"
	v := b.runProgram(t, executor.Program{Code: code}, executor.Hooks{
		Call: func(_ context.Context, c executor.Call) (executor.CallResult, error) {
			all.Done()
			all.Wait()
			var args struct{ I int }
			err := json.Unmarshal(c.Args, &args)
			return executor.CallResult{Value: json.RawMessage(strconv.Itoa(args.I * args.I))}, err
		},
	})
	want{result: "[0,1,4,9,16,25,36,49]"}.check(t, v)
}

// testLocal runs programs that report calls inside their process, more calls than the limit, and malformed calls.
func testLocal(t *testing.T, b *box) {
	const code = "from client.mcp_client import report_call\nimport os\n" +
		"report_call('s', 't', 1.5, True)\nreport_call('s', 'u', 0, False)\n" +
		"if not os.fork():\n    report_call('s', 'fork', 0, True)\n    os._exit(0)\nos.wait() and None\n"
	run := func(code string) (v executor.Verdict, got []executor.LocalCall) {
		return b.runProgram(t, executor.Program{Code: code},
			executor.Hooks{Called: func(c executor.LocalCall) { got = append(got, c) }}), got
	}
	v, got := run(code)
	want{result: "null"}.check(t, v)
	if diff := cmp.Diff([]executor.LocalCall{{Server: "s", Tool: "t", MS: 1.5, OK: true}, {Server: "s", Tool: "u"}},
		got); diff != "" {
		t.Errorf("Called (-want +got):\n%s", diff)
	}
	v, got = run(code + "for i in range(3000): report_call('s', str(i), 1, True)\n'done'")
	want{result: `"done"`}.check(t, v)
	if len(got) != 1000 || got[999].Tool != "997" {
		t.Errorf("%d calls were reported, want the first 1,000", len(got))
	}
	const byHand = "import json, os\ndef send(**header):\n    line = json.dumps(dict(header, t='called')).encode() " +
		"+ b'\\n'\n    os.write(3, len(line).to_bytes(4, 'big') + line)\n"
	v, got = run(byHand + "for i in range(3000): send(server='s', tool='t', ms=1, ok=True)\n'done'")
	want{result: `"done"`}.check(t, v)
	if len(got) != 1000 {
		t.Errorf("%d calls were reported by hand, want the first 1,000", len(got))
	}
	for _, malformed := range []string{
		"server='s', tool='t', ms=-1, ok=True", "server='s', tool='t', ms=1e300, ok=True", "server='s', tool='t', " +
			"ms=True, ok=True",
		"server='s', tool='t', ms=float('nan'), ok=True", "server='s', tool='t', ms=1, ok=1", "server='s', tool='t' " +
			"* 600, ms=1, ok=True", "server=None, tool='t', ms=1, ok=True",
	} {
		v, got = run(byHand + "send(" + malformed + ")\nimport time\ntime.sleep(60)")
		want{status: executor.Failed, code: errcode.ChannelBroken}.check(t, v)
		if len(got) != 0 {
			t.Errorf("send(%s): hook Called got %v, want nothing", malformed, got)
		}
	}
	b.checkNext(t)
}

// testLive replies to a call only after the output that precedes the call has arrived.
func testLive(t *testing.T, b *box) {
	printed := make(chan struct{})
	var received strings.Builder
	const code = "from client.mcp_client import *\nprint('before')\ncall_mcp_tool('s', 't')\nprint('after')"
	v := b.runProgram(t, executor.Program{Code: code}, executor.Hooks{
		Output: func(stream string, data []byte) {
			if received.Len() == 0 {
				close(printed)
			}
			received.Write(data)
		},
		Call: func(ctx context.Context, _ executor.Call) (executor.CallResult, error) {
			select {
			case <-printed:
			case <-ctx.Done():
			}
			return executor.CallResult{Value: json.RawMessage("1")}, ctx.Err()
		},
	})
	want{output: "before\nafter\n"}.check(t, v)
	if received.String() != v.Output {
		t.Errorf("hook Output received %q; the verdict has %q", received.String(), v.Output)
	}
}
