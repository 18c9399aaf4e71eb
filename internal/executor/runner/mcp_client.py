"""Tool calls for programs, which import this as client.mcp_client.

    from client.mcp_client import call_mcp_tool, parallel, ToolError

Each call is sent to the fleet, which checks it, makes it, and returns the result.
"""

import threading


class ToolError(Exception):
    """A tool call was refused, or the tool returned an error. code is one of:
    tool_failed, unknown, bad_arguments, forbidden, approval_required, tool_changed, over_budget, in_doubt,
    unavailable, timeout, result_too_large, internal."""

    def __init__(self, server, tool, message, code="internal"):
        super().__init__("%s.%s: %s" % (server, tool, message))
        self.server, self.tool, self.message, self.code = server, tool, message, code

    def __reduce__(self):
        return ToolError, (self.server, self.tool, self.message, self.code)


def call_mcp_tool(server, tool, arguments=None, hash=""):
    """Calls a tool and returns its result. Raises ToolError. May be called from several threads.

    arguments is a mapping that can be encoded as JSON. hash identifies the definition from which the calling
    module was generated.
    """
    if _call is None:
        message = "only the main process of the program can call tools, in any of its threads; forked processes cannot"
        raise ToolError(server, tool, message, "forbidden")
    return _call(str(server), str(tool), arguments or {}, str(hash or ""))


def report_call(server, tool, ms, ok):
    """Reports a call of a tool that runs in this process, so that the task's result lists it."""
    if _report is not None:
        _report(str(server), str(tool), float(ms), bool(ok))


def parallel(calls, limit=16):
    """Calls functions without arguments concurrently, at most limit at a time, in threads.

    Returns their results in the order of the functions. If functions raise, it raises the exception of the
    first of them, in that order, after all functions have ended.
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
        except RuntimeError:  # the thread limit is reached; the existing threads do the work
            break
        helpers.append(helper)
    work()
    for helper in helpers:
        helper.join()
    for error in errors:
        if error is not None:
            raise error
    return results


_call = _report = None  # set in a program's process
