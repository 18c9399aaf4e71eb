"""A codefleet client in one file. It needs only the standard library of Python 3.9 or newer.

    from codefleet import create_agent, execute_task

    result, output, error = execute_task("Calculate 5 + 3")
    if error:
        print(f"Error: {error}")
    print(result)         # 8, the value of the task
    print(result.status)  # success

    agent = create_agent(session="monday")
    result, output, error = agent.execute_task("Calculate 10 * 5", verbose=True)
    result, output, error = agent.execute_code("print(6 * 7)")
    agent.write_file("data/in.csv", "1,2\n")
    print(agent.read_file("data/in.csv").decode())

The client uses the fleet at `url` (with `token`). Without a `url` it finds the fleet like the command line: by the
file that CODEFLEET_FLEET names, by CODEFLEET_URL and CODEFLEET_TOKEN, or by the fleet.json in the data directory.
"""

import concurrent.futures
import contextlib
import enum
import http.client
import inspect
import ipaddress
import json
import os
import secrets
import socket
import sys
import threading
import time
import typing
import urllib.error
import urllib.parse
import urllib.request

__all__ = ["Agent", "ExecutionResult", "FleetError", "Registration", "Result", "create_agent", "execute_task"]

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


class Result:
    """What a task returned. `status` is an ExecutionResult. `value` is the value of the program's last expression, or of its
    variable `result`. `record` is the task's record, or None if the task was not submitted. str() of a Result is the
    value, or else the program's output, or else the status. A Result is equal to its status, as in
    `result == ExecutionResult.SUCCESS`."""

    def __init__(self, status, value=None, output="", record=None):
        self.status, self.value, self.output, self.record = status, value, output, record

    def __str__(self):
        if isinstance(self.value, str):
            return self.value
        if self.value is not None:
            return json.dumps(self.value, ensure_ascii=False)
        return self.output.rstrip("\n") or str(self.status)

    def __repr__(self):
        return f"Result({self.status}, {self.value!r})"

    def __eq__(self, other):
        if isinstance(other, Result):
            return (self.status, self.value, self.output) == (other.status, other.value, other.output)
        return self.status == other if isinstance(other, ExecutionResult) else NotImplemented

    def __hash__(self):
        return hash(self.status)


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
        if self.path and not text.startswith(self.path):  # many messages begin with the path
            text = f"{self.path}: {text}"
        return f"{text} ({self.hint})" if self.hint else text


def create_agent(workspace_dir=None, servers_dir=None, skills_dir=None, config=None, **options):
    """Return an agent, which runs tasks with common settings.

    Options: url, token, fleet (path of a fleet.json), workspace, session, pool, priority, model, tools
    (["server/tool", "server/*"]), limits ({"timeout_s": 30}), network (["example.org"]), labels, timeout (seconds to wait
    for a task).

    Settings of a fleet (workspace_dir, servers_dir, skills_dir, config, sandbox_image, llm_*, state_*, …) start a fleet
    with these settings on this machine. It runs until this process ends. The settings of a running fleet cannot be
    changed: with url, token or fleet, they are an error.
    """
    given = {"workspace_dir": workspace_dir, "servers_dir": servers_dir, "skills_dir": skills_dir, "config": config}
    given.update({name: options.pop(name) for name in list(options) if name not in _AGENT_OPTIONS})
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return Agent(**options)
    try:
        from code_execution_mcp import config as configuration, fleet
    except ImportError:
        raise FleetError(f"{', '.join(sorted(given))}: settings of a fleet need the whole package", 400, "no_package",
                         "pip install ./clients/python") from None
    settings = configuration.options_settings(given)
    directories = configuration.directories(settings)
    if settings.pop("execution.allow_network_access", False):
        options.setdefault("network", ["*"])
    if settings and any(options.get(name) for name in ("url", "token", "fleet")):
        raise FleetError(f"{', '.join(sorted(settings))}: a running fleet's settings cannot be changed from code", 400, "fleet_setting",
                         "set them in the fleet's config.yaml, or leave out url, token and fleet to start a fleet with them")
    if settings:
        own = fleet.own(settings)
        options["url"], options["token"] = own.url, own.token
    agent = Agent(**options)
    for directory in directories:
        agent.copy_directory(directory)
    return agent


