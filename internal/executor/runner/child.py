"""The process of one program: forked in advance, then given a program to run.

It has no privileges. Once the program has started, nothing that this process sends can be trusted.
"""

import ast
import atexit
import builtins
import errno
import io
import itertools
import json
import linecache
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
import types

import _signal
from posix import _exit, fstat, getpid, readv, write  # bound before a program can replace them
from posixpath import samestat

from codefleet import catalogue, facts, frames, hidden, jsonable, mcp_client, pictures, session, statevar

FILENAME = "program.py"
PACKAGES = "/opt/packages"  # the package layer, if the box has one
CONTROL = 3  # the descriptor of the channel to the runner
ADMIT = b"a"  # what the runner sends when no earlier program runs any more
LOST = 121  # exit code of a process that has no program, or that a program has forked
UNREPORTED = 62  # signal that ends the process if the end of the program cannot be reported; it has no other use
MAX_MESSAGE, MAX_CAUSE = 2000, 9000  # characters of a failure's texts
MAX_REPORTS = 1000  # reports of calls that are made in this process
USE_FILE = "write it to a file and return the file's name"
HINTS = ("", USE_FILE) + statevar.HINTS  # all that a child may send: readers take a hint for the fleet's advice
CA_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
MAX_LEFT, EMPTY_S = 10_000, 1  # entries of the scratch directories that are removed, and time for that
RECURSION = 1000  # the interpreter's own recursion limit, for what follows a program
SIGNALS = frozenset(map(int, signal.valid_signals()))
MAX_CALMS = 100  # attempts to remove what interrupts the report
STACK = 4 << 20  # bytes of address space for the stack of a thread: at 8 MiB, few threads fit into the memory limit
SPARE = 32 << 20  # bytes of address space for reporting that the memory limit was reached


def main(boot, drop_privileges):
    """Runs in the forked child, with descriptors 0 to 3 in place. Does not return.

    Until the runner admits the child, an earlier program may still run, so the child reads nothing that programs can
    write.
    """
    try:
        warm(boot)
        channel = Channel(CONTROL)
        channel.send({"t": "warm"})
        if not os.read(CONTROL, len(ADMIT)):
            _exit(LOST)
        drop_privileges()
        space, maxima = prepare(boot)
        channel.send({"t": "ready"})
        run, body = channel.receive()
        if run["t"] == "network":
            use_proxy(run["port"])
            run, body = channel.receive()
        Program(boot, channel, run, body, space, maxima).run()
    except TooMuchLeft as error:
        print(error, file=sys.stderr, flush=True)
    except BaseException:
        quietly(traceback.print_exc)
    lost()


def lost():
    """Ends the process of a program whose end cannot be reported: by a signal, because programs use all exit codes."""
    quietly(lambda: _signal.signal(UNREPORTED, _signal.SIG_DFL))
    quietly(lambda: _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {UNREPORTED}))
    quietly(lambda: _signal.raise_signal(UNREPORTED))
    _exit(LOST)


def warm(boot):
    """Does everything for which the process needs neither a program nor empty scratch directories."""
    sys.stdout = sys.__stdout__ = text_stream(1)
    sys.stderr = sys.__stderr__ = text_stream(2)
    sys.dont_write_bytecode = True
    sys.argv = [FILENAME]
    os.environ["TMPDIR"] = boot["scratch"][0]
    client = types.ModuleType("client", "The program's interface to the fleet.")
    client.__path__ = []
    client.mcp_client = mcp_client
    mcp_client.__name__ = mcp_client.ToolError.__module__ = "client.mcp_client"
    client.session = session
    session.__name__ = "client.session"
    sys.modules["client"], sys.modules["client.mcp_client"] = client, mcp_client
    sys.modules["client.session"] = session
    os.umask(0o022)
    threading.stack_size(STACK)
    rehearse()


LIMITS = ("AS", "CPU", "FSIZE", "NOFILE", "NPROC", "CORE")


