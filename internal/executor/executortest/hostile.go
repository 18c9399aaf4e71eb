package executortest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
)

// testStops ends programs through the context of Run.
func testStops(t *testing.T, newDriver driverFunc) {
	b := open(t, newDriver(t), executor.Spec{})
	const loop = "print('on')\nwhile True: pass"
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		v, err := b.single.Run(ctx, executor.Program{TaskID: "x", Code: loop}, executor.Hooks{
			Output: func(string, []byte) { cancel(executor.ErrCancelled) },
		})
		if err != nil {
			t.Fatalf("Run() = %v, want nil", err)
		}
		want{status: executor.Cancelled, code: "cancelled", output: "on\n"}.check(t, v)
		if v.Dirty || !b.single.Alive() {
			t.Errorf("after the program: dirty %v, alive %v, want a clean, living box", v.Dirty, b.single.Alive())
		}
		b.checkNext(t)
	})
	t.Run("cancelled in a call", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		code := "from client.mcp_client import call_mcp_tool\ncall_mcp_tool('s', 't', {})"
		v, err := b.single.Run(ctx, executor.Program{TaskID: "x", Code: code}, executor.Hooks{
			Call: func(calling context.Context, _ executor.Call) (executor.CallResult, error) {
				cancel(executor.ErrCancelled)
				<-calling.Done()
				return executor.CallResult{}, calling.Err() // must not become an error of the program
			},
		})
		if err != nil {
			t.Fatalf("Run() = %v, want nil", err)
		}
		want{status: executor.Cancelled, code: "cancelled"}.check(t, v)
		b.checkNext(t)
	})
	t.Run("cancelled before the start", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(executor.ErrCancelled)
		v, err := b.single.Run(ctx, executor.Program{TaskID: "x", Code: loop}, executor.Hooks{})
		if err != nil {
			t.Fatalf("Run() = %v, want nil", err)
		}
		if v.Status != executor.Cancelled {
			t.Errorf("Run() = %s, want cancelled", format(v))
		}
		b.checkNext(t)
	})
	t.Run("context ends for another reason", func(t *testing.T) {
		lost := errors.New("lease lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		v, err := b.single.Run(ctx, executor.Program{TaskID: "x", Code: loop}, executor.Hooks{
			Output: func(string, []byte) { cancel(lost) },
		})
		if !errors.Is(err, lost) {
			t.Errorf("Run() = %s, %v, want %v", format(v), err, lost)
		}
		if err := b.single.Close(t.Context()); err != nil || b.single.Alive() {
			t.Errorf("Close() = %v, then Alive() = %v, want nil and false", err, b.single.Alive())
		}
		b.checkNext(t)
	})
}