_AGENT_OPTIONS = ("url", "token", "fleet", "workspace", "session", "pool", "priority", "model", "tools", "limits", "network", "labels",
                  "timeout")


def execute_task(task_description, verbose=False, required_tools=None, **options):
    """Run a task and return (Result, output, error). The error is None on success.

    create_agent documents the options.
    """
    try:
        agent = create_agent(**options)
    except FleetError as e:
        return Result(ExecutionResult.FAILURE), "", str(e)
    return agent.execute_task(task_description, verbose=verbose, required_tools=required_tools)


class Agent:
    """Runs tasks on a fleet, and reads and writes the files and the state of their workspace. `last_record` is the
    record of the latest task."""

    def __init__(self, url=None, token=None, fleet=None, workspace=None, session=None, pool=None, priority=None,
                 model=None, tools=None, limits=None, network=None, labels=None, timeout=None):
        if url is None:
            url, found = _locate(fleet)
            token = found if token is None else token
        self._url, self._token = _address(url), _token(token)
        self._defaults = {"workspace": workspace, "session": session, "pool": pool, "priority": priority, "model": model,
                          "tools": {"allow": list(tools)} if tools else None, "limits": limits, "labels": labels,
                          "network": {"allow": list(network)} if network else None}
        self._timeout = timeout
        self._open = _opener(self._url)
        self.last_record = None

    def execute_task(self, task_description, verbose=False, required_tools=None, task_specific_calls=None,
                     header_comment=None, context=None):
        """Run a task and return (Result, output, error), like the function of the same name.

        required_tools ({server: [tool, …]}) restricts the tools that the task may call. The other arguments are those of
        the first version; they are an error, because the fleet writes the program.
        """
        given = {"task_specific_calls": task_specific_calls, "header_comment": header_comment, "context": context}
        names = sorted(name for name, value in given.items() if value is not None)
        if names:
            raise FleetError(f"{', '.join(names)}: the fleet writes the program", 400, "not_supported",
                             "give the program itself: agent.execute_code(code, inputs={…})")
        task = {"description": task_description}
        if required_tools:
            task["tools"] = {"allow": [f"{server}/{tool}" for server, names in required_tools.items() for tool in names]}
        return self._execute(task, verbose)

    def address(self):
        """Return the URL and the token of the fleet."""
        return self._url, self._token

    def tools(self):
        """Return the tools that programs can import, as {server: [tool, …]}."""
        found = {}
        for tool in self._request("GET", "/v1/tools")["tools"]:
            found.setdefault(tool["server"], []).append(tool["name"])
        return found

    def register_tools(self, functions, server="custom", names=None, description=""):
        """Serve Python functions as tools until this process ends, or until `close()` of the returned Registration.

        Programs of the tenant import them: `from servers.custom import NAME`. MCP clients see them as custom__NAME. The
        parameters' annotations and the docstring describe a tool. The token needs the scope `tools`. If the fleet, or
        another process with a different definition, has a tool of that name, the error has the code "tool_taken".
        """
        names = names or [None] * len(functions)
        if len(names) != len(functions):
            raise ValueError(f"{len(functions)} functions and {len(names)} names: want a name for each function")
        return Registration(self, [_Tool(f, n) for f, n in zip(functions, names)], server, description)

    def execute_code(self, code, inputs=None, verbose=False, description=None):
        """Run a program, which finds `inputs` in its variable of that name. Return what execute_task returns. The
        description is kept as a label of the task."""
        task = {"code": code}
        if description:
            task["labels"] = {**(self._defaults["labels"] or {}), "description": description[:200]}
        if inputs is not None:
            task["inputs"] = inputs
        return self._execute(task, verbose)

    def submit(self, task, idempotency_key=None):
        """Submit a task (a dictionary that matches task.v1.json) and return its record. Submissions with the same
        idempotency_key are one task. The default is a random key."""
        return self._request("POST", "/v1/tasks", self._task(task), {"Idempotency-Key": idempotency_key or secrets.token_hex(16)})

    def get(self, task_id, wait=0):
        """Return the record of a task once it has ended, or after `wait` seconds."""
        path = _path("tasks", task_id)
        return self._request("GET", f"{path}?wait={wait:.3f}s" if wait > 0 else path, timeout=wait)

    def cancel(self, task_id):
        """Cancel a task and return its record. A running task ends when its worker has stopped its program."""
        return self._request("DELETE", _path("tasks", task_id))

    def redrive(self, task_id):
        """Queue a dead-lettered task again, under the same id, and return its record. If the task is not
        dead-lettered, raise a FleetError with the code "not_redrivable"."""
        return self._request("POST", _path("tasks", task_id, "redrive"), once=True)

    def retry(self, task_id):
        """Run a task again that has ended without success, and return its record. A dead-lettered task runs under its
        own id, any other as a new task. If the task has not ended or has succeeded, raise a FleetError with the code
        "not_retryable"."""
        return self._request("POST", _path("tasks", task_id, "retry"), once=True)

    def submission(self, task_id):
        """Return the submission of a task, as a dictionary with the fields of POST /v1/tasks."""
        return self._request("GET", _path("tasks", task_id, "submission"))

    def rerun(self, task_id, **changes):
        """Submit a new task like an old one, with fields replaced by `changes`, such as code="print(2)", and return
        its record."""
        task = self.submission(task_id)
        if {"code", "description", "skill", "workflow"} & changes.keys():
            for name in ("code", "description", "skill", "workflow"):
                task.pop(name, None)
        return self._request("POST", "/v1/tasks", {**task, **changes, "idempotencykey": secrets.token_hex(16)})

    def dead_letter(self, task_id):
        """Return the dead letter of a task, with its record."""
        return self._request("GET", _path("dead", task_id))

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
        """Write text or bytes to a file of the workspace, and return the commit. The last writer wins."""
        content = _utf8(content, "the content") if isinstance(content, str) else bytes(memoryview(content))
        return self._request("PUT", self._in_workspace("files", path), content,
                             {"Content-Type": "application/octet-stream"}, once=True)

    def copy_directory(self, directory):
        """Copy the files of a directory of this machine into the workspace, under the same name, each as a commit. Symbolic
        links and empty directories are left out."""
        parent = os.path.dirname(os.path.abspath(directory))
        for folder, _, names in os.walk(os.path.abspath(directory)):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as file:
                        self.write_file(os.path.relpath(path, parent).replace(os.sep, "/"), file.read())

    def delete_file(self, path):
        """Delete a file of the workspace, or a directory with its contents, and return the commit."""
        return self._request("DELETE", self._in_workspace("files", path), once=True)

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

    def sessions(self, limit=100):
        """Return the sessions, the one with the latest task first, as a list of dictionaries."""
        return self._request("GET", _path("sessions") + f"?limit={int(limit)}")

    def session(self, name=None, limit=100):
        """Return the log of a session (the agent's by default): its newest tasks, state_files and checkpoint."""
        return self._request("GET", self._session(name) + f"?limit={int(limit)}")

    def save_checkpoint(self, data, session=None):
        """Set the checkpoint of a session: a dictionary that describes how far the work has come. Return the log."""
        return self._request("POST", self._session(session, "checkpoints"), data, once=True)

    def resume_session(self, session=None, checkpoint=0):
        """Continue a session: the agent's next tasks belong to it and use its workspace. Return its log. With the id of an
        earlier checkpoint, first make that checkpoint the newest."""
        log = self._request("POST", self._session(session, "resume"), {"checkpoint": checkpoint}, once=True)
        self._defaults["session"] = log["session_id"]
        self._defaults["workspace"] = log["workspace"] or self._defaults["workspace"]
        return log

    def run_skill(self, name, inputs=None, verbose=False):
        """Run a skill as a task, with a dictionary or a list of arguments. Return what execute_task returns."""
        task = {"skill": _skill(name)}
        if inputs is not None:
            task["inputs"] = inputs
        return self._execute(task, verbose)

    def save_skill(self, name, code=None, description="", task=None, inputs=None, base=0):
        """Save a program, or the program of a task that succeeded, as a skill. Before that, the fleet imports it, and calls
        its function run with inputs, a dictionary of arguments. Without inputs, it calls run only if run needs no
        arguments. base is the version to replace; 0 means that the name must be free. Return a dictionary with the version
        and the smoke run."""
        draft = {"code": code, "task": task, "description": description, "inputs": inputs, "base": base}
        return self._request("PUT", _path("skills", _skill(name)), {k: v for k, v in draft.items() if v}, timeout=120)

    def skills(self):
        """Return the skills of the tenant, and those that all tenants share, as a list of dictionaries."""
        return self._request("GET", _path("skills"))

    def skill(self, name, version=None):
        """Return a skill with its program and its files, as a dictionary."""
        query = f"?version={int(version)}" if version else ""
        return self._request("GET", _path("skills", _skill(name)) + query)

    def skill_versions(self, name):
        """Return the kept versions of a skill, the newest first."""
        return self._request("GET", _path("skills", _skill(name), "versions"))

    def delete_skill(self, name):
        """Remove a skill with all its versions."""
        self._request("DELETE", _path("skills", _skill(name)), raw=True, once=True)

    def run_workflow(self, workflow, inputs=None, idempotency_key=None):
        """Start a run of a workflow (a dictionary that matches workflow.v1.json) and return its record. Requests with the
        same idempotency_key are one run. The default is a random key."""
        defaults = {k: self._defaults[k] for k in ("workspace", "session", "priority") if self._defaults[k] is not None}
        body = {"workflow": workflow, "inputs": inputs or {}, **defaults}
        return self._request("POST", _path("workflows", "runs"), body,
                             {"Idempotency-Key": idempotency_key or secrets.token_hex(16)})

    def workflow_run(self, run_id):
        """Return the record of a run of a workflow, with the results of its steps."""
        return self._request("GET", _path("workflows", "runs", run_id))

    def workflow_runs(self, limit=100, asking=False):
        """Return the records of the runs, without results. The run with the latest change comes first. If `asking`, return
        only runs with a step that waits for an answer."""
        asks = "&asking=true" if asking else ""
        return self._request("GET", f"{_path('workflows', 'runs')}?limit={limit}{asks}")

    def wait_workflow(self, run_id, timeout=None):
        """Return the record of a run once the run has ended, or waits for people, time or events. Raise TimeoutError after
        `timeout` seconds."""
        end, pause = None if timeout is None else time.monotonic() + timeout, 0.05
        while (run := self.workflow_run(run_id))["status"] == "running":
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"run {run_id} has not ended after {timeout:g} s")
            time.sleep(pause)
            pause = min(pause * 1.25, 1)
        return run

    def answer_workflow(self, run_id, step, values, item=None):
        """Answer a step that asks; `item` is the index of an item of a loop. Only the first answer counts: for any other,
        the error has the code "not_waiting", so the request is not repeated after a lost connection."""
        body = {"step": step, "values": values, **({} if item is None else {"item": item})}
        return self._request("POST", _path("workflows", "runs", run_id, "answer"), body, once=True)

    def cancel_workflow(self, run_id):
        """Cancel a run and return its record. Its running steps are cancelled, and then the steps of `finally` run."""
        return self._request("POST", _path("workflows", "runs", run_id, "cancel"), once=True)

    def rerun_workflow(self, run_id, step, inputs=None):
        """Run a workflow again from a step, with the files that the step began with. `inputs` replaces inputs by name. Return
        the record of the new run."""
        return self._request("POST", _path("workflows", "runs", run_id, "rerun"), {"from": step, "set": inputs or {}},
                             {"Idempotency-Key": secrets.token_hex(16)})

    def schedules(self):
        """Return the schedules of the tenant, sorted by name."""
        return self._request("GET", _path("schedules"))

    def add_schedule(self, name, cron, task, **options):
        """Store a schedule, which submits a task (as `submit` does) at the times of a cron expression, and return it.
        Options are `zone`, `missed` and `jitter_s`. Adding the same schedule again changes nothing. If another one has
        its name, the error has the code "automation_exists"."""
        return self._request("POST", _path("schedules"), {"name": name, "cron": cron, "task": self._task(task), **options})

    def remove_schedule(self, name):
        """Remove a schedule. Tasks that it has submitted continue."""
        self._request("DELETE", _path("schedules", name), raw=True, once=True)

    def pause_schedule(self, name):
        """Pause a schedule and return it. Firings during the pause do not take place later."""
        return self._request("POST", _path("schedules", name, "pause"))

    def resume_schedule(self, name):
        """End the pause of a schedule and return it."""
        return self._request("POST", _path("schedules", name, "resume"))

    def run_schedule(self, name):
        """Submit the task of a schedule now, in addition to its firings, and return its record."""
        return self._request("POST", _path("schedules", name, "run"), once=True)

    def triggers(self):
        """Return the triggers of the tenant, sorted by name."""
        return self._request("GET", _path("triggers"))

    def add_trigger(self, name, type, task, **options):
        """Store a trigger, which submits a task for each event of a type, with the event's data as `inputs`, and return
        it. Options are `source` and `filter`. Adding the same trigger again changes nothing."""
        body = {"name": name, "type": type, "task": self._task(task), **options}
        return self._request("POST", _path("triggers"), body)

    def remove_trigger(self, name):
        """Remove a trigger. Tasks that it has submitted continue."""
        self._request("DELETE", _path("triggers", name), raw=True, once=True)

    def test_trigger(self, name, event):
        """Return what a trigger would do with a CloudEvent (a dictionary), without submitting a task."""
        return self._request("POST", _path("triggers", name, "test"), _event(event), _EVENT_HEADERS)

    def send_event(self, event):
        """Send a CloudEvent (a dictionary) to the triggers of the tenant. Sending it again is safe: each trigger submits
        one task for all events with the same source and id."""
        return self._request("POST", "/v1/events", _event(event), _EVENT_HEADERS)

    def webhooks(self):
        """Return the webhooks of the tenant, sorted by name, without their secrets."""
        return self._request("GET", _path("webhooks"))

    def add_webhook(self, name, url, **options):
        """Store a webhook, which sends events to a URL, and return it with the `secret` of its signatures, which is
        returned only once. Options are `type`, `filter` and `no_handshake`."""
        return self._request("POST", _path("webhooks"), {"name": name, "url": url, **options}, once=True)

    def remove_webhook(self, name):
        """Remove a webhook. Events that wait for delivery are dropped."""
        self._request("DELETE", _path("webhooks", name), raw=True, once=True)

    def _task(self, task):
        return {k: v for k, v in {**self._defaults, **task}.items() if v is not None}

    def fill_form(self, form, document="", values=None):
        """Find values for a form (a dictionary: a flat JSON Schema) in a text, and check them together with `values`, the
        answers of people. Return values, sources and problems. Ask people for what the problems name, and call fill_form
        again with their answers."""
        body = {"form": form, "document": document, "values": values or {}}
        return self._request("POST", _path("forms", "fill"), body)

    def check_form(self, form, values):
        """Return the problems of values for a form: a list of dictionaries with field and message. A field without a value
        has its default."""
        return self.fill_form(form, values=values)["problems"]

    def _in_workspace(self, *parts):
        return _path("workspaces", self._defaults["workspace"] or "main", *parts)

    def _session(self, session, *parts):
        name = session or self._defaults["session"]
        if not name:
            raise FleetError("no session is named", 400, "bad_name", "name one, or use create_agent(session=…)", "session")
        return _path("sessions", name, *parts)

    def _state(self, state_file):
        query = urllib.parse.urlencode({"workspace": self._defaults["workspace"] or "main"})
        return _path("state", *filter(None, [state_file])) + "?" + query

    def _execute(self, task, verbose):
        accepted, record = "", None
        try:
            self.last_record = record = self.submit(task)
            if record["status"] not in _TERMINAL:
                accepted = f"; the fleet has accepted the task {record['task_id']}, which continues"
                self.last_record = record = self.wait(record["task_id"], self._timeout)
        except TimeoutError as e:
            outcome = Result(ExecutionResult.TIMEOUT), "", str(e)
        except FleetError as e:
            outcome = Result(ExecutionResult.FAILURE), "", str(e) + accepted
        else:
            outcome = _outcome(record)
        if verbose:
            _print(record, *outcome)
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
                    break
            except urllib.error.HTTPError as e:
                error, retry = _refusal(e, self._url), e.code in ((429,) if once else (429, 502, 503, 504))
                pause = max(pause, _seconds(e.headers.get("Retry-After")))
            except (OSError, ValueError, http.client.HTTPException) as e:
                error, retry = _unreachable(self._url, e), not once
                if "WRONG_VERSION_NUMBER" in str(e):
                    error, retry = _wrong_scheme(self._url, "http"), False
                elif _is_no_http(e):
                    retry = False
            if not retry or time.monotonic() + pause > end:
                raise error
            time.sleep(pause)
            pause = min(pause * 2, 2)
        try:
            return content if raw else json.loads(content)
        except (ValueError, RecursionError):
            raise _unexpected("the response is not JSON, so it is not from a fleet", response.status) from None


