"""The runner: one process per box that forks children in advance and hands them the next programs.

It exchanges frames with the host on descriptors 0 and 1, and with the child on a socket. It trusts the
host, but nothing that the child sends: a child that violates the protocol is killed. The runner has one
thread, so that forking is safe.
"""

import collections
import ctypes
import gc
import os
import select
import signal
import site
import socket
import sys
import time
import traceback

from codefleet import catalogue, child, confine, frames, hidden, session, zeros

VERSION = 1
MAX_CALLS = 64  # calls in progress at once; a program that starts more waits
MAX_BACKLOG = 64 << 20  # bytes that a child may leave unread
MAX_PARTS = (4 * child.MAX_MESSAGE, 4 * child.MAX_CAUSE, session.LIMIT)  # bytes of the texts in an end frame
CHUNK = 1 << 16
MAX_SWEEPS = 200  # attempts to kill the processes that the program left
PTRACE_ATTACH = 16
STOP_MS = 20  # time for a child to stop
KILL_MS = 200  # time for a killed child to end
# After a result the runner waits, so that preparing for the next program does not compete with the
# delivery of the result, unless programs come in quick succession.
DELIVERY_MS = 3
DEMAND_S = 0.01  # it does not wait if the program arrived within this time after the child was ready
READY_S = 20  # time for a child to send each of the frames with which it becomes ready
# When children are forked in advance; see Stock.
NEAR_S, BURST_S = 0.25, 0.1  # if programs come at shorter intervals, the runner keeps one child or three
WAITED_S = 0.001  # a program that came this long after a fork did not wait for it
KEEP_S = 2  # time without a program after which the children are killed
STOCK_MB = 64  # memory for all children
MAX_REPORTS = 1000  # forwarded reports of calls made in the child
CONNECTION = ("data", "ack", "eof", "reset")
SYSINFO = ctypes.create_string_buffer(256)  # struct sysinfo of 64-bit Linux has 112 bytes
CODES = ("bad_state", "exception", "exit_code", "memory_limit", "result_too_large", "syntax_error")


def main(boot, compiled):
    sys.path = [entry for entry in sys.path if entry] + packages()
    preload(boot)
    boot["modes"] = {path: os.stat(path).st_mode & 0o7777 for path in boot["scratch"]}
    harden(boot)
    wake, waker = os.pipe()
    for descriptor in (wake, waker):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    caches = os.open("/proc/sys/vm/drop_caches", os.O_WRONLY) if boot["stale_caches"] else None
    gc.collect()
    gc.freeze()
    zeros.drop()
    host = Host(wake, caches)
    ready = {"t": "hello", "version": VERSION, "python": "%d.%d.%d" % sys.version_info[:3]}
    ready["interpreter"] = sys.version
    if boot["pause"]:
        pause(host, ready, compiled)
        compiled = b""
    Child.unix_sockets = confine.unix_sockets() if boot["hidden_sockets"] else 0
    Child.opened = confine.opened_connections() if boot["hidden_sockets"] else 0
    # In a box without a separate user, programs own /dev. But without a count of threads, this is no such box: it is a
    # test's process on the host, which has the host's /dev.
    Child.device_times = confine.times(confine.devices(boot["counts_threads"] and not boot["separate_user"]))
    stock = Stock(boot)
    while True:
        execution = Execution(host, stock.take(), stock)
        host.send(ready, compiled)
        execution.run()
        if execution.modules:
            catalogue.learn(boot["catalogue"], execution.catalogue, execution.modules)
            stock.clear()  # they lack these modules
        ready, compiled = {"t": "ready"}, b""


def preload(boot):
    """Imports modules before programs start. Announces each to the host first, because an import may never end.

    What a module prints goes to standard error, not into the protocol, and its standard input is empty. Files
    that it leaves in the scratch directories are removed here, because they belong to root.
    """
    if not boot["preload"]:
        return
    ours = [os.dup(0), os.dup(1)]
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    os.dup2(2, 1)
    for name in boot["preload"]:
        os.write(ours[1], frames.pack({"t": "preload"}))
        try:
            __import__(name)
        except Exception as error:  # without the frames of this file
            inner = error.__traceback__.tb_next
            raise SystemExit("".join(traceback.format_exception(type(error), error, inner)).strip()) from None
    sys.__stdout__.flush()
    for number, descriptor in enumerate(ours):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for directory in boot["scratch"]:
        child.empty(directory, child.Budget(1 << 40, 1 << 40))


