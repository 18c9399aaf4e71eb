package executor_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/executortest"
)

// impostor is a driver whose boxes run a script in place of the runner.
type impostor struct {
	executortest.Host
	script string
}

type impostorBox struct {
	executor.Box
	script string
}

func (d impostor) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	box, err := d.Host.Create(ctx, spec)
	return impostorBox{box, d.script}, err
}

func (b impostorBox) Exec(ctx context.Context, argv []string) (executor.Session, error) {
	return b.Box.Exec(ctx, []string{argv[0], "-I", "-c", prelude + b.script})
}

const prelude = `
import json, os, sys
def send(header, body=b''):
    data = json.dumps(header).encode() + b'\n' + body
    os.write(1, len(data).to_bytes(4, 'big') + data)
def read():
    return os.read(0, 1 << 20) or sys.exit()
def read_exactly(count):
    while count > 0:
        count -= len(os.read(0, count)) or sys.exit()
def hello():
    read_exactly(int.from_bytes(os.read(0, 4), 'big'))
    send({'t': 'hello', 'version': 1, 'python': '3'})
`

func TestRunnerThatDoesNotStart(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"ends", "sys.exit(9)", "runner ended with code 9"},
		{"writes to stderr", "sys.exit('no modules here')", "no modules here"},
		{"is not the runner", "print('Hello, world, this is not a frame')", "bad frame"},
		{"has another version", "send({'t': 'hello', 'version': 2}); read()\nwhile True: read()", "version 2, want 1"},
		{"is early", "send({'t': 'ready'})\nwhile True: read()", `"ready" before hello`},
		{"sends nothing", "while True: read()", "not in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("not in time"))
			if c.name == "sends nothing" {
				ctx, cancel = context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("not in time"))
			}
			defer cancel()
			_, err := executor.NewSingle(ctx, impostor{script: c.script}, executor.Spec{Workspace: t.TempDir()})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("NewSingle() = %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestRunnerThatImports checks that if a runner does not become ready, the error names the module that it was
// importing.
func TestRunnerThatImports(t *testing.T) {
	const preload = "send({'t': 'preload'})\n"
	for _, c := range []struct{ name, script, want string }{
		{
			"ends in the second", preload + preload + "sys.exit('cannot')",
			"preload of b: runner ended with code 1 before it was ready (EOF): cannot; correct ",
		},
		{
			"imports too many", preload + preload + preload + "while True: read()",
			`preload of b: runner sent "preload" before hello; correct `,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := executor.NewPreloaded(t.Context(), impostor{script: c.script},
				executor.Spec{Workspace: t.TempDir()}, []string{"a", "b"}, "")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("NewPreloaded() = %v, want an error with %q", err, c.want)
			}
			if got := executor.ReasonOf(err); got != executor.ReasonPreload {
				t.Errorf("ReasonOf(%v) = %s, want %s", err, got, executor.ReasonPreload)
			}
		})
	}
}

func TestRunnerThatMisbehaves(t *testing.T) {
	const wait = "\nwhile True: read()"
	for _, c := range []struct{ name, script, code string }{
		{"garbage", "os.write(1, b'garbage of some length')" + wait, errcode.ChannelBroken},
		{"too long a frame", "os.write(1, b'\\xff' * 8)" + wait, errcode.ChannelBroken},
		{"hello again", "send({'t': 'hello', 'version': 1})" + wait, errcode.ChannelBroken},
		{"ready too early", "send({'t': 'ready'})" + wait, errcode.ChannelBroken},
		{"unrequested facts", "send({'t': 'checked'}, b'{}')" + wait, errcode.ChannelBroken},
		{
			"the same call twice",
			"for _ in 1, 2: send({'t': 'call', 'id': 1, 'server': 's', 'tool': 't', 'hash': ''}, b'{}')" + wait,
			errcode.ChannelBroken,
		},
		{
			"too many calls",
			"for i in range(65): send({'t': 'call', 'id': i + 1, 'server': 's', 'tool': 't', 'hash': ''}, b'{}')" +
				wait,
			errcode.ChannelBroken,
		},
		{"an unrequested cancellation", "send({'t': 'done', 'how': 'cancelled'})" + wait, errcode.ChannelBroken},
		{"the end of the runner", "sys.exit('gone')", errcode.SandboxDied},
		{"half a frame", "os.write(1, b'\\x00\\x00')", errcode.SandboxDied},
	} {
		t.Run(c.name, func(t *testing.T) {
			single, err := executor.NewSingle(t.Context(), impostor{script: "hello()\nread()\n" + c.script},
				executor.Spec{Workspace: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			v, err := single.Run(t.Context(), executor.Program{TaskID: "x", Code: "1"}, executor.Hooks{
				Call: func(ctx context.Context, _ executor.Call) (executor.CallResult, error) {
					<-ctx.Done()
					return executor.CallResult{}, ctx.Err()
				},
			})
			if err != nil || v.Status != executor.Failed || v.Error.Code != c.code || !v.Dirty || single.Alive() {
				t.Errorf("Run() = %+v, %+v, %v, alive %v, want a failed, dirty verdict %s",
					v, v.Error, err, single.Alive(), c.code)
			}
			if err := single.Close(t.Context()); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}
		})
	}
}

// lasting is a driver whose boxes fail to be destroyed the first time.
type lasting struct{ impostor }

type lastingBox struct {
	executor.Box
	calls *atomic.Int32
}

func (d lasting) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	box, err := d.impostor.Create(ctx, spec)
	return lastingBox{box, new(atomic.Int32)}, err
}

