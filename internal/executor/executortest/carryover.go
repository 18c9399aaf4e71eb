package executortest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/executor"
)

// testCarryOver checks that a program leaves nothing in its box for the next one. Each program in leavings creates
// something that may outlive its process, wherever it can. The next program must find the box as it was before. In
// between, the host empties the workspace, as it does before a task with another workspace.
func testCarryOver(t *testing.T, newDriver driverFunc) {
	b := open(t, newDriver(t), executor.Spec{})
	if b.info.Tier == "" {
		t.Skipf("driver %s does not isolate", b.info.Driver)
	}
	describe := func() (found map[string]any) {
		t.Helper()
		v := b.run(t, helpers+describeBox)
		if err := json.Unmarshal(v.Result, &found); err != nil || len(found) < 20 {
			t.Fatalf("program describeBox = %s, %v, want at least 20 properties", format(v), err)
		}
		return found
	}
	before := describe()
	t.Run("modes of files", func(t *testing.T) { testModes(t, b) })
	for name, code := range leavings {
		t.Run(name, func(t *testing.T) {
			if name == "its parent" && !b.separateUser {
				t.Skip("the program is permitted to kill its runner")
			}
			if Slow(t) > 1 && (name == "many files" || strings.HasPrefix(name, "deep directories in /")) {
				t.Skip("an emulated machine cannot remove so much in the second that the runner has for it")
			}
			v := b.run(t, helpers+code)
			if v.Status != executor.Succeeded {
				t.Errorf("program that leaves something = %s, want success", format(v))
			}
			emptyWorkspace(t, b.spec.Workspace)
			if v.Dirty {
				b.restart(t) // a pool also replaces a dirty box
			}
			if diff := cmp.Diff(before, describe()); diff != "" {
				t.Errorf("the box differs (-before +after):\n%s", diff)
			}
		})
	}
}

// testMemory searches the memory of later programs, which are forked from the process that has forwarded whatever an
// earlier program was given, sent and printed.
func testMemory(t *testing.T, newDriver driverFunc) {
	b := open(t, newDriver(t), executor.Spec{})
	const search = `
import re
found = set()
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        start, end = [int(address, 16) for address in line.split()[0].split("-")]
        if line.split()[1].startswith("rw"):
            try:
                memory.seek(start)
                found.update(re.findall(rb"kept-[a-z]+-9{6}", memory.read(end - start)))
            except (OSError, OverflowError):
                pass
sorted(map(bytes.decode, found))`
	nines := strings.Repeat("9", 6)
	mark := func(what string) string { return "kept-" + what + "-" + nines }
	calls := func(_ context.Context, c executor.Call) (executor.CallResult, error) {
		if want := `{"x":"` + mark("argument") + `"}`; string(c.Args) != want {
			t.Errorf("arguments = %s, want %s", c.Args, want)
		}
		return executor.CallResult{Value: json.RawMessage(`"` + mark("reply") + `"`)}, nil
	}
	const program = `
import os, sys
from client.mcp_client import call_mcp_tool
from client.session import checkpoint
def mark(what): return "kept-" + what + "-" + 6 * "9"
reply = call_mcp_tool("server", "tool", {"x": mark("argument")}, hash="h")
print(reply, inputs, os.environ["SECRET"], mark("printed"))
print(mark("error"), file=sys.stderr)
checkpoint(x=mark("checkpoint"))
state["x"] = mark("state")
`
	file := filepath.Join(b.spec.Workspace, "state.json")
	for _, end := range []string{"[mark('result')] * 5000", "raise ValueError(mark('message'))"} {
		v := b.runProgram(t, executor.Program{
			Code: program + end + " # " + mark("code"), Inputs: json.RawMessage(`"` + mark("inputs") + `"`),
			Env:     map[string]string{"SECRET": mark("env")},
			State:   &executor.StateDocument{File: "state.json", Content: []byte(`{"y":"` + mark("document") + `"}`), Save: true},
			Session: &executor.TaskSession{Name: "name", File: "session.json"},
		}, executor.Hooks{Call: calls})
		if !strings.Contains(v.Output, mark("reply")+" "+mark("inputs")+" "+mark("env")) {
			t.Fatalf("program = %s, want it to print what it was given", format(v))
		}
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for range 3 { // the first may have been forked before the program came
			want{result: "[]"}.check(t, b.run(t, search))
		}
	}
}