def pause(host, ready, compiled):
    """Waits for the host to continue, in this box or in boxes restored from its snapshot."""
    before = files()
    host.send(dict(ready, t="warm"), compiled)
    while not host.read():
        pass
    if files() != before:
        changed = sorted({path for path, *_ in files() ^ before})
        raise SystemExit("files have changed since the snapshot: " + ", ".join(changed[:3]))


def files():
    """Returns the files mapped into this process and the directories of modules, with size and time."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if "/" in line}
    found = set()
    for path in paths.union(sys.path):
        if os.path.exists(path):
            status = os.stat(path)
            found.add((path, status.st_size, status.st_mtime_ns))
    return found


def packages():
    """Returns the directories of packages. Adds exit() and help() to the built-ins, because python -S does not."""
    site.setquit()
    site.sethelper()
    layer = [child.PACKAGES] if os.path.isdir(child.PACKAGES) and os.listdir(child.PACKAGES) else []
    return layer + [path for path in site.getsitepackages() if os.path.isdir(path)]


def harden(boot):
    """Keeps this process and its children from gaining privileges, and other processes from inspecting this one."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = [
        (38, 1),  # PR_SET_NO_NEW_PRIVS
        (36, 1),  # PR_SET_CHILD_SUBREAPER: orphans become our children
        (4, 0),  # PR_SET_DUMPABLE: no other process may inspect this one
    ]
    for option, value in options:
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl %d" % option)
    confine.install_filter(libc)
    Child.libc = libc


def readable(descriptor, ms):
    """Waits up to ms milliseconds for input. Returns whether there is any."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(ms))


class Host:
    """The connection to the host. When it ends, so do the runner and all processes that it started."""

    def __init__(self, wake, caches):
        self.wake = wake
        self._caches = caches
        self._caches_used = False  # whether a program has run, after which the caches may be stale
        self._frames, self.child_frames = [frames.Splitter(hidden.Region(frames.CAPACITY)) for _ in range(2)]
        self.chunk = hidden.Region(CHUNK).view  # for data that is forwarded at once
        self.backlog = hidden.Queue(MAX_BACKLOG)  # to be sent to the child

    def refresh(self):
        """Drops the kernel's caches of file names and attributes, because the host may have changed files."""
        if self._caches is not None and self._caches_used:
            os.pwrite(self._caches, b"2", 0)
        self._caches_used = True

    def send(self, header, body=b""):
        head = memoryview(frames.head(header, len(body)))
        sent = os.writev(1, [head, body])
        for part in (head, memoryview(body)):
            left = part[sent:]
            while left:
                left = left[os.write(1, left) :]
            sent = max(0, sent - len(part))

    def forget(self):
        """Forgets what was forwarded for a program that has ended, and frees the memory that held it."""
        self.backlog.clear()
        self.child_frames.forget()
        if not self._frames:  # otherwise it has the beginning of the next message
            self._frames.forget()

    def woken(self, ms):
        """Waits up to ms milliseconds for a signal. Returns whether one arrived."""
        return readable(self.wake, ms)

    def read(self):
        """Waits for input and returns the frames that are complete."""
        if not self._frames.receive(lambda memory: os.readv(0, [memory])):
            raise SystemExit(0)
        found = []
        while True:
            frame = self._frames.next()
            if frame is None:
                return found
            found.append(frame)