def prepare(boot):
    """Prepares the process for a program. Returns the address space in use, in bytes, and the maxima of its limits."""
    budget = Budget(MAX_LEFT, EMPTY_S)
    for directory in boot["scratch"]:
        if not boot["separate_user"]:  # a program may have removed its own access, which is also this process's
            os.chmod(directory, boot["modes"][directory])
        empty(directory, budget)
        if not boot["separate_user"]:  # a program may have set the times of its own directory
            os.utime(directory)
    if boot["stale_caches"]:  # the host resets them too, but this kernel does not notice
        os.stat(boot["workspace"])  # a mount's root directory seems to be root's until its owner is read
        os.chmod(boot["workspace"], 0o700)
        os.utime(boot["workspace"])
    sys.path.append(boot["workspace"])
    os.chdir("/")  # the parser's errors quote lines of a file with the program's name in the working directory
    maxima = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1] for name in LIMITS}
    return address_space(), maxima


def rehearse():
    """Runs code that every program needs, so that this process already has its own copies of the pages it writes."""
    random.seed("rehearsal")
    code = "import math\nx = [math.pi]\nfor y in x: y + math.sqrt(1)\nx"
    facts.encoded(compile(code, FILENAME, "exec", ast.PyCF_ONLY_AST, True), code)
    tree = compile("x = [1]\nfor y in x: y + 1\nx", FILENAME, "exec", ast.PyCF_ONLY_AST, True)
    exec(compile(tree, FILENAME, "exec", 0, True), {})
    frames.pack({"t": "end"})
    json.loads(jsonable.dump({"x": [1, "y"]}, 100))


def reseed(task):
    """Seeds the random number generators. numpy's was seeded by its import in the runner, if it was preloaded."""
    random.seed(task)
    seed = getattr(sys.modules.get("numpy.random"), "seed", None)
    if seed:
        try:
            seed()
        except TypeError:  # a preloaded module has replaced it
            pass


def use_proxy(port):
    """Configures HTTP clients to use the proxy and the system's CA certificates."""
    address = "http://127.0.0.1:%d" % port
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        os.environ[name] = os.environ[name.upper()] = address
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "localhost,127.0.0.1,::1"
    for path in CA_FILES:
        if os.path.exists(path):
            os.environ.setdefault("SSL_CERT_FILE", path)


def text_stream(descriptor):
    return open(descriptor, "w", 1, "utf-8", "backslashreplace", closefd=False)


class TooMuchLeft(Exception):
    """The scratch directories cannot be emptied within the budget, so the box must be replaced."""


class Budget:
    """What the removal of files may cost: a number of entries, and seconds."""

    def __init__(self, entries, seconds):
        self.left, self.deadline = entries, time.monotonic() + seconds

    def spend(self):
        """Accounts for one entry."""
        self.left -= 1
        if self.left < 0 or time.monotonic() > self.deadline:
            raise TooMuchLeft("the program left more in the scratch directories than can be removed at once")


def empty(directory, budget):
    """Removes everything in a directory. Raises an error if something is left, or if the budget is exceeded.

    It moves nested directories to the top before it removes their parents, so neither their depth nor the length of
    their paths matters.
    """
    moved = 0
    below = _remove_files(directory, budget)
    while below:
        inner = os.path.join(directory, below.pop())
        for name in _remove_files(inner, budget):
            while os.path.lexists(os.path.join(directory, str(moved))):
                moved += 1
            os.rename(os.path.join(inner, name), os.path.join(directory, str(moved)))
            below.append(str(moved))
        os.rmdir(inner)


def _remove_files(directory, budget):
    """Removes everything but directories in a directory. Returns the names of the directories, made accessible."""
    with os.scandir(directory) as scan:
        entries = list(itertools.islice(scan, budget.left + 1))
    below = []
    for entry in entries:
        budget.spend()
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
            below.append(entry.name)
        else:
            os.unlink(entry.path)
    return below


