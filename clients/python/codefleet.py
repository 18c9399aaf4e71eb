"""A codefleet client in one file. It needs only the standard library of Python 3.9 or newer.

    from codefleet import create_agent, execute_task

    result, output, error = execute_task("Calculate 5 + 3")
    if error:
        print(f"Error: {error}")

    agent = create_agent(session="monday")
    result, output, error = agent.execute_task("Calculate 10 * 5", verbose=True)
    result, output, error = agent.execute_code("print(6 * 7)")
    agent.write_file("data/in.csv", "1,2\n")
    print(agent.read_file("data/in.csv").decode())

The client uses the fleet at `url` (with `token`). Without a `url` it finds the fleet like the command line: by the
file that CODEFLEET_FLEET names, by CODEFLEET_URL and CODEFLEET_TOKEN, or by the fleet.json in the data directory.
"""

import enum
import http.client
import ipaddress
import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings

__all__ = ["Agent", "ExecutionResult", "FleetError", "create_agent", "execute_task"]

_WAIT = 30  # seconds that one request waits for a task
_RETRY_FOR = 15  # seconds for which a request is retried while the fleet is unreachable or busy
_TERMINAL = {"succeeded", "failed", "blocked", "timeout", "cancelled", "expired", "dead"}


class ExecutionResult(enum.Enum):
    """How a task ended. `Agent.last_record` has the exact status and all details."""

    SUCCESS = "success"
    FAILURE = "failure"
    BLOCKED = "blocked"
    TIMEOUT = "timeout"

    def __str__(self):
        return self.value


_RESULTS = {
    "succeeded": ExecutionResult.SUCCESS,
    "blocked": ExecutionResult.BLOCKED,
    "timeout": ExecutionResult.TIMEOUT,
}


class FleetError(Exception):
    """The fleet refused a request, the request was invalid, or the fleet could not be reached. A refusal has an HTTP
    status, a code (docs/errors.md), and perhaps a hint and the path of the invalid field. Requests that the client
    itself rejects have the status 400. If no fleet was found or reached, the status is 0."""

    def __init__(self, message, status=0, code="unreachable", hint="", path=""):
        super().__init__(message)
        self.status, self.code, self.hint, self.path = status, code, hint, path

    def __str__(self):
        text = super().__str__()
        if self.path:
            text = f"{self.path}: {text}"
        return f"{text} ({self.hint})" if self.hint else text


def create_agent(workspace_dir=None, servers_dir=None, skills_dir=None, config=None, **options):
    """Return an agent, which runs tasks with common settings.

    Options: url, token, fleet (path of a fleet.json), workspace, session, pool, priority, model, tools
    (["server/tool", "server/*"]), limits ({"timeout_s": 30}), labels, timeout (seconds to wait for a task). Options
    that are settings of the fleet (directories, config, llm_*, state_*, …) are ignored with a warning.
    """
    agent_options = {k: v for k, v in options.items() if not k.startswith(("llm_", "state_", "optimization", "guardrail"))}
    ignored = [k for k in options if k not in agent_options]
    for name, value in (("workspace_dir", workspace_dir), ("servers_dir", servers_dir), ("skills_dir", skills_dir), ("config", config)):
        if value is not None:
            ignored.append(name)
    if ignored:
        warnings.warn(f"{', '.join(sorted(ignored))}: ignored; set them in the fleet's configuration", stacklevel=2)
    return Agent(**agent_options)


def execute_task(task_description, verbose=False, required_tools=None, **options):
    """Run a task and return (ExecutionResult, output, error). The error is None on success.

    create_agent documents the options.
    """
    return create_agent(**options).execute_task(task_description, verbose=verbose, required_tools=required_tools)