class Registration:
    """Functions of this process that the fleet calls. Threads of this object call them, several at once."""

    def __init__(self, agent, tools, server, description):
        self._agent, self._tools = agent, {tool.name: tool for tool in tools}
        self._offer = {"server": server, "description": description, "tools": [tool.offer for tool in tools]}
        self._closed = threading.Event()
        self._stream, events = self._connect()
        self._calls = concurrent.futures.ThreadPoolExecutor(16, thread_name_prefix="codefleet-tool")
        threading.Thread(target=self._serve, args=(events,), daemon=True, name="codefleet-tools").start()

    def close(self):
        """Remove the tools. Calls in progress get an error."""
        self._closed.set()
        with contextlib.suppress(OSError, AttributeError):  # the socket is gone already
            self._stream.fp.raw._sock.shutdown(socket.SHUT_RDWR)
        self._calls.shutdown(wait=False)

    def _connect(self):
        """Open the stream of a registration, and set the registration's id, which is in the first event. Return the
        response, which stays open, and an iterator over its further events."""
        request = urllib.request.Request(self._agent._url + "/v1/registrations", method="POST",
                                         data=_utf8(json.dumps(self._offer), "the registration"),
                                         headers={"Content-Type": "application/json"})
        if self._agent._token:
            request.add_unredirected_header("Authorization", "Bearer " + self._agent._token)
        try:
            response = self._agent._open(request, timeout=60)  # the fleet sends a comment every 15 seconds
        except urllib.error.HTTPError as e:
            raise _refusal(e, self._agent._url) from None
        except (OSError, http.client.HTTPException) as e:
            raise _unreachable(self._agent._url, e) from None
        events = _events(response)
        try:
            self._id = next(events)["id"]
            return response, events
        except (OSError, http.client.HTTPException) as e:
            error = _unreachable(self._agent._url, e)
        except (StopIteration, ValueError, KeyError, TypeError):
            error = _unexpected("the response does not begin with the id of the registration", response.status)
        response.close()
        raise error

    def _serve(self, events):
        """Start the calls that arrive. When the stream ends, connect again, until close is called."""
        pause = 0.1
        while not self._closed.is_set():
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException, RuntimeError):
                for call in events:
                    self._calls.submit(self._call, self._id, call)
                    pause = 0.1
            self._stream.close()
            while not self._closed.wait(pause):  # the stream has ended: the fleet was restarted, or the network failed
                pause = min(pause * 2, 10)
                with contextlib.suppress(FleetError):
                    self._stream, events = self._connect()
                    break
        self._stream.close()  # close may have been called while _connect opened it

    def _call(self, registration, call):
        """Call the function of a tool, and send its result or its exception to the fleet."""
        try:
            value = self._tools[call["tool"]].call(call["args"])
            answer = {"call": call["id"], "value": json.loads(json.dumps(value, allow_nan=False))}
        except BaseException as e:  # the program gets the error, also that of sys.exit
            answer = {"call": call["id"], "error": _text_of(e)}
        try:
            self._answer(registration, answer)
        except FleetError as e:
            if e.status in (400, 413):  # else the call has timed out, or its program has ended
                with contextlib.suppress(FleetError):
                    self._answer(registration, {"call": call["id"], "error": f"the result cannot be sent: {e}"})

    def _answer(self, registration, answer):
        self._agent._request("POST", f"/v1/registrations/{registration}/answers", answer, raw=True)