class Channel:
    """Frames to and from the runner. Calls may come from several threads."""

    def __init__(self, descriptor):
        self._descriptor = descriptor
        self._socket = fstat(descriptor)
        self._frames = frames.Splitter(hidden.Region(frames.CAPACITY))
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._reading = False  # one thread reads for all
        self._replies = {}
        self._calls = 0
        self._reports = 0

    def send(self, header, body=b""):
        data = memoryview(frames.pack(header, body))
        with self._writing:
            if not samestat(fstat(self._descriptor), self._socket):
                raise OSError(errno.EBADF, "the program has replaced descriptor %d" % self._descriptor)
            while data:
                data = data[write(self._descriptor, data) :]

    def receive(self):
        """Returns the next message with its complete body."""
        header, body = self._frame()
        parts, missing = [body], header.get("size", len(body)) - len(body)
        while missing > 0:
            _, body = self._frame()
            parts.append(body)
            missing -= len(body)
        return header, b"".join(parts)

    def _frame(self):
        while True:
            frame = self._frames.next()
            if frame is not None:
                return frame[0], bytes(frame[1])
            if not self._frames.receive(lambda memory: readv(self._descriptor, [memory])):
                lost()

    def call(self, server, tool, arguments, definition):
        """Makes a tool call and waits for its reply."""
        if max(len(server), len(tool), len(definition)) > frames.MAX_NAME:
            message = "a name is longer than %d characters" % frames.MAX_NAME
            raise mcp_client.ToolError(server[:40], tool[:40], message, "bad_arguments")
        try:
            body = json.dumps(arguments, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise mcp_client.ToolError(server, tool, "arguments: %s" % error, "bad_arguments") from None
        with self._changed:
            self._calls += 1
            number = self._calls
        header = {"t": "call", "id": number, "server": server, "tool": tool, "hash": definition}
        try:
            self.send(header, body)
        except frames.Broken:
            message = "the arguments are %d bytes of JSON; the limit is %d: send a part at a time"
            message %= len(body), frames.LIMIT
            raise mcp_client.ToolError(server, tool, message, "bad_arguments") from None
        header, body = self._reply(number)
        try:
            value, content, structured = decoded(body, header["parts"])
        except (ValueError, RecursionError) as error:  # a number is too large or too long, or the nesting is too deep
            message = "the result cannot be decoded: %s" % error
            raise mcp_client.ToolError(server, tool, message, "unavailable") from None
        if header.get("ok"):
            return value, content or []
        raise mcp_client.ToolError(server, tool, value, header.get("code") or "internal", structured, content)

    def report(self, server, tool, ms, ok):
        """Reports a call that was made in this process, up to MAX_REPORTS."""
        if not 0 <= ms < 1e9:
            raise ValueError("a call cannot take %r ms" % ms)
        server, tool = server[: frames.MAX_NAME], tool[: frames.MAX_NAME]
        with self._changed:
            self._reports += 1
            if self._reports > MAX_REPORTS:
                return
        self.send({"t": "called", "server": server, "tool": tool, "ms": ms, "ok": ok})

    def _reply(self, number):
        """Waits for one reply. One of the waiting threads reads for all of them."""
        while True:
            with self._changed:
                while self._reading and number not in self._replies:
                    self._changed.wait()
                if number in self._replies:
                    return self._replies.pop(number)
                self._reading = True
            message = None
            try:
                message = self.receive()
            finally:
                with self._changed:
                    self._reading = False
                    if message is not None:
                        self._replies[message[0].get("id")] = message
                    self._changed.notify_all()


def split(body, sizes):
    """Returns the parts of a body."""
    ends = list(itertools.accumulate(sizes))
    return [body[end - size : end] for size, end in zip(sizes, ends)]


def decoded(body, sizes):
    """Returns the JSON values of which a body consists. A part of size 0 is None."""
    return [jsonable.load(part) if part else None for part in split(body, sizes)]


class Program:
    def __init__(self, boot, channel, run, body, space, maxima):
        self.channel = channel
        self.space = space  # address space used before the program, in bytes
        self.maxima = maxima  # of limits
        self.task = run["task"]
        self.facts, self.wait = run["facts"], run["wait"]
        self.limits = run["limits"]
        self.result_bytes = run["result_bytes"]
        code, inputs, content, details = split(body, run["parts"])
        self.code = code.decode("utf-8", "replace")
        self.inputs = inputs
        details = json.loads(details)
        self.state = None
        if details.get("state"):
            document = details["state"]
            content = content if document["content"] else None
            self.state = statevar.Variable(boot["workspace"], document["file"], content, document["save"])
        if details.get("session"):
            session.name = details["session"]["name"]
            session._file = os.path.join(boot["workspace"], details["session"]["file"])
        self.process = getpid()
        self.saver = pictures.Saver(boot["workspace"])
        if run.get("catalogue"):
            catalogue.use(boot["catalogue"], run["catalogue"])
        # Python processes that the program starts find the same packages and modules.
        last = sys.path[-2 if run.get("catalogue") else -1 :]
        os.environ["PYTHONPATH"] = os.pathsep.join([path for path in sys.path if path == PACKAGES] + last)
        os.environ.update(details.get("env") or {})
        self.workspace = boot["workspace"]

    def run(self):
        self.limit()
        try:
            show_own_lines(self.code)  # first, because the parser's warnings quote lines, too
            program = self.parse()
        except BaseException as error:
            self.end(unparsed(error, self.code, self.limits["memory"]))
        os.chdir(self.workspace)
        reseed(self.task)
        mcp_client._call, mcp_client._report = self.channel.call, self.channel.report
        os.register_at_fork(after_in_child=forget_calls)
        try:
            outcome = self.outcome(program)
            _signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        except BaseException as error:  # of the program's signal handler or profile function, for example
            try:
                _signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            except BaseException:  # of a handler that was due; the signals are blocked nevertheless
                pass
            if getpid() != self.process:  # a forked process, which reports nothing
                _exit(LOST)
            calm()
            outcome = uncaught(error, {}, self.limits["memory"]), b""
        try:
            self.end(*outcome)
        except BaseException:
            calm()
            self.end(*outcome)

    def parse(self):
        """Compiles the program, sends its facts, and waits for the host's permission if it must."""
        tree = compile(self.code, FILENAME, "exec", ast.PyCF_ONLY_AST, True)
        if self.facts:
            self.channel.send({"t": "checked"}, facts.encoded(tree, self.code))
        if self.wait:
            self.channel.receive()  # go
        if self.state and not statevar.used(tree):
            self.state = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = tree.body[-1]
            target = ast.copy_location(ast.Name("__value__", ast.Store()), last)
            tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
        return compile(tree, FILENAME, "exec", 0, True)

    def limit(self):
        """Sets the limits that the kernel enforces."""
        limits = self.limits
        space = self.space + limits["memory"]
        for name, soft, hard in (
            ("AS", space, space + SPARE),
            ("CPU", limits["cpu"], limits["cpu"] + 1),
            ("FSIZE", limits["file"], limits["file"]),
            ("NOFILE", limits["files"], limits["files"]),
            ("NPROC", limits["processes"], limits["processes"]),
            ("CORE", 0, 0),
        ):
            allowed = self.maxima[name]
            if allowed != resource.RLIM_INFINITY:
                soft, hard = min(soft, allowed), min(hard, allowed)
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (soft, hard))

    def outcome(self, program):
        """Runs the program and returns (failure or None, result as JSON)."""
        module = types.ModuleType("__main__")
        module.__file__ = FILENAME
        sys.modules["__main__"] = module
        names = module.__dict__
        names["__builtins__"] = vars(builtins)  # not this module's own
        try:
            names["inputs"] = jsonable.load(self.inputs) if self.inputs else None
            if self.state:
                names[statevar.NAME] = self.state.load()
            self.saver.watch(self.code)
            exec(program, names)
            failure = None
        except statevar.Invalid as error:
            failure = bad_state(error)
        except SystemExit as error:
            failure = self.exited(error.code)
        except BaseException as error:
            failure = uncaught(error, names, self.limits["memory"])
        if sys.getrecursionlimit() < RECURSION:
            sys.setrecursionlimit(RECURSION)
        if getpid() != self.process:  # a forked process that ran to the end of the program
            leave()
        try:
            if failure and any(not t.daemon for t in threading.enumerate() if t is not threading.main_thread()):
                quietly(lambda: sys.stderr.write(failure.get("cause", "")))  # the threads may outlast the timeout
            threading._shutdown()
            if self.state and not failure:
                self.state.store(names.get(statevar.NAME))
            result = b"" if failure else self.result(names)
        except statevar.Invalid as error:
            failure, result = bad_state(error), b""
        except jsonable.TooLarge:
            failure, result = too_large(self.result_bytes), b""
        except BaseException as error:
            failure, result = uncaught(error, names, self.limits["memory"]), b""
        return failure, result

    def exited(self, code):
        """Returns the failure of a program that raised SystemExit(code), or None if that means success."""
        if code is None or code == 0:
            return None
        if not isinstance(code, int):
            quietly(lambda: print(code, file=sys.stderr))
            code = 1
        return {"code": "exit_code", "message": "the program ended with exit code %d" % code}

    def result(self, names):
        """Returns as JSON the value of the last expression or, if that is None, of the variable `result`."""
        value = names.get("__value__")
        if value is None:
            value = names.get("result")
            if isinstance(value, (types.FunctionType, types.ModuleType, type)):
                value = None
        if value is None:
            return b""
        path = self.saver.save(value)
        if path and path.endswith(".png"):
            value = {"artifact": path}
        try:
            return jsonable.dump(value, self.result_bytes)
        except jsonable.TooLarge:
            if not path:
                raise
            return jsonable.dump({"artifact": path, "rows": len(value)}, self.result_bytes)

    def end(self, failure, result=b""):
        """Reports the end and ends this process."""
        try:
            atexit._run_exitfuncs()
        except BaseException:
            quietly(traceback.print_exc)
        flush()
        calm()  # a frame that is sent in part would break the channel
        header, texts = {"t": "end"}, ["", "", session.saved or ""]
        if failure:
            texts[:2] = failure["message"][:MAX_MESSAGE], failure.get("cause", "")[:MAX_CAUSE]
            header["error"] = {key: failure[key] for key in ("code", "hint", "line") if key in failure}
        else:
            header["modules"] = catalogue.imported()
        if self.state and self.state.saved:
            header["state_saved"] = True
        texts = [text.encode("utf-8", "surrogatepass") for text in texts]
        header["parts"] = list(map(len, texts))
        try:
            self.channel.send(header, b"".join(texts) + result)
        except OSError:
            lost()
        while True:  # the runner kills this process, which is faster than its exit
            _signal.pause()


