"""Tools from inside a program. Programs import this as client.mcp_client.

    from client.mcp_client import call_mcp_tool, parallel, ToolError

The program has no other way to the outside: each call travels to the fleet, which checks it, makes
it, and sends the answer.
"""

import threading


class ToolError(Exception):
    """A tool call was refused, or the tool answered with an error; code says which of these it was:
    tool_failed, unknown, bad_arguments, forbidden, approval_required, tool_changed, over_budget, in_doubt,
    unavailable, timeout, result_too_large, internal."""

    def __init__(self, server, tool, message, code="internal"):
        super().__init__("%s.%s: %s" % (server, tool, message))
        self.server, self.tool, self.message, self.code = server, tool, message, code

    def __reduce__(self):
        return ToolError, (self.server, self.tool, self.message, self.code)


def call_mcp_tool(server, tool, arguments=None, hash=""):
    """Calls a tool and returns its result. Raises ToolError. May be called from several threads.

    arguments is a mapping that has a JSON form. hash is the definition the caller was written for.
    """
    if _call is None:
        raise ToolError(server, tool, "only the process of the program itself calls tools, in any of its threads; not one that it forked", "forbidden")
    return _call(str(server), str(tool), arguments or {}, str(hash or ""))


def report_call(server, tool, ms, ok):
    """Tells the fleet of a call of a tool that runs in here, so that the result lists it."""
    if _report is not None:
        _report(str(server), str(tool), float(ms), bool(ok))


def parallel(calls, limit=16):
    """Calls functions of no arguments at the same time, at most limit of them, in threads.

    Returns their results in the order of the functions. When some raise, the exception of the first
    of those is raised after all have ended.
    """
    calls = list(calls)
    results, errors = [None] * len(calls), [None] * len(calls)
    waiting = iter(range(len(calls)))
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                index = next(waiting, None)
            if index is None:
                return
            try:
                results[index] = calls[index]()
            except BaseException as error:
                errors[index] = error

    helpers = []
    for _ in range(min(limit, len(calls)) - 1):
        helper = threading.Thread(target=work)
        try:
            helper.start()
        except RuntimeError:  # a program may have so many threads: those that there are do it
            break
        helpers.append(helper)
    work()
    for helper in helpers:
        helper.join()
    for error in errors:
        if error is not None:
            raise error
    return results


_call = _report = None  # set in the process of a program
