"""The client of the box, for tests: calls go out on one descriptor, responses come in on another."""

import json
import os
import pathlib

_source = pathlib.Path(__file__).resolve().parents[4] / "executor" / "runner" / "mcp_client.py"
exec(compile(_source.read_text(), str(_source), "exec"))

_calls = os.fdopen(int(os.environ["CALLS"]), "w") if "CALLS" in os.environ else None
_responses = os.fdopen(int(os.environ["RESPONSES"])) if "RESPONSES" in os.environ else None


def _call(server, tool, arguments, definition):
    call = {"server": server, "tool": tool, "arguments": arguments, "hash": definition}
    print(json.dumps(call), file=_calls, flush=True)
    response = json.loads(_responses.readline())
    if "error" in response:
        error = response["error"]
        raise ToolError(server, tool, error["message"], error["code"], error.get("structured"), error.get("content"))
    return response["value"], response["content"] or []