class Agent:
    """Runs tasks on a fleet, and reads and writes the files and the state of their workspace. `last_record` is the
    record of the latest task."""

    def __init__(self, url=None, token=None, fleet=None, workspace=None, session=None, pool=None, priority=None,
                 model=None, tools=None, limits=None, labels=None, timeout=None):
        if url is None:
            url, found = _locate(fleet)
            token = found if token is None else token
        self._url, self._token = url.rstrip("/"), token
        self._defaults = {"workspace": workspace, "session": session, "pool": pool, "priority": priority, "model": model,
                          "tools": {"allow": list(tools)} if tools else None, "limits": limits, "labels": labels}
        self._timeout = timeout
        self._open = _opener(self._url)
        self.last_record = None

    def execute_task(self, task_description, verbose=False, required_tools=None, task_specific_calls=None,
                     header_comment=None, context=None):
        """Run a task and return (ExecutionResult, output, error), like the function of the same name.

        required_tools ({server: [tool, …]}) restricts the tools that the task may call.
        """
        given = {"task_specific_calls": task_specific_calls, "header_comment": header_comment, "context": context}
        ignored = sorted(k for k, v in given.items() if v is not None)
        if ignored:
            warnings.warn(f"{', '.join(ignored)}: ignored; the fleet generates the program", stacklevel=2)
        task = {"description": task_description}
        if required_tools:
            task["tools"] = {"allow": [f"{server}/{tool}" for server, names in required_tools.items() for tool in names]}
        return self._execute(task, verbose)

    def execute_code(self, code, inputs=None, verbose=False):
        """Run a program, in which the variable `inputs` has the value of `inputs`. Return what execute_task returns."""
        task = {"code": code}
        if inputs is not None:
            task["inputs"] = inputs
        return self._execute(task, verbose)

    def submit(self, task, idempotency_key=None):
        """Submit a task (a dictionary that matches task.v1.json) and return its record. Submissions with the same
        idempotency_key are one task. The default is a random key."""
        body = {k: v for k, v in {**self._defaults, **task}.items() if v is not None}
        return self._request("POST", "/v1/tasks", body, {"Idempotency-Key": idempotency_key or secrets.token_hex(16)})

    def get(self, task_id, wait=0):
        """Return the record of a task once it has ended, or after `wait` seconds."""
        path = _path("tasks", task_id)
        return self._request("GET", f"{path}?wait={wait:g}s" if wait > 0 else path, timeout=wait)

    def cancel(self, task_id):
        """Cancel a task and return its record. A running task ends when its worker has stopped it."""
        return self._request("DELETE", _path("tasks", task_id))

    def redrive(self, task_id):
        """Queue a dead-lettered task again, under the same id, and return its record. If the task is not
        dead-lettered, raise a FleetError with the code "not_redrivable"."""
        return self._request("POST", _path("tasks", task_id, "redrive"), once=True)

    def redrive_all(self):
        """Queue all dead-lettered tasks again, the oldest first. Return [{"task_id", "status"}, …]. A task that cannot
        be redriven has an "error" instead of a status, and stays in the dead-letter queue."""
        tasks, seq = [], 0
        while True:
            page = self._request("POST", f"/v1/dead/redrive?seq={seq}", once=True)
            tasks += page["tasks"]
            seq = page.get("next", 0)
            if not seq:
                return tasks

    def wait(self, task_id, timeout=None):
        """Return the record of a task once it has ended. Raise TimeoutError after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the task has not ended; it continues with the id {task_id}")
            record = self.get(task_id, wait=min(_WAIT, max(left, 0.001)))
            if record["status"] in _TERMINAL:
                return record

    def artifact(self, task_id, path):
        """Return the content of an artifact, as bytes."""
        return self._request("GET", _path("tasks", task_id, "artifacts", path), raw=True)

    def list_files(self, directory=""):
        """Return the paths below a directory of the workspace: [{"path", "kind", "bytes", …}, …]."""
        return self._request("GET", self._in_workspace("files") + "?" + urllib.parse.urlencode({"dir": _utf8(str(directory), "the path")}))

    def read_file(self, path):
        """Return the content of a file of the workspace, as bytes."""
        return self._request("GET", self._in_workspace("files", path), raw=True)

    def write_file(self, path, content):
        """Write a file of the workspace (text or bytes) and return the commit. The last writer wins."""
        content = _utf8(content, "the content") if isinstance(content, str) else bytes(memoryview(content))
        return self._request("PUT", self._in_workspace("files", path), content, {"Content-Type": "application/octet-stream"})

    def delete_file(self, path):
        """Delete a file of the workspace, or a directory with its contents, and return the commit."""
        return self._request("DELETE", self._in_workspace("files", path))

    def get_state(self, state_file=None):
        """Return a state document of the workspace as a dictionary, or None if it does not exist."""
        try:
            return self._request("GET", self._state(state_file), headers={"Accept": "application/json"})
        except FleetError as e:
            if e.code == "unknown_state":
                return None
            raise

    def save_state(self, data, state_file=None):
        """Replace a state document of the workspace with a dictionary. The last writer wins."""
        return self._request("PUT", self._state(state_file), data)

    def _in_workspace(self, *parts):
        return _path("workspaces", self._defaults["workspace"] or "main", *parts)

    def _state(self, state_file):
        query = urllib.parse.urlencode({"workspace": self._defaults["workspace"] or "main"})
        return _path("state", *filter(None, [state_file])) + "?" + query

    def _execute(self, task, verbose):
        try:
            record = self.submit(task)
            if record["status"] not in _TERMINAL:
                record = self.wait(record["task_id"], self._timeout)
        except TimeoutError as e:
            outcome = ExecutionResult.TIMEOUT, "", str(e)
        except FleetError as e:
            outcome = ExecutionResult.FAILURE, "", str(e)
        else:
            self.last_record = record
            outcome = _outcome(record)
        if verbose:
            _print(self.last_record, *outcome)
        return outcome

    def _request(self, method, path, body=None, headers=None, timeout=0, raw=False, once=False):
        """Send a request and return the response's JSON, or its bytes if raw is set. Retry while the fleet is busy or
        unreachable. With once, retry only a request that the fleet has refused because it is busy."""
        request = urllib.request.Request(self._url + path, method=method, headers=headers or {})
        if isinstance(body, bytes):
            request.data = body
        elif body is not None:
            request.data = _utf8(json.dumps(body, ensure_ascii=False), "the request")
            request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_unredirected_header("Authorization", "Bearer " + self._token)
        end, pause = time.monotonic() + _RETRY_FOR + timeout, 0.1
        while True:
            try:
                with self._open(request, timeout=timeout + 30) as response:
                    content = response.read()
                    return content if raw else json.loads(content)
            except urllib.error.HTTPError as e:
                error, retry = _refusal(e, self._url), e.code in ((429,) if once else (429, 502, 503, 504))
                pause = max(pause, _seconds(e.headers.get("Retry-After")))
            except (OSError, ValueError, http.client.HTTPException) as e:
                error, retry = FleetError(f"fleet at {self._url} cannot be reached: {getattr(e, 'reason', e)}"), not once
                if "WRONG_VERSION_NUMBER" in str(e):
                    error, retry = _wrong_scheme(self._url, "http"), False
            if not retry or time.monotonic() + pause > end:
                raise error
            time.sleep(pause)
            pause = min(pause * 2, 2)


def _utf8(text, name):
    """Encode text as UTF-8. A lone surrogate is an error, because replacing it would change the text."""
    try:
        return text.encode()
    except UnicodeEncodeError as e:
        raise FleetError(f"{name} cannot be encoded: it has a lone surrogate, {text[e.start]!a}, at character {e.start}", 400, "bad_text",
                         "Python decodes bytes that are not UTF-8 to surrogates; write_file also accepts bytes") from None


def _path(*parts):
    """Return the path of a request. The last part may contain slashes. Empty names, "." and ".." are errors."""
    if any(name in ("", ".", "..") for part in parts for name in part.split("/")):
        raise FleetError(f"{'/'.join(parts)!r} is not a valid path", 400, "bad_path", "use a relative path without empty names, . and ..", "path")
    _utf8("".join(parts), "the path")
    *names, last = parts
    return "/v1/" + "/".join([urllib.parse.quote(name, safe="") for name in names] + [urllib.parse.quote(last)])


def _outcome(record):
    result = record["result"]
    if record["status"] == "succeeded":
        return ExecutionResult.SUCCESS, result["output"], None
    detail = result.get("error") or {}
    error = detail.get("message") or f"the task ended {record['status']}"
    return _RESULTS.get(record["status"], ExecutionResult.FAILURE), result["output"], error


def _print(record, result, output, error):
    code = ((record or {}).get("result") or {}).get("code")
    for number, line in enumerate((code or "").splitlines(), 1):
        print(f"{number:4} | {line}")
    print(f"Status: {result}")
    if output:
        print(f"Output:\n{output}", end="" if output.endswith("\n") else "\n")
    if error:
        print(f"Error: {error}")


def _refusal(e, url):
    content = b""
    try:
        content = e.read()
        body = json.loads(content)
        text = ": ".join(filter(None, (body["message"], body.get("cause"))))
        return FleetError(text, e.code, body["code"], body.get("hint", ""), body.get("path", ""))
    except (ValueError, KeyError, TypeError, OSError):
        if e.code == 400 and url.startswith("http:") and b"HTTPS" in content:
            return _wrong_scheme(url, "https")
        return FleetError(f"the response is {e.code}, which is not from a fleet", e.code, "unexpected_response", "check the address of the fleet")


def _wrong_scheme(url, scheme):
    """Return the error for a server that speaks a scheme other than the URL's."""
    used, rest = url.split("://", 1)
    return FleetError(f"the server speaks {scheme.upper()}, not {used.upper()}", 400, "unexpected_response", f"use the address {scheme}://{rest}")


def _seconds(text):
    try:
        return max(0.0, float(text))
    except (TypeError, ValueError):
        return 0.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None  # a fleet does not redirect, and the token must not be sent to another server


def _opener(url):
    host = urllib.parse.urlsplit(url).hostname or ""
    handlers = [_NoRedirect()]
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if local:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers).open


def _locate(path):
    path = path or os.environ.get("CODEFLEET_FLEET")
    if not path and os.environ.get("CODEFLEET_URL"):
        return os.environ["CODEFLEET_URL"], os.environ.get("CODEFLEET_TOKEN")
    if not path:
        data = os.environ.get("CODEFLEET_DATA")
        base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
        path = os.path.join(data or os.path.join(base, "codefleet"), "fleet.json")
        if not os.path.exists(path):
            raise FleetError("no fleet found", code="no_fleet", hint="start one with `codefleet up`, or set CODEFLEET_URL")
    try:
        with open(path, encoding="utf-8") as f:
            found = json.load(f)
        return found["url"], found.get("token")
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise FleetError(f"fleet file {path} cannot be read: {e}", code="no_fleet") from e


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: codefleet.py TASK")
    sys.exit(0 if execute_task(sys.argv[1], verbose=True)[2] is None else 1)