def calm():
    """Removes the program's signal handlers, trace and profile functions, which could interrupt its report."""
    for _ in range(MAX_CALMS):
        try:
            sys.setrecursionlimit(RECURSION)
            sys.setprofile(None)
            sys.settrace(None)
            for number in range(1, signal.NSIG):
                if callable(_signal.getsignal(number)):
                    _signal.signal(number, signal.SIG_IGN)
            return
        except BaseException:
            pass


def show_own_lines(code):
    """Makes tracebacks and warnings quote the program, although the workspace may have a file with its name.

    The interpreter's own hooks read that file.
    """
    lines = lines_of(code)
    others = linecache.updatecache

    def updatecache(filename, module_globals=None):
        if filename != FILENAME:
            return others(filename, module_globals)
        linecache.cache[FILENAME] = (len(code), None, lines, FILENAME)
        return lines

    linecache.updatecache = updatecache
    updatecache(FILENAME)
    threading.excepthook, sys.unraisablehook = thread_failed, ignored


def lines_of(code):
    """Returns the lines as Python counts them. str.splitlines also splits at characters such as form feeds."""
    return io.StringIO(code, None).readlines()


def thread_failed(args):
    if args.exc_type != SystemExit:
        print("Exception in thread %s:" % getattr(args.thread, "name", None), file=sys.stderr)
        traceback.print_exception(args.exc_type, args.exc_value, args.exc_traceback)