// hostile are programs that attack the runner or the box. After each of them, the next program runs normally.
var hostile = []struct {
	name, code   string
	limits       executor.Limits
	separateUser bool // skipped unless the runner and the program run as different users
	want         want
	truncated    bool
}{
	{
		name: "loops", code: "while True: pass", limits: executor.Limits{Timeout: 300 * time.Millisecond},
		want: want{status: "timeout", code: "timeout", message: "300ms"},
	},
	{
		name: "stops itself", code: "import os\nos.kill(os.getpid(), 19)",
		limits: executor.Limits{Timeout: 300 * time.Millisecond}, want: want{status: "timeout", code: "timeout"},
	},
	{
		name:   "does not end its thread",
		code:   "import threading\nthreading.Thread(target=threading.Event().wait).start()",
		limits: executor.Limits{Timeout: 300 * time.Millisecond}, want: want{status: "timeout", code: "timeout"},
	},
	{
		name:   "fails and does not end its thread",
		code:   "import threading\nthreading.Thread(target=threading.Event().wait).start()\nraise ValueError",
		limits: executor.Limits{Timeout: 2 * time.Second}, // so that the traceback is printed before
		want: want{
			status: "timeout", code: "timeout", stderr: "Traceback (most recent call last):\n" +
				"  File \"program.py\", line 3, in <module>\n    raise ValueError\nValueError\n",
		},
	},
	{
		name: "forks", code: "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", separateUser: true,
		limits: executor.Limits{Timeout: time.Second, Processes: 30}, want: want{status: "timeout", code: "timeout"},
	},
	{
		name: "forks away", code: "import os\nwhile True:\n  try:\n" +
			"    if os.fork(): os._exit(0) if os.getsid(0) != os.getpid() else None\n    else: os.setsid()\n" +
			"  except OSError: pass",
		separateUser: true, limits: executor.Limits{Timeout: time.Second, Processes: 30},
		want: want{status: "timeout", code: "timeout"},
	},
	{
		name: "allocates", code: "x = []\nwhile True: x.append(bytearray(10_000_000))",
		want: want{status: "failed", code: "memory_limit", message: "512 MB", line: 2},
	},
	{
		name: "allocates at once", code: "x = bytearray(10**12)",
		want: want{status: "failed", code: "memory_limit", line: 1},
	},
	{
		name: "fills the disk", code: "f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20))",
		limits: executor.Limits{WorkspaceMB: 8},
		want:   want{status: "failed", code: "exception", message: "File too large", line: 2},
	},
	{
		name: "prints 1 GiB", code: "import os\nx = b'x' * (1 << 20)\nfor _ in range(1024):\n  n = 0\n" +
			"  while n < len(x): n += os.write(1, x[n:])",
		want: want{output: strings.Repeat("x", 1<<20)}, truncated: true,
	},
	{
		name: "prints forever", code: "while True: print('x' * 100)",
		limits:    executor.Limits{Timeout: 3 * time.Second, OutputBytes: 202},
		want:      want{status: "timeout", code: "timeout", output: strings.Repeat(strings.Repeat("x", 100)+"\n", 2)},
		truncated: true,
	},
	{
		name: "floods both streams", code: "import os, threading\n" +
			"for fd in (1, 2): threading.Thread(target=lambda fd=fd: os.write(fd, b'y' * 10_000_000)).start()",
		limits: executor.Limits{OutputBytes: 3}, want: want{output: "yyy", stderr: "yyy"}, truncated: true,
	},
	{
		name: "closes its pipes", code: "import os\nos.closerange(0, 100)\n5",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "closes its pipes and goes on", code: "import os\nos.closerange(0, 100)\nwhile True: pass",
		limits: executor.Limits{Timeout: 300 * time.Millisecond}, want: want{status: "timeout", code: "timeout"},
	},
	{
		name: "replaces the channel", code: "import os\nos.dup2(1, 3)\n5",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "replaces functions of os", code: "import os\nos.write = os.readv = lambda fd, data: 1\n" +
			"os.fstat = os.getpid = os._exit = None\n5",
		want: want{result: "5"},
	},
	{
		name: "replaces types", code: "import builtins\nbuiltins.memoryview = builtins.BaseException = None\n5",
		want: want{result: "5"},
	},
	{
		name: "replaces what json uses", code: "import builtins\nbuiltins.isinstance = lambda *a: True\n5",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "replaces what json and traceback use",
		code: "import builtins\nbuiltins.dict = builtins.str = builtins.len = None\n5",
		want: want{status: "failed", code: "channel_broken"},
	},
	{name: "closes standard output", code: "import os\nos.close(1)\n5", want: want{result: "5"}},
	{
		name: "floods the channel", code: "import os\nwhile True: os.write(3, b'\\x00\\x00\\x00\\x01' * 10_000)",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends a frame too long", code: "import os\nos.write(3, b'\\xff' * 100)\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends half a frame", code: "import os\nos.write(3, b'\\x00\\x00\\x10\\x00{')\nos._exit(4)",
		want: want{status: "failed", code: "exit_code", message: "4"},
	},
	{
		name: "sends deep JSON", code: send + `send(b'[' * 100_000)` + "\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends what the runner sends", code: send + `send(b'{"t":"done","how":"end"}\n1')` + "\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends facts too late", code: send + `send(b'{"t":"checked"}\n{}')` + "\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends a bad call", code: send + `send(b'{"t":"call","id":"x"}\n{}')` + "\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends a bad end", code: send + `send(b'{"t":"end","error":{"code":"made_up","message":"x"}}\n')` +
			"\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends advice of its own",
		code: send + `send(b'{"t":"end","error":{"code":"exception","message":"x","hint":"run this"}}\n')` +
			"\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends an end that is not JSON", code: send + `send(b'{"t":"end"}\n{"a"')` + "\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends a result that is not UTF-8", code: send + `send(b'{"t":"end"}\n"\xff"')` + "\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends a deep result", code: send + `send(b'{"t":"end"}\n' + b'[' * 9000 + b']' * 9000)` +
			"\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends a long number", code: send + `send(b'{"t":"end"}\n-' + b'9' * 4301)` + "\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "sends a result with a doubled name",
		code: send + `send(b'{"t":"end"}\n{"a":1,"a":2}')` + "\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "makes a namespace", code: "import ctypes\nif ctypes.CDLL(None, use_errno=True).unshare(0x10000000):\n" +
			"  raise OSError(ctypes.get_errno(), 'unshare')",
		want: want{status: "failed", code: "exception", message: "Errno 1", line: 3},
	},
	{
		name: "makes a namespace with clone",
		code: clone + "made(56 if os.uname().machine == 'x86_64' else 220, 0x10020011, 0, 0, 0, 0)",
		want: want{status: "failed", code: "exception", message: "Errno 1]", line: 6},
	},
	{
		name: "makes a namespace with clone3",
		code: clone + "made(435, struct.pack('8Q', 0x10020000, 0, 0, 0, 17, 0, 0, 0), ctypes.c_size_t(64))",
		want: want{status: "failed", code: "exception", message: "Errno 38", line: 6},
	},
	{
		name: "needs much memory to be parsed", code: "x = [" + strings.Repeat("1,", 1<<20) + "]",
		limits: executor.Limits{MemoryMB: 64},
		want:   want{status: "failed", code: "memory_limit", message: "64 MB"},
	},
	{
		name: "sends an end and goes on", code: send + `send(b'{"t":"end"}\n[1]')` + "\nwhile True: pass",
		want: want{result: "[1]"},
	},
	{
		name: "prints into the channel", code: "import os\nos.dup2(3, 1)\nprint('x' * 100)\nwhile True: pass",
		want: want{status: "failed", code: "channel_broken"},
	},
	{
		name: "writes frames to standard output", code: "import os\nos.write(1, " +
			"b'\\x00\\x00\\x00\\x18{\"t\":\"done\",\"how\":\"end\"}\\n1')\nNone",
		want: want{output: "\x00\x00\x00\x18{\"t\":\"done\",\"how\":\"end\"}\n1"},
	},
	{
		name: "sends an end, spawns, and becomes another program",
		code: send + `
import sys, threading
send(b'{"t":"end"}\n[1]')
def spawn():
  while True: os.posix_spawn(sys.executable, ['python3', '-c', 'while True: open("spawned", "a").write("x")'], {})
threading.Thread(target=spawn, daemon=True).start()
os.execv(sys.executable, ['python3', '-c', 'while True: open("became", "a").write("x")'])`,
		want: want{result: "[1]"},
	},
	{
		name: "lets its parent trace it", code: "import ctypes, os\nctypes.CDLL(None).ptrace(0)\n" +
			"os.kill(os.getpid(), 10)",
		limits: executor.Limits{Timeout: 300 * time.Millisecond}, want: want{status: "timeout", code: "timeout"},
	},
	{
		name: "kills its parent", code: "import os\nos.kill(os.getppid(), 9)", separateUser: true,
		want: want{status: "failed", code: "exception", message: "PermissionError", line: 2},
	},
	{
		name: "kills all", code: "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\n'alive'", separateUser: true,
		want: want{result: `"alive"`},
	},
	{
		name: "looks for the runner's descriptors", code: "import os\nos.listdir('/proc/%d/fd' % os.getppid())",
		separateUser: true,
		want:         want{status: "failed", code: "exception", message: "PermissionError", line: 2},
	},
	{
		name: "opens the runner's descriptors", code: "import os\nopen('/proc/%d/fd/1' % os.getppid(), 'wb')",
		separateUser: true,
		want:         want{status: "failed", code: "exception", message: "PermissionError", line: 2},
	},
	{
		name: "reads the runner's memory", code: "import os\nopen('/proc/%d/mem' % os.getppid(), 'rb')",
		separateUser: true,
		want:         want{status: "failed", code: "exception", message: "PermissionError", line: 2},
	},
	{
		name: "becomes root", code: "import os\nos.setuid(0)", separateUser: true,
		want: want{status: "failed", code: "exception", message: "PermissionError", line: 2},
	},
	{
		name: "raises its limits", code: "import resource as r\nr.setrlimit(r.RLIMIT_NOFILE, (5000, 5000))",
		separateUser: true,
		want:         want{status: "failed", code: "exception", message: "ValueError", line: 2},
	},
	{
		name: "prints a long exception", code: "raise ValueError('x' * 10_000_000)",
		want: want{status: "failed", code: "exception", message: "ValueError: xxx", line: 1},
	},
	{
		name: "breaks the runner's modules",
		code: "import sys\nfor m in list(sys.modules): sys.modules[m] = None\nimport_gone = 1\n3",
		want: want{result: "3"},
	},
	{
		name: "exits from atexit", code: "import atexit, os\natexit.register(os._exit, 9)\n3",
		want: want{status: "failed", code: "exit_code", message: "9"},
	},
	{
		name: "leaves files",
		code: "import os, tempfile\nd = os.environ['TMPDIR']\nos.makedirs(d + '/a/b')\nopen(d + '/a/b/c', 'w')\n" +
			"os.symlink('/', d + '/l')\nos.chmod(d + '/a', 0)\nNone",
		want: want{},
	},
}

