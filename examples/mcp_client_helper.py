"""Lets each example run in two ways: with the Python client, and with MCP_MODE=true as a client of the MCP server.

`create_agent` and `execute_task` are those of code_execution_mcp, or have the same results over MCP. Each example has a
workspace of its own, so that it finds no files of others. The environment variable EXAMPLE_WORKSPACE replaces it.
"""

import json
import os
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients", "python"))
sys.dont_write_bytecode = True

import code_execution_mcp
from code_execution_mcp import ExecutionResult, Result

MCP_MODE = os.environ.get("MCP_MODE", "").lower() in ("1", "true", "yes")
NAME = os.path.splitext(os.path.basename(sys.argv[0]))[0].replace("_", "-") or "examples"


def create_agent(**options):
    """Return an agent of the fleet, whose tasks use the example's workspace."""
    options.setdefault("workspace", os.environ.get("EXAMPLE_WORKSPACE") or "example-" + NAME)
    agent = code_execution_mcp.create_agent(**options)
    return MCPAgent(*agent.address(), options["workspace"], options.get("session")) if MCP_MODE else agent


def execute_task(task_description, **options):
    return create_agent(**options).execute_task(task_description)


class MCPClient:
    """A minimal MCP client: over HTTP at a fleet's /mcp, or over the standard input and output of a command."""

    def __init__(self, url=None, token=None, command=None, env=None):
        self._url, self._token, self._session, self._last = url, token, None, 0
        self._process = command and subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "examples", "version": "1"}})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method, params=None):
        """Send a request and return its result."""
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params or {}}
        response = self._send(message, self._last)
        if "error" in response:
            raise RuntimeError(response["error"]["message"])
        return response["result"]

    def call_tool(self, name, arguments=None):
        """Call a tool and return its structured content."""
        result = self.request("tools/call", {"name": name, "arguments": arguments or {}})
        if "structuredContent" not in result:
            raise RuntimeError(result["content"][0]["text"])
        return result["structuredContent"]

    def close(self):
        if self._process:
            self._process.stdin.close()
            self._process.wait(30)
            self._process.stdout.close()

    def _send(self, message, id=None):
        if self._process:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
            return self._response(self._process.stdout, id)
        request = urllib.request.Request(self._url + "/mcp", json.dumps(message).encode(), {
            "Authorization": f"Bearer {self._token}", "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream"})
        if self._session:
            request.add_header("Mcp-Session-Id", self._session)
        with urllib.request.urlopen(request) as response:
            self._session = response.headers.get("Mcp-Session-Id") or self._session
            return self._response(response, id)

    def _response(self, lines, id):
        """Return the response to a request. The lines are JSON, or the data of server-sent events."""
        for line in lines if id else ():
            text = line.strip().removeprefix(b"data: ")
            message = json.loads(text) if text.startswith(b"{") else {}
            if message.get("id") == id and "method" not in message:
                return message
        return {}


class MCPAgent:
    """The methods of an agent that examples use, as calls of MCP tools."""

    def __init__(self, url, token, workspace, session=None):
        self.client, self._url, self._token = MCPClient(url, token), url, token
        self._where = {"workspace": workspace, **({"session": session} if session else {})}

    def address(self):
        return self._url, self._token

    def execute_task(self, task_description, verbose=False):
        return self._execute({"task_description": task_description, "verbose": verbose})

    def execute_code(self, code, inputs=None):
        return self._execute({"code": code, **({} if inputs is None else {"inputs": inputs})})

    def tools(self):
        return self.client.call_tool("list_available_tools")

    def get_state(self, state_file="state.json"):
        state = self.client.call_tool("get_state", {"state_file": state_file, "workspace": self._where["workspace"]})
        return state["data"] if state["exists"] else None

    def save_state(self, data, state_file="state.json"):
        return self.client.call_tool("save_state", {"state_data": data, "state_file": state_file, "workspace": self._where["workspace"]})

    def _execute(self, arguments):
        task = self.client.call_tool("execute_task", {**arguments, **self._where})
        while task.get("status") in ("queued", "running", "retry_wait"):
            task = self.client.call_tool("get_task", {"task_id": task["task_id"], "wait_ms": 25000})
        status = ExecutionResult.SUCCESS if task["success"] else ExecutionResult.FAILURE
        return Result(status, task["result"], task["output"], task), task["output"], task["error"]


def succeed(outcome):
    """Return the result of a task, or stop the example with its error."""
    result, output, error = outcome
    if error:
        sys.exit(f"{error}\n{output}")
    return result
