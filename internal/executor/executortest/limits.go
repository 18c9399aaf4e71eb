package executortest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
)

// limited are programs that exceed one limit each, or stay just below it.
var limited = []struct {
	name, code   string
	limits       executor.Limits
	separateUser bool // skipped unless the runner and the program run as different users
	want         want
}{
	{
		name: "memory, within", code: "x = bytearray(150 << 20)\nlen(x)", limits: executor.Limits{MemoryMB: 200},
		want: want{result: "157286400"},
	},
	{
		name: "memory, above", code: "x = bytearray(150 << 20)\nlen(x)", limits: executor.Limits{MemoryMB: 100},
		want: want{status: "failed", code: "memory_limit", message: "100 MB", line: 1},
	},
	{
		name:   "memory, recursion",
		code:   "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
		limits: executor.Limits{MemoryMB: 20},
		want:   want{status: "failed", code: "memory_limit", message: "20 MB", line: 3},
	},
	{
		name: "memory, caught", code: "try: bytearray(150 << 20)\nexcept MemoryError: result = 'small'",
		limits: executor.Limits{MemoryMB: 100},
		want:   want{result: `"small"`},
	},
	{
		name: "memory, threads", code: threads + "start(60)", limits: executor.Limits{MemoryMB: 100},
		want: want{status: "failed", code: "memory_limit", message: "100 MB", line: 3},
	},
	{name: "threads, within", code: threads + "start(60)", want: want{result: "60"}},
	{
		name: "threads, above", code: threads + "start(60)", limits: executor.Limits{Processes: 20}, separateUser: true,
		want: want{status: "failed", code: "exception", message: "can't start new thread", line: 3},
	},
	{
		name: "files, within", code: "x = [open('/dev/null') for _ in range(80)]\nNone",
		limits: executor.Limits{OpenFiles: 100},
	},
	{
		name: "files, above", code: "x = [open('/dev/null') for _ in range(100)]\nNone",
		limits: executor.Limits{OpenFiles: 100},
		want:   want{status: "failed", code: "exception", message: "Too many open files", line: 1},
	},
	{
		name: "processes, within", code: procs + "start(15)",
		limits: executor.Limits{Processes: 20}, separateUser: true,
		want: want{result: "15"},
	},
	{
		name: "processes, above", code: procs + "start(25)", limits: executor.Limits{Processes: 20}, separateUser: true,
		want: want{status: "failed", code: "exception", message: "BlockingIOError", line: 5},
	},
	{
		name: "file size, within", code: "open('f', 'wb').write(bytes(1 << 20))",
		limits: executor.Limits{WorkspaceMB: 1}, want: want{result: "1048576"},
	},
	{
		name: "file size, above", code: "f = open('f', 'wb', 0)\nwhile True: f.write(bytes(700_000))",
		limits: executor.Limits{WorkspaceMB: 1},
		want:   want{status: "failed", code: "exception", message: "File too large", line: 2},
	},
	{
		name: "processor time", code: "while True: pass", limits: executor.Limits{
			Timeout: time.Minute, CPUs: 0.01,
		},
		want: want{status: "failed", code: "cpu_limit"},
	},
}

const threads = `import threading
def start(n):
    for _ in range(n): threading.Thread(target=threading.Event().wait, daemon=True).start()
    return n
`

const procs = `import os
def start(n):
    ready, go = os.pipe()
    for _ in range(n):
        if os.fork() == 0:
            os.close(go); os.read(ready, 1); os._exit(0)
    return n
`

func testLimits(t *testing.T, newDriver driverFunc) {
	b := open(t, newDriver(t), executor.Spec{})
	for _, l := range limited {
		t.Run(l.name, func(t *testing.T) {
			if l.separateUser && !b.separateUser {
				t.Skip("the limit is not enforced for the runner's user")
			}
			v := b.runProgram(t, executor.Program{Code: l.code, Limits: l.limits}, executor.Hooks{})
			l.want.check(t, v)
			if v.Dirty {
				t.Error("Dirty = true, want false")
			}
			emptyWorkspace(t, b.spec.Workspace)
			b.checkNext(t)
		})
	}
	t.Run("memory of the box", func(t *testing.T) {
		if b.info.Limits != "cgroup" {
			t.Skipf("driver %s has no outer memory limit on this host", b.info.Driver)
		}
		small := open(t, b.driver, executor.Spec{MemoryMB: 200})
		v := small.runProgram(t, executor.Program{
			Code:   "x = []\nwhile True: x.append(bytes(b'x' * (1 << 20)))",
			Limits: executor.Limits{MemoryMB: 4096},
		}, executor.Hooks{})
		want{status: "failed", code: "memory_limit", message: "the whole sandbox"}.check(t, v)
		if !v.Dirty {
			t.Error("Dirty = false, want true")
		}
		small.checkNext(t)
	})
}

