"""Starts fleets for settings that a caller gives in code, and stops them when its process ends."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import threading

from codefleet import FleetError

_START = 60  # seconds until a fleet must be ready

_running = {}
_lock = threading.Lock()


def binary():
    """Return the path of the binary `codefleet`: CODEFLEET_BIN, or the one on PATH."""
    name = os.environ.get("CODEFLEET_BIN") or "codefleet"
    path = shutil.which(name)
    if not path:
        raise FleetError(f"the binary {name}, which starts a fleet with your settings, cannot be run", 0,
                         "no_program", "make build, and export PATH=$PWD/bin:$PATH; or export CODEFLEET_BIN=FILE")
    return path


def own(settings):
    """Return a fleet with these settings. It runs on this machine until this process ends.

    Calls with equal settings in the same working directory return the same fleet. Its fields are url, token and file, the
    path of its fleet.json.
    """
    key = json.dumps(settings, sort_keys=True) + os.getcwd()
    with _lock:
        if key in _running and _running[key].ended():
            _running.pop(key).close()
        if key not in _running:
            _running[key] = _Fleet(settings)
        return _running[key]


def failed(doing, output):
    """Return the error of a command that failed: the last JSON error in its output, or else all of its output."""
    for line in reversed(output.decode(errors="replace").splitlines()):
        try:
            error = json.loads(line)["error"]
            return FleetError(f"{doing}: {error['message']}", code="no_fleet", hint=error.get("hint", ""))
        except (ValueError, KeyError, TypeError):
            continue
    return FleetError(f"{doing}: {output.decode(errors='replace').strip()}", code="no_fleet", hint="codefleet doctor")


class _Fleet:
    def __init__(self, settings):
        program = binary()
        self._owner = os.getpid()  # a fork inherits the fleet, and leaves it to the process that started it
        self._dir = tempfile.mkdtemp(prefix="codefleet-")
        self.file = os.path.join(self._dir, "fleet.json")
        address = "127.0.0.1:0"
        command = [program, "up", "-o", "json", "--attached", "--data", self._dir, "--http", address,
                   "--nats", address, "--s3", address]
        with open(os.path.join(self._dir, "log"), "wb") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **_variables(settings)}, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log)
        os.register_at_fork(after_in_child=self.process.stdin.close)  # else the fleet would run until the fork ends
        timer = threading.Timer(_START, self.process.kill)
        timer.start()
        try:
            text = _document(self.process.stdout)
            self.url = json.loads(text)["http"]
            with open(self.file, encoding="utf-8") as file:
                self.token = json.load(file)["token"]
        except (ValueError, KeyError, OSError):
            with open(os.path.join(self._dir, "log"), "rb") as log:
                error = failed("start a fleet with these settings", log.read()[-10000:])
            self.close()
            raise error from None
        finally:
            timer.cancel()
        atexit.register(self.close)

    def ended(self):
        """Report whether the fleet has ended. Only the process that started it can tell."""
        return os.getpid() == self._owner and self.process.poll() is not None

    def close(self):
        """Stop the fleet and remove its data, unless another process started it. It also stops when this process is killed,
        because its standard input closes."""
        if os.getpid() != self._owner:
            return
        self.process.stdin.close()
        try:
            self.process.wait(35)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self._dir, ignore_errors=True)


def _document(stream):
    """Return the first JSON document of a stream, or all of the stream if it ends before the document does."""
    text = b""
    for line in stream:
        text += line
        if line.startswith(b"}"):
            break
    return text


def _variables(settings):
    """Return the environment variables for the settings. They override config.yaml and .env."""
    found = {}
    for key, value in settings.items():
        if key.startswith("execution.state."):  # execution.state.state_file is STATE_FILE
            name = "STATE_" + key[len("execution.state."):].upper().replace("STATE_", "")
        else:
            name = "CODEFLEET_" + key.upper().replace(".", "_")
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