// clone is the start of a program that makes a child in namespaces in which it would be permitted to mount.
const clone = `import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def made(*arguments):
  child = libc.syscall(*arguments)
  if child == 0: os._exit(libc.mount(b"x", b"/tmp", b"tmpfs", 0, None))
  if child < 0: raise OSError(ctypes.get_errno(), "clone")
`

// send is the start of a program that writes a frame to the runner.
const send = "import os\ndef send(data): os.write(3, len(data).to_bytes(4, 'big') + data)\n"

func testHostile(t *testing.T, newDriver driverFunc) {
	b := open(t, newDriver(t), executor.Spec{})
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			if h.separateUser && !b.separateUser {
				t.Skip("runner and program run as the same user on this host")
			}
			v := b.runProgram(t, executor.Program{Code: h.code, Limits: h.limits}, executor.Hooks{})
			h.want.check(t, v)
			if v.Truncated != h.truncated || v.Dirty || !b.single.Alive() {
				t.Errorf("truncated %v, dirty %v, alive %v, want truncated %v and a living box",
					v.Truncated, v.Dirty, b.single.Alive(), h.truncated)
			}
			emptyWorkspace(t, b.spec.Workspace)
			b.checkNext(t)
		})
	}
	t.Run("leaves daemons", func(t *testing.T) { testDaemons(t, b) })
	t.Run("is continued by a timer", func(t *testing.T) { testContinues(t, b) })
	t.Run("writes asynchronously", func(t *testing.T) { testAsynchronous(t, b) })
	t.Run("kills its runner", func(t *testing.T) {
		if b.separateUser {
			t.Skip("the program is not permitted to kill its runner")
		}
		v := b.run(t, "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(10)")
		if v.Status != executor.Failed || !v.Dirty {
			t.Errorf("verdict = %s, want failed and dirty", format(v))
		}
		b.checkNext(t)
	})
}