func (b lastingBox) Destroy(ctx context.Context) error {
	switch b.calls.Add(1) {
	case 1:
		return errors.New("the host is busy")
	case 2:
		return b.Box.Destroy(ctx)
	}
	return errors.New("destroyed again")
}

// TestBoxIsDestroyedLater checks that a failed destruction is tried again until it succeeds, and then no more.
func TestBoxIsDestroyedLater(t *testing.T) {
	single, err := executor.NewSingle(t.Context(), lasting{impostor{script: "hello()\nread()"}},
		executor.Spec{Workspace: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // the runner does not end before its box is destroyed
	if err := single.Close(ended); err == nil || !strings.Contains(err.Error(), "the host is busy") || single.Alive() {
		t.Errorf("Close() = %v, alive %v, want the driver's error and a box that is not used again", err,
			single.Alive())
	}
	for range 2 {
		if err := single.Close(t.Context()); err != nil {
			t.Errorf("Close() after a failure = %v, want nil", err)
		}
	}
}

// killed is a driver whose boxes report that the host's kernel killed one of their processes for lack of memory.
type killed struct{ impostor }

type killedBox struct{ executor.Box }

func (d killed) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	box, err := d.impostor.Create(ctx, spec)
	return killedBox{box}, err
}

func (killedBox) OutOfMemory() bool { return true }

// TestKilledForMemory checks the verdict after a kernel has killed a process for lack of memory: the program, one of
// its children, or a process of the engine.
func TestKilledForMemory(t *testing.T) {
	const signal, exit = "'how': 'exit', 'signal': 'SIGKILL'", "'how': 'exit', 'code': 247"
	const exception = "'how': 'end', 'error': {'code': 'exception', 'line': 3}, 'parts': [4, 5, 0]"
	const end, syntax = "'how': 'end'", "'how': 'end', 'error': {'code': 'syntax_error'}"
	for _, c := range []struct {
		name, done string
		host       bool // the host's kernel killed a process; otherwise only the box's kernel may have done so
		code       string
		dirty      bool
	}{
		{"program or engine killed", signal, true, errcode.MemoryLimit, true},
		{"child killed, program fails", exception, true, errcode.MemoryLimit, true},
		{"child killed, program exits", exit, true, errcode.MemoryLimit, true},
		{"child killed, program succeeds", end, true, "", true},
		{"process killed, syntax error", syntax, true, errcode.SyntaxError, true},
		{"program killed by the box's kernel", signal + ", 'oom': True", false, errcode.MemoryLimit, true},
		{"child killed by the box's kernel", exception + ", 'oom': True", false, errcode.MemoryLimit, true},
		{"program killed, but not for memory", signal, false, errcode.Signal, false},
		{"no process killed", exception, false, errcode.Exception, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := "hello()\nwhile b'\"run\"' not in read(): pass\n" +
				"send({'t': 'done', " + c.done + "}, b'diedtrace' if 'parts' in \"" + c.done + "\" else b'')\n" +
				"send({'t': 'left'})\nwhile True: read()"
			var driver executor.Driver = impostor{script: script}
			if c.host {
				driver = killed{impostor{script: script}}
			}
			single, err := executor.NewSingle(t.Context(), driver, executor.Spec{Workspace: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			v, err := single.Run(t.Context(), executor.Program{TaskID: "x", Code: "1"}, executor.Hooks{})
			if err != nil {
				t.Fatalf("Run() = %v, want nil", err)
			}
			var code string
			if v.Error != nil {
				code = v.Error.Code
			}
			if code != c.code || v.Dirty != c.dirty {
				t.Errorf("Run() = %+v, %+v, want the code %q, dirty %v", v, v.Error, c.code, c.dirty)
			}
			if code == errcode.MemoryLimit && strings.Contains(c.done, "parts") &&
				(v.Error.Line != 3 || v.Error.Cause != "trace") {
				t.Errorf("error = %+v, want line 3 and the cause %q", v.Error, "trace")
			}
			if err := single.Close(t.Context()); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}
		})
	}
}

// TestRunnerThatPauses checks that the host sends the message next to a runner that pauses after a program.
func TestRunnerThatPauses(t *testing.T) {
	const script = `
hello()
while True:
    while b'"run"' not in read(): pass
    send({'t': 'done', 'how': 'end', 'cpu_ms': 1}, b'1')
    send({'t': 'left'})
    while b'"next"' not in read(): pass
    send({'t': 'ready'})
`
	single, err := executor.NewSingle(t.Context(), impostor{script: script}, executor.Spec{Workspace: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		v, err := single.Run(t.Context(), executor.Program{TaskID: "x", Code: "1"}, executor.Hooks{})
		if err != nil || v.Status != executor.Succeeded || string(v.Result) != "1" {
			t.Fatalf("Run() = %+v, %v, want the result 1", v, err)
		}
	}
	if err := single.Close(t.Context()); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
}

// TestRunnerThatStopsReading checks that the host destroys the box of a runner that stops reading.
func TestRunnerThatStopsReading(t *testing.T) {
	const script = `
hello()
while b'"run"' not in read(): pass
pipe = os.open('/proc/self/fd/0', os.O_WRONLY | os.O_NONBLOCK)
try:
    while True: os.write(pipe, b'x')
except BlockingIOError: pass
send({'t': 'done', 'how': 'end', 'cpu_ms': 1}, b'1')
send({'t': 'left'})
import signal
while True: signal.pause()
`
	single, err := executor.NewSingle(t.Context(), impostor{script: script}, executor.Spec{Workspace: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	p := executor.Program{TaskID: "x", Code: "1"}
	if v, err := single.Run(t.Context(), p, executor.Hooks{}); err != nil || string(v.Result) != "1" {
		t.Fatalf("Run() = %+v, %v, want the result 1", v, err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, err := single.Run(ctx, p, executor.Hooks{}); err == nil || err.Error() != "run program: enough" ||
		single.Alive() {
		t.Errorf("Run() = %v, alive %v, want the context's cause and a destroyed box", err, single.Alive())
	}
	if err := single.Close(t.Context()); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
}

// TestRunnerThatFloods checks that only the permitted output is kept, and that the end of Run's context ends the
// program: with a verdict, which has the output, if the cause is a Failure.
func TestRunnerThatFloods(t *testing.T) {
	const script = "hello()\nread()\nwhile True: send({'t': 'out', 'stream': 'stdout'}, b'x' * 1000)"
	failure := &executor.Failure{Code: errcode.WorkspaceLimit, Message: "too many files"}
	for _, c := range []struct {
		cause error
		want  string // what Run returns: the error, or the verdict's
	}{
		{errors.New("enough"), "run program: enough"},
		{failure, failure.Error()},
	} {
		single, err := executor.NewSingle(t.Context(), impostor{script: script},
			executor.Spec{Workspace: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		p := executor.Program{TaskID: "x", Code: "1", Limits: executor.Limits{OutputBytes: 5000}}
		ctx, cancel := context.WithCancelCause(t.Context())
		printed := 0
		v, err := single.Run(ctx, p, executor.Hooks{Output: func(_ string, data []byte) {
			if printed += len(data); printed == 5000 {
				cancel(c.cause)
			}
		}})
		if v.Error != nil {
			err = v.Error
			if v.Status != executor.Failed || string(v.Result) != "null" || len(v.Output) != 5000 || !v.Dirty {
				t.Errorf("Run() = %+v, want a failed, dirty verdict with no result and 5000 bytes of output", v)
			}
		}
		if err == nil || err.Error() != c.want || printed != 5000 || single.Alive() {
			t.Errorf("Run() = %v after %d bytes, alive %v; want %s after 5000, and a destroyed box",
				err, printed, single.Alive(), c.want)
		}
		if err := single.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	}
}