def ignored(args):
    print("%s: %r" % (args.err_msg or "Exception ignored in", args.object), file=sys.stderr)
    traceback.print_exception(args.exc_type, args.exc_value, args.exc_traceback)


def forget_calls():
    """Keeps a forked process from using the channel of its parent."""
    mcp_client._call = mcp_client._report = None


def leave():
    """Ends a forked process, which reports nothing."""
    flush()
    _exit(0)


def flush():
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        quietly(lambda: getattr(sys, name).flush())


def quietly(fn):
    """Calls a function that uses what the program may have replaced, closed or deleted."""
    try:
        fn()
    except BaseException:
        pass


def unparsed(error, code, memory):
    """Returns why a program could not be parsed. memory is its limit, in bytes."""
    failure = {"code": "syntax_error", "message": "%s: %s" % (type(error).__name__, error)}
    if "\0" in code:
        failure["message"] = "the program contains a NUL character"
        failure["line"] = len(lines_of(code[: code.index("\0") + 1]))
    elif isinstance(error, SyntaxError):
        if error.text is None and error.lineno:  # the compiler has no text
            error.text = "".join(lines_of(code)[error.lineno - 1 : error.lineno])
        failure["message"] = "%s: %s" % (type(error).__name__, error.msg)
        failure["line"] = error.lineno or 0
        failure["cause"] = "".join(traceback.format_exception_only(type(error), error))[:4000]
    elif isinstance(error, MemoryError) and has_used_half(memory):
        failure["code"] = "memory_limit"
    elif isinstance(error, (RecursionError, MemoryError)):  # the parser's stack is full
        failure["message"] = "the program is nested too deeply"
    return failure