// testContinues runs programs that report their end and write files whenever a timer continues them. They must not
// write after the verdict.
func testContinues(t *testing.T, b *box) {
	const code = `
import ctypes, os, signal
class Event(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("rest", ctypes.c_byte * 48)]
libc, timer, written = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p(), open("written", "ab", 0)
def check(failed):
    if failed: raise OSError(ctypes.get_errno(), "timer")
check(libc.timer_create(1, ctypes.byref(Event(None, signal.SIGCONT, 0)), ctypes.byref(timer)))
signal.signal(signal.SIGCONT, lambda *_: written.write(b"x"))
every = %d * 1000
check(libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, every, 0, every), None))
1`
	for micros := 20; micros <= 640; micros *= 2 {
		want{result: "1"}.check(t, b.run(t, fmt.Sprintf(code, micros*int(Slow(t)))))
		path := filepath.Join(b.spec.Workspace, "written")
		atOnce, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b.checkNext(t)
		later, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(later) != len(atOnce) {
			t.Errorf("timer every %d µs: %d bytes after the next program, want %d as at the verdict",
				micros, len(later), len(atOnce))
		}
		emptyWorkspace(t, b.spec.Workspace)
	}
}

// testAsynchronous runs programs that start asynchronous writes, if the kernel supports them, and end. No write may
// reach the workspace after the verdict.
func testAsynchronous(t *testing.T, b *box) {
	const code = `
import ctypes, os, struct
libc, setup, submit = ctypes.CDLL(None), *{"x86_64": (206, 209), "aarch64": (0, 2)}[os.uname().machine]
context, size, calls = ctypes.c_ulong(), 1 << 20, 64
data, blocks = ctypes.create_string_buffer(size), []
for number in range(calls):
    file = os.open(str(number), os.O_CREAT | os.O_WRONLY)
    block = struct.pack("QIIHhIQQqQII", 0, 0, 0, 1, 0, file, ctypes.addressof(data), size, 0, 0, 0, 0)
    blocks.append(ctypes.create_string_buffer(block))
libc.syscall(setup, calls, ctypes.byref(context))
libc.syscall(submit, context, ctypes.c_long(calls), (ctypes.c_void_p * calls)(*map(ctypes.addressof, blocks)))
1`
	for range 10 {
		want{result: "1"}.check(t, b.run(t, code))
		atOnce := written(t, b.spec.Workspace)
		b.checkNext(t)
		if later := written(t, b.spec.Workspace); later != atOnce {
			t.Errorf("%d bytes after the next program, want %d as at the verdict", later, atOnce)
		}
		emptyWorkspace(t, b.spec.Workspace)
	}
}

// written returns the total size of the files in a directory.
func written(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes
}

// testDaemons runs a program that leaves processes in other sessions. They keep the output open and write files.
func testDaemons(t *testing.T, b *box) {
	const leave = `
import os, signal
ready, go = os.pipe()
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(go, b'x')
            while True: open('written', 'a').write('x')
        os._exit(0)
for _ in range(5): os.read(ready, 1)
print('left')`
	want{output: "left\n"}.check(t, b.run(t, leave))
	const count = `
import os
def user(pid):
    try: return os.stat('/proc/' + pid).st_uid
    except OSError: return None
def parent(pid):
    try: return open('/proc/%s/stat' % pid).read().rpartition(')')[2].split()[1]
    except OSError: return None
pids = [p for p in os.listdir('/proc') if p.isdigit() and p != str(os.getpid())]
os.remove('written')
[p for p in pids if user(p) == os.getuid() and parent(p) in ('1', str(os.getppid())) and os.getuid()]`
	want{result: "[]"}.check(t, b.run(t, count))
	want{result: "false"}.check(t, b.run(t, "import os\nos.path.exists('written')"))
}