// testIsolation checks that programs cannot reach the network or the host's files, nor write outside of their
// directories.
func testIsolation(t *testing.T, newDriver driverFunc) {
	b := open(t, newDriver(t), executor.Spec{})
	if b.info.Tier == "" {
		t.Skipf("driver %s does not isolate", b.info.Driver)
	}
	for _, target := range []string{"169.254.169.254:80", "1.1.1.1:53", listener(t)} {
		t.Run(target, func(t *testing.T) {
			host, port, err := net.SplitHostPort(target)
			if err != nil {
				t.Fatal(err)
			}
			code := fmt.Sprintf("import socket\nsocket.create_connection((%q, %s), 3)", host, port)
			v := b.run(t, code)
			if v.Status != executor.Failed || !strings.Contains(v.Error.Message, "Error") {
				t.Errorf("program that connects = %s, want an error", format(v))
			}
		})
	}
	secret := filepath.Join(openDir(t), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, code string }{
		{"a file of the host", fmt.Sprintf("open(%q)", secret)},
		{"a link to the host", fmt.Sprintf("import os\nos.symlink(%q, 'l')\nopen('l')", secret)},
		{"above the workspace", fmt.Sprintf("open('../../../../../..%s')", secret)},
		{"passwords", "open('/etc/shadow')"},
		{"writing to the root directory", "open('/made', 'w')"},
		{"writing to the standard library", "import os\nopen(os.__file__, 'a')"},
		{
			"a mount",
			"import ctypes, os\nif ctypes.CDLL(None, use_errno=True).mount(b'none', b'/tmp', b'tmpfs', 0, None): " +
				"raise OSError",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := b.run(t, c.code)
			if v.Status != executor.Failed || v.Error.Code != errcode.Exception ||
				!strings.Contains(v.Error.Message, "Error") {
				t.Errorf("verdict = %s, want an error", format(v))
			}
		})
	}
	t.Run("writable directories", func(t *testing.T) {
		want{result: `["/dev/shm","/tmp","/workspace"]`}.check(t, b.run(t, writableDirectories))
		b.checkNext(t)
	})
	t.Run("capabilities", func(t *testing.T) {
		if !b.separateUser {
			t.Skip("runner and program run as the same user on this host")
		}
		v := b.run(t, "[l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')]")
		want{result: `["0000000000000000"]`}.check(t, v)
	})
}

// writableDirectories finds the directories, up to three levels deep, in which a program can create a file. If one
// of them were not emptied after a program, it would be a channel to the next program.
const writableDirectories = `
import os
found = []
def search(path, depth):
    try:
        os.close(os.open(path + "/made", os.O_CREAT | os.O_WRONLY))
        os.remove(path + "/made")
        found.append(path)
    except OSError:
        pass
    try:
        entries = [e.path for e in os.scandir(path) if depth and e.is_dir(follow_symlinks=False)]
    except OSError:
        entries = []
    for entry in entries:
        if entry not in ("/proc", "/sys"):
            search(entry, depth - 1)
search("/", 3)
sorted(found)`

// listener listens on a port of the host, and returns its address. If a program connects, the test fails.
func listener(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Error("a program connected to the host, want no connection")
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// testLeaks checks that boxes leave no descriptors, processes and directories behind on the host.
func testLeaks(t *testing.T, newDriver driverFunc) {
	driver := newDriver(t)
	cycle := func(name string, runs int) {
		single, err := executor.NewSingle(t.Context(), driver, spec(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for range runs {
			if _, err := single.Run(t.Context(), executor.Program{TaskID: name, Code: "import os\nos.fork()"},
				executor.Hooks{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := single.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cycle("first", 1) // the driver may keep something, once
	before := usage(t)
	for i := range 5 {
		cycle(fmt.Sprint("again", i), 20)
	}
	after := usage(t)
	if after.descriptors > before.descriptors || after.processes > before.processes ||
		after.temporary > before.temporary {
		t.Errorf("usage after 5 boxes and 100 programs = %+v, want at most %+v as before", after, before)
	}
}

type resources struct{ descriptors, processes, temporary int }

// usage counts the open descriptors, child processes and temporary directories of this process.
func usage(t *testing.T) resources {
	t.Helper()
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	dir := os.TempDir() //nolint:usetesting // where Host makes scratch directories
	temporary, err := filepath.Glob(filepath.Join(dir, scratchPrefix()+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return resources{len(descriptors), len(descendants(os.Getpid())), len(temporary)}
}