class Child:
    """A process that waits for a program and runs it.

    It starts as the runner's user, so that an earlier program that still runs cannot reach it. admit makes it drop
    its privileges.
    """

    newest_socket = 0  # number of the last socket that the runner has created

    def __init__(self, boot):
        self.boot = boot
        ours, theirs = socket.socketpair()
        Child.newest_socket = max(confine.socket_number(end) for end in (ours, theirs))
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(theirs.fileno(), out, err)
        theirs.close()
        os.close(out)
        os.close(err)
        self.control = ours
        for descriptor in (self.out, self.err):
            os.set_blocking(descriptor, False)
        ours.settimeout(READY_S)

    def expect(self, frame):
        """Waits for a frame of a child that has no program yet."""
        if self.control.recv(len(frame)) != frame:
            os.write(2, os.read(self.err, CHUNK))
            raise SystemExit("the child did not become ready")

    def admit(self):
        """Makes the child ready for a program. No process of an earlier program may be left."""
        self.control.send(child.ADMIT)
        self.expect(WARM)
        self.expect(READY)
        self.control.setblocking(False)

    def _become(self, control, out, err):
        """Turns the forked process into the child. Does not return."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            null = os.open(os.devnull, os.O_RDONLY)
            # All four are above 3, because the runner uses 0 to 3; so none is overwritten before it is copied.
            for number, descriptor in enumerate((null, out, err, control)):
                os.dup2(descriptor, number, inheritable=number < child.CONTROL)
            os.closerange(child.CONTROL + 1, 256)
            child.main(self.boot, self._drop_privileges)
        finally:
            os._exit(child.LOST)

    def _drop_privileges(self):
        if self.boot["separate_user"]:
            os.setgroups([])
            os.setresgid(*[self.boot["uid"]] * 3)
            os.setresuid(*[self.boot["uid"]] * 3)
        self.libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: the child may read its own /proc again

    def made_sockets(self):
        """Returns whether the program has created sockets in a box in which they may outlive it."""
        if not self.boot["hidden_sockets"]:
            return False
        before, Child.newest_socket = Child.newest_socket, confine.next_socket_number()
        return Child.newest_socket != before + 1

    def close(self):
        self.control.close()
        os.close(self.out)
        os.close(self.err)


class Stock:
    """Children that are forked in advance, so that a program need not wait for a fork.

    A fork takes as long as some small programs. While programs follow each other, the runner forks up to three
    children in a lull: when no program has come for twice the usual time. If it has no child, it forks one as soon as
    it is ready for a program, unless the last program had to wait for such a fork. Children cost memory, so they are
    killed when no program has come for a while.
    """

    def __init__(self, boot):
        self.boot = boot
        self.children = collections.deque()
        self.gaps = collections.deque([KEEP_S] * 3, 3)  # seconds between the last programs
        self.arrived = time.monotonic()
        self.eager = False  # whether a fork would have ended well before the last program came
        self.forked = False  # whether a child was forked since the last program came
        self.fork_s = 0.0  # how long the last fork took
        # Without a user of their own, programs could reach the children. Without a count of threads, the runner could
        # not tell them from processes that a program has left.
        self.limit = affordable() if boot["separate_user"] and boot["counts_threads"] else 0

    def take(self):
        """Returns a child that is ready for a program."""
        taken = self.children.popleft() if self.children else Child(self.boot)
        taken.admit()
        return taken

    def note_arrival(self, idle, waited):
        """Records that a program has come.

        idle is how long the runner was ready for it, and waited how long it waited since the last fork, in seconds.
        """
        now = time.monotonic()
        self.gaps.append(now - self.arrived)
        self.eager = waited > WAITED_S if self.forked else idle > 2 * self.fork_s
        self.arrived, self.forked = now, False

    def gap(self):
        """Returns the usual time between programs: the median."""
        return sorted(self.gaps)[1]

    def wanted(self):
        """Returns how many children to keep."""
        return min(self.limit, 3 if self.gap() < BURST_S else 1 if self.gap() < NEAR_S else 0)

    def timeout(self):
        """Returns how many milliseconds to wait for a program before a call of adjust, or None for no limit."""
        lacking = len(self.children) < self.wanted()
        if not lacking and not self.children:
            return None
        if self.eager and not self.children and not self.forked:
            return 0
        due = self.arrived + (2 * self.gap() if lacking else KEEP_S) - time.monotonic()
        return max(0, int(1000 * due) + 1)

    def adjust(self):
        """Forks a child, or kills all if no program has come for a while."""
        began = time.monotonic()
        if began - self.arrived >= KEEP_S:
            self.clear()
            self.gaps.extend([KEEP_S] * 3)
        elif len(self.children) < self.wanted():
            self.children.append(Child(self.boot))
            self.forked, self.fork_s = True, time.monotonic() - began

    def clear(self):
        """Kills the children."""
        while self.children:
            dropped = self.children.popleft()
            os.kill(dropped.pid, signal.SIGKILL)
            os.waitpid(dropped.pid, 0)
            dropped.close()

    def ended(self, pid):
        """Notes that a process has ended. A child ends if the box has too little memory."""
        for dropped in list(self.children):
            if dropped.pid == pid:
                self.children.remove(dropped)
                dropped.close()


def affordable():
    """Returns how many children fit into STOCK_MB. In time, each gets its own copy of half of the runner's memory."""
    with open("/proc/self/statm", "rb") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return min(3, (STOCK_MB << 20) // max(1, resident // 2))


def network(boot):
    """Returns the module for programs with network access, and loads it the first time."""
    module = sys.modules.get("codefleet.network")
    if module is None:
        module = type(sys)("codefleet.network")
        exec(compile(boot["lazy"], "<codefleet/network.py>", "exec", dont_inherit=True), module.__dict__)
        sys.modules[module.__name__] = module
    return module


WARM = frames.pack({"t": "warm"})
READY = frames.pack({"t": "ready"})


class Execution:
    """One execution of a program, from the host's `run` to `left`."""

    def __init__(self, host, child, stock):
        self.host, self.child, self.stock = host, child, stock
        self.id = None  # until the program has arrived
        self.since, self.idle = time.monotonic(), 0.0  # idle: seconds that the child waited for the program
        self.waiting = 0.0  # when the runner last began to wait for the program
        self.output = {"stdout": 0, "stderr": 0}  # bytes that may still be forwarded
        self.dropped = 0
        self.check = False  # the child must send facts before it runs the program
        self.listening = True  # the child has not closed its end
        self.calls = set()  # ids of the calls in progress
        self.reports = 0
        self.catalogue, self.modules = None, []  # version, and modules of it that the child imported (untrusted)
        self.network = None  # connections, if the program has network access
        self.how = None  # how the program ended
        self.error = None
        self.body, self.sizes = b"", [0, 0, 0]  # texts (untrusted) and result, and the sizes of the texts
        self.state_saved = False  # (untrusted)
        self.status = None  # wait status of the child, once it is reaped
        self.cpu, self.peak = 0.0, 0
        self.oom_kills = oom_kills(child.boot)
        self.count_threads()
        self.handlers = {
            0: self.from_host,
            child.control.fileno(): self.from_child,
            child.out: lambda: self.forward("stdout", child.out),
            child.err: lambda: self.forward("stderr", child.err),
            host.wake: self.reap,
        }
        self.poll = select.poll()
        for descriptor in self.handlers:
            self.poll.register(descriptor, select.POLLIN)

    def run(self):
        try:
            while self.id is None and self.how is None:
                timeout, self.waiting = self.stock.timeout(), time.monotonic()
                if not self.wait(timeout) and timeout is not None:
                    self.stock.adjust()
                    self.count_threads()
            while self.how is None:
                self.wait()
            if self.id is None:
                raise SystemExit("the child ended before it had a program")
        except BaseException:  # the connection to the host has ended, or there is a bug
            self.kill()
            raise
        self.finish()

    def wait(self, timeout=None):
        """Handles events, for which it waits up to timeout milliseconds. Returns whether there were any."""
        control = self.child.control.fileno()
        found = self.poll.poll(timeout)
        for descriptor, events in found:
            if descriptor not in self.handlers:  # belongs to a connection, which may have ended
                self.network.serve(descriptor, events)
                continue
            if events & select.POLLOUT and descriptor == control:
                self.flush()
                self.watch_child()
            if events & ~select.POLLOUT and self.how is None:
                self.handlers[descriptor]()
        return bool(found)

    def count_threads(self):
        """Counts the threads in the box as long as the program, which may not have arrived, has only one."""
        self.initial_threads = threads() if self.child.boot["counts_threads"] else 0

    def from_host(self):
        """Handles the host's frames. Most are for the child, too."""
        for header, body, frame in self.host.read():
            kind = header["t"]
            if kind in CONNECTION:
                if self.network:
                    self.network.handle(header, body)
                continue
            if kind == "cancel":
                if header.get("task") == self.id:
                    self.how = "cancelled"
                continue
            if kind == "run":
                self.host.refresh()
                self.id, self.check = header["task"], header["facts"]
                now = time.monotonic()
                self.idle = now - self.since
                self.stock.note_arrival(self.idle, now - self.waiting)
                self.catalogue = header.get("catalogue")
                self.output = dict.fromkeys(self.output, header["limits"]["output"])
                if header.get("network"):
                    self.network = network(self.child.boot).Network(self.host, self.poll)
                    Child.newest_socket = confine.socket_number(self.network.listener)
                    self.host.backlog.put(frames.pack({"t": "network", "port": self.network.port}))
            elif kind == "reply":
                self.calls.discard(header["id"])
            # Without an id, the frame is of type next, or a reply to an earlier program.
            if self.id is not None and not self.host.backlog.put(frame):
                self.how = "channel"
        self.flush()
        self.handle_frames_or_break()  # handles frames that waited for replies

    def flush(self):
        try:
            while self.host.backlog:
                self.host.backlog.send(self.child.control)
        except BlockingIOError:
            pass
        except OSError:  # the child closed its end
            self.host.backlog.clear()

    def watch_child(self):
        """Polls for writing if there is a backlog, and for reading unless too many calls are in progress."""
        if not self.listening:
            return
        events = select.POLLOUT if self.host.backlog else 0
        if len(self.calls) < MAX_CALLS:
            events |= select.POLLIN
        self.poll.modify(self.child.control.fileno(), events)

    def from_child(self):
        try:
            received = self.host.child_frames.receive(self.child.control.recv_into)
        except BlockingIOError:
            return
        except OSError:
            received = 0
        if not received:
            self.poll.unregister(self.child.control.fileno())  # its exit status will follow
            self.listening = False
            return
        self.handle_frames_or_break()

    def handle_frames_or_break(self):
        try:
            self.handle_frames()
        except frames.Broken:
            self.how = "channel"
        self.watch_child()

    def handle_frames(self):
        """Handles the child's frames. After its exit, only the end frame counts."""
        while self.how == "exit" or self.how is None and len(self.calls) < MAX_CALLS:
            frame = self.host.child_frames.next()
            if frame is None:
                return
            header, body, _ = frame
            kind = header["t"]
            if kind == "end":
                error, sizes = failure(header.get("error")), sizes_of_texts(header, len(body))
                self.modules = modules(header) if self.catalogue else []
                self.how, self.error, self.body, self.sizes = "end", error, body, sizes
                self.state_saved = header.get("state_saved") is True
            elif self.how == "exit":
                continue
            elif kind == "call" and not self.check:
                self.host.send(self.checked_call(header), body)
            elif kind == "called" and not self.check:
                self.report(header)
            elif kind == "checked" and self.check:
                self.check = False
                self.host.send({"t": "checked"}, body)
            else:
                raise frames.Broken(kind)

    def checked_call(self, header):
        """Returns the header of a call for the host, validated."""
        number = header.get("id")
        if type(number) is not int or not 0 < number < 1 << 53 or number in self.calls:
            raise frames.Broken("id of a call")
        self.calls.add(number)
        return {"t": "call", "id": number, **names(header, "server", "tool", "hash")}

    def report(self, header):
        """Forwards the child's report of a call that it made itself, up to MAX_REPORTS."""
        ms, ok = header.get("ms"), header.get("ok")
        if type(ms) not in (int, float) or not 0 <= ms < 1e9 or type(ok) is not bool:
            raise frames.Broken("report of a call")
        self.reports += 1
        if self.reports <= MAX_REPORTS:
            self.host.send({"t": "called", "ms": ms, "ok": ok, **names(header, "server", "tool")})

    def forward(self, stream, descriptor):
        """Forwards output. Returns False if there was none."""
        try:
            count = os.readv(descriptor, [self.host.chunk])
        except BlockingIOError:
            return False
        if not count:
            self.poll.unregister(descriptor)
            return False
        kept = min(count, self.output[stream])
        self.output[stream] -= kept
        self.dropped += count - kept
        if kept:
            self.host.send({"t": "out", "stream": stream}, self.host.chunk[:kept])
        return True

    def reap(self):
        """Handles SIGCHLD."""
        try:
            os.read(self.host.wake, 512)
        except BlockingIOError:
            pass
        self.collect()
        if self.status is not None and self.how is None:
            self.how = "exit"

    def collect(self):
        """Reaps ended processes. Returns whether there are others, except the runner and its stock."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return not self.stock.children or threads() != 1 + len(self.stock.children)
            if os.WIFSTOPPED(status):  # traced, by halt or by another process of the program
                continue
            self.stock.ended(pid)
            self.record_exit(pid, status, usage)

    def record_exit(self, pid, status, usage):
        self.add_usage(usage)
        if pid == self.child.pid:
            self.status = status

    def add_usage(self, usage):
        self.cpu += usage.ru_utime + usage.ru_stime
        self.peak = max(self.peak, usage.ru_maxrss)

    def finish(self):
        """Stops all processes of the program, forwards its last output, and reports. Then it looks for what is left."""
        if not self.halt():
            self.kill()
        if self.network:
            self.network.close()
        if self.how == "exit":
            self.read_last_frames()
        for stream, descriptor in (("stdout", self.child.out), ("stderr", self.child.err)):
            self.drain(stream, descriptor)
        header = {"t": "done", "how": self.how, "cpu_ms": self.cpu * 1000, "peak_kb": self.peak}
        header.update(dropped=self.dropped, oom=oom_kills(self.child.boot) > self.oom_kills)
        if self.how == "exit":
            code = os.waitstatus_to_exitcode(self.status)
            header.update({"signal": signal_name(-code)} if code < 0 else {"code": code})
        if self.error:
            header["error"] = self.error
        if any(self.sizes):
            header["parts"] = self.sizes
        if self.state_saved:
            header["state_saved"] = True
        try:
            self.host.send(header, self.body)
        except frames.Broken:
            for key in ("error", "parts"):
                header.pop(key, None)
            self.host.send(dict(header, how="channel"))
        self.host.forget()
        scratch = not all(map(is_empty, self.child.boot["scratch"]))
        self.host.send({"t": "left", "left": self.left(), "scratch": scratch})
        if self.idle > DEMAND_S:
            readable(0, DELIVERY_MS)
        self.kill()

    def left(self):
        """Returns what the program left in the box that cannot be removed. Call it after its processes have stopped."""
        boot = self.child.boot
        made_sockets = self.child.made_sockets()
        if made_sockets:  # ends the sockets that its processes hold, so that the others are found
            self.kill()
        self.child.close()
        if confine.times(Child.device_times) != Child.device_times:
            return "changes in /dev"
        if not made_sockets:
            return ""
        if confine.unix_sockets() != Child.unix_sockets + 2 * len(self.stock.children):
            return "sockets that were sent to each other"
        before, Child.opened = Child.opened, confine.opened_connections()
        if Child.opened - before > (self.network.ordinary if self.network else 0):
            return "ports of closed connections"
        return confine.special_file(boot["workspace"], boot["uid"] if boot["separate_user"] else os.geteuid())

    def halt(self):
        """Stops a child that has reported its end. That is faster than its exit, which frees its memory.

        A process that is traced and stopped executes no instruction until its tracer continues it, whatever
        signals arrive. Returns True if the program is stopped this way and has no other thread.
        """
        if self.how != "end" or self.status is not None or threads() != self.initial_threads:
            return False
        if Child.libc.ptrace(PTRACE_ATTACH, self.child.pid, None, None) != 0:
            return False
        self.host.woken(STOP_MS)
        pid, status, usage = os.wait4(self.child.pid, os.WNOHANG)
        if pid and not os.WIFSTOPPED(status):
            self.record_exit(pid, status, usage)
        if pid == 0 or self.status is not None or threads() != self.initial_threads:
            return False
        self.add_usage(usage)
        return True

    def kill(self):
        """Kills the child and all processes that it left. As subreaper, the runner is their parent."""
        if self.status is None:
            os.kill(self.child.pid, signal.SIGKILL)
        while self.status is None:
            if not self.host.woken(KILL_MS):  # its exit may wait for another process
                kill_all(self.child.boot)
            self.reap()
        for _ in range(MAX_SWEEPS):
            if not self.collect():
                return
            kill_all(self.child.boot)
            self.collect()
        raise SystemExit("processes of the program cannot be killed")

    def read_last_frames(self):
        """Looks for the end frame in what the child sent before it exited."""
        try:
            self.handle_frames()
            while self.how == "exit" and self.host.child_frames.receive(self.child.control.recv_into):
                self.handle_frames()
        except (OSError, frames.Broken):
            pass

    def drain(self, stream, descriptor):
        try:
            while self.forward(stream, descriptor):
                pass
        except KeyError:  # the stream has already ended
            pass


def is_empty(directory):
    """Returns whether a directory is known to be empty. A program may have removed the runner's access to it."""
    try:
        with os.scandir(directory) as scan:
            return next(scan, None) is None
    except OSError:
        return False


def oom_kills(boot):
    """Returns how many processes the box's kernel has killed for lack of memory, or 0 if it does not count them."""
    if not boot["oom_events"]:
        return 0
    with open(boot["oom_events"], "rb") as events:
        return next(int(line.split()[1]) for line in events if line.startswith(b"oom_kill "))


def threads():
    """Returns the number of threads of the runner and of programs in the box."""
    Child.libc.sysinfo(SYSINFO)
    return int.from_bytes(SYSINFO[80:82], sys.byteorder)  # procs


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def failure(report):
    """Returns a child's error report, validated."""
    if report is None:
        return None
    if not isinstance(report, dict) or report.get("code") not in CODES:
        raise frames.Broken("error")
    line, hint = report.get("line", 0), report.get("hint", "")
    if hint not in child.HINTS:
        raise frames.Broken("hint")
    return {
        "code": report["code"],
        "hint": hint,
        "line": line if type(line) is int and 0 <= line < 1 << 31 else 0,
    }


def sizes_of_texts(header, size):
    """Returns the sizes of the texts with which the body of a child's end frame begins, validated."""
    found = header.get("parts", [0, 0, 0])
    if not isinstance(found, list) or len(found) != len(MAX_PARTS) or not all(type(part) is int for part in found):
        raise frames.Broken("parts")
    if sum(found) > size or not all(0 <= part <= limit for part, limit in zip(found, MAX_PARTS)):
        raise frames.Broken("parts")
    return found


def modules(header):
    """Returns the catalogue modules that a child reports as imported, validated."""
    found = header.get("modules", [])
    if not isinstance(found, list) or len(found) > catalogue.MAX_MODULES:
        raise frames.Broken("modules")
    for name in found:
        if not isinstance(name, str) or not catalogue.NAME.fullmatch(name):
            raise frames.Broken("modules")
    return found


def names(header, *keys):
    """Returns the names in a tool call, validated."""
    found = {key: text(header.get(key), frames.MAX_NAME) for key in keys}
    for key in keys:
        if found[key] != header[key]:
            raise frames.Broken(key)
    return found


def text(value, limit):
    if not isinstance(value, str):
        raise frames.Broken("missing text")
    return value[:limit]


def kill_all(boot):
    """Kills all processes of the program's user or, without a separate user, all descendants of this process."""
    if not boot["separate_user"]:
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(*[boot["uid"]] * 3)
            os.kill(-1, signal.SIGKILL)  # all at once: no process can escape by forking
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def descendants():
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as stat:
                    parents[int(name)] = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                pass
    found, size = {os.getpid()}, 0
    while len(found) != size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found - {os.getpid()}
