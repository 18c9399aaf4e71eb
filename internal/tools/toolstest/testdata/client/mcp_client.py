"""The client of the box, for tests: calls go out on one descriptor, responses come in on another."""

import json
import os

_calls = os.fdopen(int(os.environ["CALLS"]), "w") if "CALLS" in os.environ else None
_responses = os.fdopen(int(os.environ["RESPONSES"])) if "RESPONSES" in os.environ else None


class ToolError(Exception):
    pass


def call_mcp_tool(server, tool, arguments, hash=""):
    print(json.dumps({"server": server, "tool": tool, "arguments": arguments, "hash": hash}), file=_calls, flush=True)
    response = json.loads(_responses.readline())
    if "error" in response:
        raise ToolError(response["error"])
    return response["value"]


def report_call(server, tool, ms, ok):
    pass
