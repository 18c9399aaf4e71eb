package executortest

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/executor"
)

// testCarryOver checks that a program leaves nothing in its box for the next one. For everything that may outlive a
// process, a program creates it wherever it can, and the next program must find the box as it was before. In between,
// the host empties the workspace, as it does before a task with another workspace.
func testCarryOver(t *testing.T, newDriver newDriver) {
	b := open(t, newDriver(t), executor.Spec{})
	if b.info.Tier == "" {
		t.Skipf("driver %s does not isolate", b.info.Driver)
	}
	look := func() (found map[string]any) {
		t.Helper()
		v := b.run(t, kernelNumbers+lookAround)
		if err := json.Unmarshal(v.Result, &found); err != nil || len(found) < 20 {
			t.Fatalf("look around: %s, %v", show(v), err)
		}
		return found
	}
	before := look()
	for name, code := range leavings {
		t.Run(name, func(t *testing.T) {
			v := b.run(t, kernelNumbers+code)
			if v.Status != executor.Succeeded {
				t.Errorf("program that leaves something: %s, want success", show(v))
			}
			empty(t, b.spec.Workspace)
			if v.Dirty {
				b.restart(t) // as a pool replaces a dirty box
			}
			if diff := cmp.Diff(before, look()); diff != "" {
				t.Errorf("the box differs (-before +after):\n%s", diff)
			}
		})
	}
}

// restart replaces the box with a new one that has the same workspace.
func (b *box) restart(t *testing.T) {
	t.Helper()
	if err := b.single.Close(t.Context()); err != nil {
		t.Fatalf("Close() = %v", err)
	}
	b.start(t)
}

// kernelNumbers defines the numbers of the system calls that the programs below make, and helper functions.
const kernelNumbers = `
import ctypes, glob, os, re, socket, stat
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"
def call(number, *arguments):
    return libc.syscall(number[0] if x86 else number[1], *arguments)
shmget, shmat, semget, msgget, msgsnd = (29, 194), (30, 196), (64, 190), (68, 186), (69, 189)
mq_open, add_key, unshare, clone3 = (240, 180), (248, 217), (272, 97), (435, 435)
places = ["/workspace", "/tmp", "/dev/shm"]
def attempt(f):
    try:
        return f()
    except Exception as error:
        return type(error).__name__
def everywhere(f):
    for place in places:
        attempt(lambda: f(place))
`

// lookAround lists everything that an earlier program could have left.
const lookAround = `
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
    found["owner of " + place] = os.stat(place).st_uid
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
        found["free in " + place] = os.statvfs(place).f_bfree
def connect():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0left")
found["abstract socket"] = attempt(connect)
found["unix"] = attempt(lambda: sorted(line.split()[7:] for line in open("/proc/net/unix")))
found["tcp"] = attempt(lambda: len([line for line in open("/proc/net/tcp") if line.split()[3] == "0A"]))
found["mounts"] = text("/proc/self/mounts")
found["hostname"] = os.uname().nodename
found["terminals"] = attempt(lambda: sorted(os.listdir("/dev/pts")))
found["processes"] = len([p for p in glob.glob("/proc/[0-9]*") if user(p) == os.getuid() and os.getuid()])
found["signals"] = [line for line in open("/proc/self/status") if re.match("Sig|Shd", line)]
found["limits"] = sorted(line for line in open("/proc/self/limits") if "address space" not in line)
found["environment"] = sorted(os.environ)
found["umask"] = oct(os.umask(0o022))
found["descriptors"] = len(os.listdir("/proc/self/fd"))
found["modules"] = sorted(__import__("sys").modules)[:1000]
found`

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
	"sockets made as files": `everywhere(lambda place: os.mknod(place + "/left", stat.S_IFSOCK | 0o666))`,
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
	"modes":  `everywhere(lambda place: os.chmod(place, 0o700))`,
	"groups": `everywhere(lambda place: os.chown(place, -1, os.getgid()))`,
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
import fcntl, time
f = open("/tmp/lock", "w")
fcntl.flock(f, fcntl.LOCK_EX)
os.fork() or time.sleep(60)`,
}