class _Tool:
    """A Python function, and its definition as a tool."""

    def __init__(self, function, name=None):
        self._function, self.name = function, name or function.__name__
        signature = inspect.signature(function)
        hints = typing.get_type_hints(function)
        properties, required = {}, []
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise FleetError(f"tool {self.name}: the parameter {parameter} cannot be passed by name", 400, "bad_tool",
                                 "give each parameter a name")
            properties[parameter.name] = _schema(hints.get(parameter.name))
            if parameter.default is parameter.empty:
                required.append(parameter.name)
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        self.offer = {"name": self.name, "description": inspect.getdoc(function) or self.name, "inputSchema": schema, "expose": True}
        result = _schema(hints.get("return"))
        self._wrapped = bool(result) and result.get("type") != "object"
        if self._wrapped:
            result = {"type": "object", "properties": {"result": result}, "required": ["result"], "x-fastmcp-wrap-result": True}
        if result:
            self.offer["outputSchema"] = result

    def call(self, arguments):
        value = self._function(**arguments)
        return {"result": value} if self._wrapped else value


def _schema(hint):
    """Return the JSON Schema of a type hint. Hints that have no simple schema permit every value."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    simple = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}
    if origin in (list, dict) and len(arguments) == (1 if origin is list else 2):
        of = _schema(arguments[-1])
        return {"type": "array", "items": of} if origin is list else {"type": "object", "additionalProperties": of}
    if origin is typing.Union and all(_schema(a) for a in arguments):
        return {"anyOf": [_schema(a) for a in arguments]}
    kind = simple.get(hint) or simple.get(origin)
    return {"type": kind} if kind else {}


def _events(response):
    """Yield the data of server-sent events."""
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def _text_of(e):
    """Return the type and the text of an exception. The text may be that of a class which fails to make it."""
    try:
        return f"{type(e).__name__}: {e}".encode(errors="backslashreplace").decode()
    except Exception:
        return type(e).__name__


def _is_no_http(e):
    """Report whether the server speaks another protocol. The error for a closed connection has the same base class."""
    return isinstance(e, http.client.BadStatusLine) and not isinstance(e, ConnectionError)


def _unreachable(url, e):
    """Return the error for a fleet that does not respond, with its cause and a hint."""
    if _is_no_http(e):
        return _unexpected("the server does not speak HTTP", 0)
    cause, hint = getattr(e, "reason", e), "check the address in CODEFLEET_URL or fleet.json, and the network"
    if isinstance(cause, ConnectionRefusedError):
        hint = "it does not run: start it with `codefleet up`, or set CODEFLEET_URL and CODEFLEET_TOKEN to another fleet"
    return FleetError(f"fleet at {url} cannot be reached: {cause}", hint=hint)


def _unexpected(text, status):
    """Return the error for a response that is not from a fleet."""
    return FleetError(text, status, "unexpected_response", "check the address of the fleet")


def _utf8(text, name):
    """Encode text as UTF-8. A lone surrogate is an error, because to replace it would change the text. Errors begin with
    the name of the text."""
    try:
        return text.encode()
    except UnicodeEncodeError as e:
        raise FleetError(f"{name} cannot be encoded: it has a lone surrogate, {text[e.start]!a}, at character {e.start}", 400, "bad_text",
                         "Python decodes bytes that are not UTF-8 to surrogates; write_file also accepts bytes") from None


def _skill(name):
    """Return the name of a skill, which may be given as programs import it: double_number for double-number."""
    return name.replace("_", "-")


def _path(*parts):
    """Return the path of a request. The last part may contain slashes. Empty names, "." and ".." are errors."""
    if any(name in ("", ".", "..") for part in parts for name in part.split("/")):
        raise FleetError(f"{'/'.join(parts)!r} is not a valid path", 400, "bad_path", "use a relative path without empty names, . and ..", "path")
    _utf8("".join(parts), "the path")
    *names, last = parts
    return "/v1/" + "/".join([urllib.parse.quote(name, safe="") for name in names] + [urllib.parse.quote(last)])


def _outcome(record):
    """Return (result, output, error) of a task that has ended."""
    result = record["result"]
    status = _RESULTS.get(record["status"], ExecutionResult.FAILURE)
    value = Result(status, result.get("result"), result["output"], record)
    if record["status"] == "succeeded":
        return value, result["output"], None
    detail = result.get("error") or {}
    return value, result["output"], detail.get("message") or f"the task ended {record['status']}"


def _print(record, result, output, error):
    code = ((record or {}).get("result") or {}).get("code")
    for number, line in enumerate((code or "").splitlines(), 1):
        print(f"{number:4} | {line}")
    print(f"Status: {result.status}")
    if output:
        print(f"Output:\n{output}", end="" if output.endswith("\n") else "\n")
    if error:
        print(f"Error: {error}")


def _refusal(e, url):
    """Return the FleetError for a response with an error status."""
    content = b""
    try:
        content = e.read()
        body = json.loads(content)
        text = ": ".join(filter(None, (body["message"], body.get("cause"))))
        return FleetError(text, e.code, body["code"], body.get("hint", ""), body.get("path", ""))
    except (ValueError, RecursionError, KeyError, TypeError, OSError):
        if e.code == 400 and url.startswith("http:") and b"HTTPS" in content:
            return _wrong_scheme(url, "https")
        return _unexpected(f"the response is {e.code}, which is not from a fleet", e.code)


def _wrong_scheme(url, scheme):
    """Return the error for a server that speaks a scheme other than the URL's."""
    used, rest = url.split("://", 1)
    return FleetError(f"the server speaks {scheme.upper()}, not {used.upper()}", 400, "unexpected_response", f"use the address {scheme}://{rest}")


