"""The client of the box, for tests: calls go out on one descriptor, answers come in on another."""

import json
import os

_calls = os.fdopen(int(os.environ["CALLS"]), "w") if "CALLS" in os.environ else None
_answers = os.fdopen(int(os.environ["ANSWERS"])) if "ANSWERS" in os.environ else None


class ToolError(Exception):
    pass


def call_mcp_tool(server, tool, arguments, hash=""):
    print(json.dumps({"server": server, "tool": tool, "arguments": arguments, "hash": hash}), file=_calls, flush=True)
    answer = json.loads(_answers.readline())
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer["value"]


def report_call(server, tool, ms, ok):
    pass