def has_used_half(memory):
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 > memory // 2


def is_out_of_memory(error, memory):
    """Reports whether an exception was raised for want of memory. In a deep recursion the interpreter may lose the
    MemoryError, and raise a SystemError that says so. If the stack of a thread does not fit into the memory limit, it
    raises the same error as at the limit of processes."""
    lost = isinstance(error, SystemError) and "without" in str(error) and "exception" in str(error)
    mapping = isinstance(error, OSError) and error.errno == errno.ENOMEM  # of mmap, for example
    thread = isinstance(error, RuntimeError) and str(error) == "can't start new thread"
    return isinstance(error, MemoryError) or mapping or lost and has_used_half(memory) or thread and lacks_stack()


def lacks_stack():
    """Reports whether the address space has no room for the stack of another thread."""
    used = address_space() + (threading.stack_size() or STACK)
    return used > resource.getrlimit(resource.RLIMIT_AS)[0]


def address_space():
    """Returns the address space in use, in bytes."""
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def uncaught(error, names, memory):
    """Returns the failure for an uncaught exception. memory is the program's limit, in bytes."""
    try:
        _signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # a handler would interrupt the description
    except BaseException:  # of a handler that was due; the signals are blocked nevertheless
        pass
    failure = {"code": "exception", "message": "an exception"}
    # All of this may raise: memory is exhausted, or the exception or its class has methods that raise.
    quietly(lambda: failure.update(message=str(type(error).__name__)))
    quietly(lambda: failure.update(code="memory_limit" if is_out_of_memory(error, memory) else "exception"))
    if failure["code"] == "memory_limit":
        names.clear()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    quietly(lambda: describe(error, failure))
    return failure


def describe(error, failure):
    """Adds the error's message, line and traceback to failure, without the frames of this package."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != FILENAME:
        trace = trace.tb_next
    frame = trace
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == FILENAME:
            failure["line"] = frame.tb_lineno
        frame = frame.tb_next
    report = traceback.TracebackException(type(error), error, trace)
    failure["message"] = "".join(report.format_exception_only()).strip()[:2000]
    program_frames = [frame for frame in report.stack if not frame.filename.startswith("<codefleet/")]
    report.stack = traceback.StackSummary.from_list(program_frames)
    text = "".join(report.format())
    failure["cause"] = text if len(text) <= 8000 else text[:4000] + "\n  ...\n" + text[-4000:]


def bad_state(error):
    return {"code": "bad_state", "message": str(error), "hint": error.hint}


def too_large(limit):
    return {
        "code": "result_too_large",
        "message": "the result is larger than %d bytes as JSON" % limit,
        "hint": USE_FILE,
    }