// testModes runs programs that change the modes of files of the workspace. The host then sets modes, as it does when it
// brings the workspace back to a version. The next program must see these, and no other.
func testModes(t *testing.T, b *box) {
	const files = "file read-only executable directory directory/file closed"
	for _, mode := range []string{"0", "0o444", "0o555", "0o4755", "0o3777"} {
		want{result: "null"}.check(t, b.run(t, `
import os
for name in "`+files+`".split():
    os.mkdir(name) if name in ("directory", "closed") else open(name, "x").close()
for name in [*reversed("`+files+`".split()), "/workspace"]:
    os.chmod(name, `+mode+`)
None`))
		for name := range strings.FieldsSeq(files) {
			if err := os.Chmod(filepath.Join(b.spec.Workspace, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		const look = `
import os
names = "` + files + `".split()
for name in names:
    open(name + "/new" if os.path.isdir(name) else name, "a").close()
sorted({oct(os.stat(name).st_mode & 0o7777) for name in names}), oct(os.stat(".").st_mode)`
		want{result: `[["0o755"],"0o40700"]`}.check(t, b.run(t, look))
		emptyWorkspace(t, b.spec.Workspace)
	}
}

// restart replaces the box with a new one that has the same workspace.
func (b *box) restart(t *testing.T) {
	t.Helper()
	if err := b.single.Close(t.Context()); err != nil {
		t.Fatalf("Close() = %v, want nil", err)
	}
	b.start(t)
}

// helpers defines system call numbers and functions for the programs below.
const helpers = `
import ctypes, fcntl, glob, json, locale, os, random, re, signal, socket, stat, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"
def call(number, *arguments):
    return libc.syscall(number[0] if x86 else number[1], *arguments)
shmget, semget, msgget = (29, 194), (64, 190), (68, 186)
mq_open, add_key, unshare = (240, 180), (248, 217), (272, 97)
places = ["/workspace", "/tmp", "/dev/shm"]
def attempt(f):
    try:
        return f()
    except Exception as error:
        return type(error).__name__
def flags(path):
    d = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return attempt(lambda: fcntl.ioctl(d, 0x80086601, bytes(8)).hex()) # FS_IOC_GETFLAGS
    finally:
        os.close(d)
def lock(path):
    with open(path, "rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
def everywhere(f):
    for place in places:
        attempt(lambda: f(place))
`

// describeBox is a program that returns everything in which an earlier program could have left something.
const describeBox = `
def text(path):
    return attempt(lambda: sorted(line for line in open(path)))
def user(path):
    return attempt(lambda: os.stat(path).st_uid)
found = {}
for kind in "msg", "sem", "shm":
    found["/proc/sysvipc/" + kind] = text("/proc/sysvipc/" + kind)
for number, name in ((shmget, "shmget"), (semget, "semget"), (msgget, "msgget")):
    found[name] = call(number, 4711, 0, 0)
found["mq_open"] = call(mq_open, b"left", 0, 0, None)
found["keys"] = text("/proc/keys")
for place in places:
    found[place] = sorted(path for directory, names, files in os.walk(place) for path in [
        os.path.join(directory, name) for name in names + files])
    found["mode of " + place] = oct(os.stat(place).st_mode)
    found["owner of " + place] = [os.stat(place).st_uid, os.stat(place).st_gid]
    found["attributes of " + place] = attempt(lambda: os.listxattr(place))
    def connect():
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(place + "/left")
    found["connect to " + place] = attempt(connect)
    def create():
        with open(place + "/left", "w"):
            os.remove(place + "/left")
    found["create in " + place] = attempt(create)
    if place != "/workspace":
        free = os.statvfs(place)
        found["free in " + place] = [free.f_bfree, free.f_ffree]
def connect():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0left")
found["abstract socket"] = attempt(connect)
def sockets():
    return attempt(lambda: [line.split()[7:] for line in open("/proc/net/unix")])
found["unix"] = sorted(name for name in sockets() if name)
def parent(path):
    return attempt(lambda: int(open(path + "/stat").read().rpartition(")")[2].split()[1]))
def children():
    return sorted(p for p in glob.glob("/proc/[0-9]*") if parent(p) == os.getppid())
# This process, and each child that the runner keeps for later programs, has a pair of unnamed sockets: they do not
# count. Meanwhile the runner may be starting or ending a child.
for _ in range(25):
    known = children()
    found["unnamed sockets"] = sockets().count([]) - 2 * len(known)
    if found["unnamed sockets"] == 0 and children() == known:
        break
    time.sleep(0.02)
found["tcp"] = attempt(lambda: len([line for line in open("/proc/net/tcp") if line.split()[3] == "0A"]))
found["mounts"] = text("/proc/self/mounts")
def changed(path): # since the last device was created
    status = os.stat(path)
    return stat.S_ISCHR(status.st_mode) and status.st_ctime > os.stat("/dev").st_ctime
found["changed devices"] = [path for path in glob.glob("/dev/*") if attempt(lambda: changed(path)) is True]
found["devices"] = sorted(name for name in os.listdir("/dev"))
found["hostname"] = os.uname().nodename
found["terminals"] = attempt(lambda: sorted(os.listdir("/dev/pts")))
found["processes"] = len([p for p in glob.glob("/proc/[0-9]*") if user(p) == os.getuid() and os.getuid()])
found["signals"] = [line for line in open("/proc/self/status") if re.match("Sig|Shd", line)]
found["limits"] = sorted(line for line in open("/proc/self/limits") if "address space" not in line)
found["environment"] = sorted(os.environ.items())
found["umask"] = oct(os.umask(0o022))
found["descriptors"] = len(os.listdir("/proc/self/fd"))
found["directory"] = os.getcwd()
found["priority"] = [os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_PROCESS, os.getppid())]
found["scheduling"] = [os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))]
found["files of the process"] = {name: text("/proc/self/" + name) for name in (
    "oom_score_adj", "comm", "cgroup", "coredump_filter", "timerslack_ns", "uid_map", "personality", "loginuid")}
found["timers"] = [signal.getitimer(which) for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)]
found["path"] = sys.path
found["locale"] = locale.setlocale(locale.LC_ALL)
found["zone"] = time.tzname
found["functions"] = [f.__qualname__ for f in (hash, open, json.load, os.fork, random.random, sys.displayhook)]
found["kernel"] = {path: text(path) for path in glob.glob("/proc/sys/**", recursive=True)
                   if os.path.isfile(path) and not re.search("random|nr$|-state|ns_last_pid|count|sample_rate", path)}
for place in places:
    found["times of " + place] = [4711 in (os.stat(place).st_mtime, os.stat(place).st_atime)]
    found["flags of " + place] = flags(place)
found["locks"] = [attempt(lambda: lock(path)) for path in (
    sys.executable, "/etc/passwd", "/proc/self/comm", "/dev/null")]
def bind(kind, port):
    with socket.socket(socket.AF_INET, kind) as s:
        s.bind(("127.0.0.1", port))
found["ports"] = [attempt(lambda: bind(kind, port)) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
                  for port in (4711, 4712)]
for protocol in "udp", "raw", "icmp", "packet", "netlink":
    found[protocol] = attempt(lambda: len(open("/proc/net/" + protocol).readlines()))
found["modules"] = sorted(__import__("sys").modules)[:1000]
found`

// dig defines a function that nests directories too deeply for Python's recursion and for a path.
const dig = `
def dig(place):
    os.chdir(place)
    for _ in range(1200):
        os.mkdir("left" * 10)
        os.chdir("left" * 10)
    os.chdir("/workspace")
`

// leavings are programs that each try to leave something else behind.
var leavings = map[string]string{
	"shared memory of System V": `
size = 50 << 20
identifier = call(shmget, 4711, ctypes.c_size_t(size), 0o1666)
if identifier >= 0:
    libc.shmat.restype = ctypes.c_void_p
    ctypes.memset(libc.shmat(identifier, None, 0), 120, size)`,
	"semaphores of System V":    `call(semget, 4711, 5, 0o1666)`,
	"message queue of System V": `call(msgget, 4711, 0o1666)`,
	"private message queue":     `[call(msgget, 0, 0o1666) for _ in range(10)]`,
	"POSIX message queue":       `call(mq_open, b"left", os.O_CREAT | os.O_RDWR, 0o666, None)`,
	"POSIX shared memory":       `libc.shm_open(b"/left", os.O_CREAT | os.O_RDWR, 0o666)`,
	"POSIX semaphore":           `libc.sem_open(b"/left", os.O_CREAT, 0o666, 1)`,
	"keys": `
for ring in -2, -3, -4, -5:
    call(add_key, b"user", b"left", b"x", ctypes.c_size_t(1), ring)`,
	"namespaces":            `[call(unshare, 1 << bit) for bit in (17, 25, 26, 27, 28, 29, 30)]`,
	"mounts of a namespace": `call(unshare, 0x10020000); libc.mount(b"left", b"/tmp", b"tmpfs", 0, None)`,
	"host name":             `call(unshare, 0x14000000); libc.sethostname(b"left", 4)`,
	"pipes":                 `everywhere(lambda place: os.mkfifo(place + "/left"))`,
	"devices":               `everywhere(lambda place: os.mknod(place + "/left", stat.S_IFCHR | 0o666, 259))`,
	"sockets made by mknod": `everywhere(lambda place: os.mknod(place + "/left", stat.S_IFSOCK | 0o666))`,
	"sockets":               `everywhere(lambda place: socket.socket(socket.AF_UNIX).bind(place + "/left"))`,
	"closed sockets": `
def bind(place):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(place + "/left")
everywhere(bind)`,
	"sockets in directories": `
def bind(place):
    os.makedirs(place + "/a/b/c")
    os.chdir(place + "/a/b/c")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("left")
everywhere(bind)
os.chdir("/workspace")`,
	"sockets of other processes": `
def listen(place):
    s = socket.socket(socket.AF_UNIX)
    s.bind(place + "/left")
    s.listen()
if os.fork() == 0:
    everywhere(listen)
    os._exit(0)
os.wait()`,
	"a socket in a directory without permissions": `
os.mkdir("closed")
with socket.socket(socket.AF_UNIX) as s:
    s.bind("closed/left")
os.chmod("closed", 0)`,
	"listeners": `
s = socket.socket(socket.AF_UNIX)
s.bind("\0left")
s.listen()
t = socket.socket()
t.bind(("127.0.0.1", 4711))
t.listen()
if os.fork() == 0:
    os.setsid()
    while True: s.accept()`,
	"files": `
def write(place):
    os.makedirs(place + "/left/deep")
    open(place + "/left/deep/file", "w").write("x" * 100000)
everywhere(write)`,
	"hidden files": `
def write(place):
    open(place + "/.left", "w").close()
    os.symlink("/etc", place + "/..link")
everywhere(write)`,
	"odd names": `everywhere(lambda place: open(os.fsencode(place) + b"/\xff\n\x01", "w").close())`,
	"directories without permissions": `
def close(place):
    os.makedirs(place + "/left/deep")
    os.chmod(place + "/left/deep", 0)
    os.chmod(place + "/left", 0)
everywhere(close)`,
	"modes":          `everywhere(lambda place: os.chmod(place, 0o3777))`,
	"no permissions": `everywhere(lambda place: os.chmod(place, 0))`,
	"owners": `
for user, group in (-1, os.getgid()), (-1, 0), (-1, 4711), (4711, -1), (0, 0):
    everywhere(lambda place: os.chown(place, user, group))`,
	"other places": `
os.mkdir("/workspace/left")
for flags in 0, 1, 2, 4: # none, no replacement, exchange, whiteout
    everywhere(lambda place: libc.renameat2(-100, place.encode(), -100, b"/workspace/left", flags))
    everywhere(lambda place: libc.renameat2(-100, place.encode(), -100, b"/tmp/left", flags))
everywhere(os.rmdir)
everywhere(lambda place: libc.mount(b"left", place.encode(), b"tmpfs", 0, None))
everywhere(lambda place: libc.mount(b"/dev/shm", place.encode(), None, 4096, None)) # MS_BIND
everywhere(lambda place: libc.umount2(place.encode(), 2)) # MNT_DETACH`,
	"attributes": `
acl = bytes.fromhex("02000000" "01000700ffffffff" "04000700ffffffff" "20000700ffffffff")
everywhere(lambda place: os.setxattr(place, "user.left", b"x"))
everywhere(lambda place: os.setxattr(place, "system.posix_acl_default", acl))`,
	// Each socket is in the queue of the other, so that neither is ever closed by its reference count.
	"descriptors sent in a circle": `
import array
def send(to, *given):
    descriptors = array.array("i", [s.fileno() for s in given])
    to.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
for number in range(20):
    a, b, c, d = *socket.socketpair(), *socket.socketpair()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 4711 + number))
    listener.listen()
    with open("/tmp/%d" % number, "w+") as file:
        file.write("x" * 1000000)
        file.flush()
        os.remove(file.name)
        send(a, c, d, file, listener)
        send(c, a, b)`,
	"a memory file": `os.write(os.memfd_create("left"), b"x" * (1 << 20))`,
	"a terminal":    `attempt(lambda: __import__("pty").openpty())`,
	"a lock": `
f = open("/tmp/lock", "w")
fcntl.flock(f, fcntl.LOCK_EX)
os.fork() or time.sleep(60)`,
	"locks of files that all programs can read": `
held = []
for path in sys.executable, "/etc/passwd", "/proc/self/comm", "/dev/null":
    f = open(path, "rb")
    held.append(f)
    attempt(lambda: fcntl.flock(f, fcntl.LOCK_EX))
    attempt(lambda: fcntl.fcntl(f, 1024, fcntl.F_RDLCK)) # F_SETLEASE
os.fork() or time.sleep(60)`,
	"deep directories in the workspace": dig + `dig("/workspace")`,
	"deep directories in /tmp":          dig + `dig("/tmp")`,
	"deep directories in /dev/shm":      dig + `dig("/dev/shm")`,
	"long names": `
def write(place):
    path = place + "/" + "x" * 255
    os.mkdir(path)
    for i in range(14):
        path += "/" + str(i % 10) * 250
        os.mkdir(path)
everywhere(write)`,
	"many files": `
def write(place):
    os.mkdir(place + "/left")
    for i in range(1500):
        open(place + "/left/%d" % i, "w").close()
everywhere(write)`,
	"holes and links": `
def write(place):
    with open(place + "/left", "w") as f:
        f.truncate(1 << 40) if place == "/workspace" else f.truncate(1 << 24)
    for i in range(50):
        os.link(place + "/left", place + "/link%d" % i)
    os.symlink("left", place + "/symlink")
    os.symlink("..", place + "/up")
    os.symlink("loop", place + "/loop")
everywhere(write)`,
	"times of devices": `
for path in glob.glob("/dev/*"):
    attempt(lambda: os.utime(path))`,
	"removed devices": `
attempt(lambda: os.unlink("/dev/zero"))
attempt(lambda: os.rename("/dev/full", "/dev/left"))
attempt(lambda: os.utime("/dev"))`,
	"deleted files": `
import mmap
held = []
def write(place):
    f = open(place + "/left", "wb+")
    f.write(b"x" * (8 << 20))
    f.flush()
    held.append((f, mmap.mmap(f.fileno(), 8 << 20)))
    os.unlink(place + "/left")
    d = os.open(place, os.O_TMPFILE | os.O_RDWR)
    os.write(d, b"x" * (1 << 20))
everywhere(write)
os.fork() or time.sleep(60)`,
	"a deleted directory": `
def leave(place):
    os.mkdir(place + "/left")
    os.chdir(place + "/left")
    os.rmdir(place + "/left")
everywhere(leave)`,
	"times": `everywhere(lambda place: os.utime(place, (4711, 4711)))`,
	"flags": `
def set(place):
    d = os.open(place, os.O_RDONLY)
    for value in 0x10, 0x20, 0x40, 0x80, 0x20000: # immutable, append only, no dump, no atime, top of hierarchy
        attempt(lambda: fcntl.ioctl(d, 0x40086602, struct.pack("q", value))) # FS_IOC_SETFLAGS
    attempt(lambda: fcntl.ioctl(d, 0x401c5820, struct.pack("5I8x", 0, 0, 0, 4711, 0))) # FS_IOC_FSSETXATTR
    call((469, 469), d, b"", struct.pack("Q4I", 0x10, 0, 0, 4711, 0), ctypes.c_size_t(24), 0x1000) # file_setattr
everywhere(set)
for name in "a", "b":
    with open(name, "w") as f:
        attempt(lambda: fcntl.ioctl(f, 0x40086602, struct.pack("q", 0x10 if name == "a" else 0x20)))`,
	"its own process": `
import builtins
os.environ["LEFT"] = "x"
libc.setenv(b"LEFT", b"x", 1)
os.chdir("/tmp")
os.umask(0)
attempt(lambda: locale.setlocale(locale.LC_ALL, "C"))
os.environ["TZ"] = "LEFT-5"
time.tzset()
builtins.hash = json.load = os.fork = random.random = sys.displayhook = print
sys.path.insert(0, "/tmp")
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.setitimer(signal.ITIMER_VIRTUAL, 50)
os.nice(5)
attempt(lambda: os.sched_setaffinity(0, {0}))
attempt(lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)))
libc.prctl(15, b"left", 0, 0, 0) # PR_SET_NAME
libc.prctl(29, 5000, 0, 0, 0) # PR_SET_TIMERSLACK
libc.personality(0x0040000)
for name, value in (("oom_score_adj", "1000"), ("comm", "left"), ("coredump_filter", "0")):
    attempt(lambda: open("/proc/self/" + name, "w").write(value))
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))`,
	"its parent": `
import resource
parent = os.getppid()
for which in os.PRIO_PROCESS, os.PRIO_PGRP, os.PRIO_USER:
    for who in (parent, os.getpgid(parent), 0) if which != os.PRIO_USER else (0, os.getuid()):
        attempt(lambda: os.setpriority(which, who, 5)) if who else None
attempt(lambda: os.sched_setaffinity(parent, {0}))
attempt(lambda: os.sched_setscheduler(parent, os.SCHED_BATCH, os.sched_param(0)))
for number in range(16):
    attempt(lambda: resource.prlimit(parent, number, (4711, 4711)))
for path in glob.glob("/proc/%d/*" % parent) + glob.glob("/proc/%d/task/*/*" % parent):
    for value in "1000", "left":
        attempt(lambda: open(path, "w").write(value))
for number in 10, 12, 15, 18, 19: attempt(lambda: os.kill(parent, number))
attempt(lambda: os.setpgid(parent, 0))`,
	"settings of the kernel": `
written = []
for top in "/proc", "/sys", "/dev":
    for directory, names, files in os.walk(top):
        if re.match("/proc/([0-9]|self|thread)", directory):
            names.clear()
            continue
        for path in [directory + "/" + name for name in files]:
            if not re.match("/dev/(tty|ptmx|console|fd|std)", path) and not os.path.isdir(path):
                attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)) or written.append(path)
                        if os.access(path, os.W_OK) else None)
written`,
	"watches": `
d = libc.inotify_init()
for place in places:
    libc.inotify_add_watch(d, place.encode(), 0xFFF)
    e = os.open(place, os.O_RDONLY)
    attempt(lambda: fcntl.fcntl(e, fcntl.F_NOTIFY, fcntl.DN_CREATE | fcntl.DN_MULTISHOT))
libc.timerfd_create(1, 0), libc.eventfd(1, 0), libc.epoll_create(1)
libc.fanotify_init(0, 0)`,
	"pending signals": `
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
for number in range(34, 64):
    for _ in range(20): libc.sigqueue(os.getpid(), number, None)`,
	"closed connections": `
for port in 4711, 4712:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with socket.create_connection(("127.0.0.1", port)) as client:
            server, _ = listener.accept()
            server.close() if port == 4711 else client.close()`,
	"sockets connected to themselves": `
for family, address in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"):
    with socket.socket(family) as s:
        s.bind((address, 4711))
        attempt(lambda: s.connect((address, 4711)))`,
	"connections that are not accepted": `
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 4712))
    listener.listen()
    socket.create_connection(("127.0.0.1", 4712)).close()`,
	"datagrams": `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 4711))
s.sendto(b"x" * 1000, ("127.0.0.1", 4711))
attempt(lambda: s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4s", bytes([224, 1, 1, 1]),
                                                                                       bytes([127, 0, 0, 1]))))
os.fork() or time.sleep(60)`,
	"many threads": `
import threading
for _ in range(40): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()`,
}