_EVENT_HEADERS = {"Content-Type": "application/cloudevents+json"}


def _event(event):
    return _utf8(json.dumps(event, ensure_ascii=False), "the event")


def _seconds(text):
    """Return the value of a Retry-After header, or 0 if it is absent or a date."""
    try:
        return max(0.0, float(text))
    except (TypeError, ValueError):
        return 0.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None  # a fleet does not redirect, and the token must not be sent to another server


def _address(url):
    """Return the address of a fleet without a slash at its end."""
    with contextlib.suppress(ValueError):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "@" not in url:
            return url.rstrip("/")
    shown = "…@" + url.rpartition("@")[2] if "@" in url else url
    raise FleetError(f"fleet address {shown!r}: want http:// or https:// and a host, without a user, "
                     "and a port from 1 to 65535 if any", code="no_fleet",
                     hint="pass the token as token, or in CODEFLEET_TOKEN" if "@" in url else "")


def _token(token):
    """Return a token without a newline at its end. Other control characters are an error: a request cannot carry them."""
    token = token.rstrip("\r\n") if token else token
    if token and any(c < " " or c == "\x7f" for c in token):
        raise FleetError("the token of the fleet contains a newline or another control character", code="no_fleet",
                         hint="check token, CODEFLEET_TOKEN or fleet.json")
    return token


def _opener(url):
    """Return a function that opens requests. It ignores proxies for a fleet on this machine."""
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
    """Return the URL and the token of the fleet that a fleet.json or the environment names."""
    path = path or os.environ.get("CODEFLEET_FLEET")
    if not path and os.environ.get("CODEFLEET_URL"):
        return os.environ["CODEFLEET_URL"], os.environ.get("CODEFLEET_TOKEN")
    if not path:
        data = os.environ.get("CODEFLEET_DATA")
        base = os.environ.get("XDG_DATA_HOME", "")
        if not os.path.isabs(base):  # the specification says to ignore relative paths
            base = os.path.join(os.path.expanduser("~"), ".local", "share")
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
