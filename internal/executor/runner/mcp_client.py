"""Tool calls for programs, which import this as client.mcp_client.

    from client.mcp_client import call_mcp_tool, parallel, with_content, ToolError

Each call is sent to the fleet, which checks it, makes it, and returns the result.

A tool's function returns the structured content of the tool's result or, if there is none, its content: text as a
string, JSON decoded, images and other files as {"path": ..., "media_type": ..., "bytes": ...}. If a tool returns
other text or files in addition to structured content, with_content returns both:

    from servers.maps import show_map
    place, content = with_content(show_map, "Oslo")

A tool's error has both as error.structured and error.content.
"""

import contextvars
import threading


class ToolError(Exception):
    """A tool call was refused, or the tool returned an error. code is one of:
    tool_failed, unknown, bad_arguments, forbidden, approval_required, tool_changed, over_budget, in_doubt,
    unavailable, timeout, result_too_large, internal.

    structured is the structured content that the tool sent with its error, or None. content is the list of its
    content blocks, in the form that with_content returns. structured is None and content is empty unless the tool
    itself failed, or its result does not match its output schema."""

    def __init__(self, server, tool, message, code="internal", structured=None, content=None):
        super().__init__("%s.%s: %s" % (server, tool, message))
        self.server, self.tool, self.message, self.code = server, tool, message, code
        self.structured, self.content = structured, content or []

    def __reduce__(self):
        return ToolError, (self.server, self.tool, self.message, self.code, self.structured, self.content)


def call_mcp_tool(server, tool, arguments=None, hash=""):
    """Calls a tool and returns its result. Raises ToolError. May be called from several threads.

    arguments is a mapping that can be encoded as JSON. hash identifies the definition from which the calling
    module was generated.
    """
    if _call is None:
        message = "only the main process of the program can call tools, in any of its threads; forked processes cannot"
        raise ToolError(server, tool, message, "forbidden")
    value, content = _call(str(server), str(tool), arguments or {}, str(hash or ""))
    collected = _collected.get()
    if collected is not None:
        collected.extend(content)
    return value


def with_content(function, /, *args, **kwargs):
    """Calls a function and returns (its result, a list of what tools returned in addition to structured content).

    Each element of the list is a string, the value of a text that is a JSON object or list, a dictionary with "path",
    "media_type" and "bytes" for an image or another file, or a dictionary with "uri", "name" and "media_type" for a
    link. A text that only repeats the structured content is left out. The list has the content of all calls that the
    function makes, including those in the threads of parallel(), in the order in which they completed.
    """
    content = []
    token = _collected.set(content)
    try:
        return function(*args, **kwargs), content
    finally:
        _collected.reset(token)


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
        helper = threading.Thread(target=contextvars.copy_context().run, args=(work,))
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


_collected = contextvars.ContextVar("collected", default=None)  # the list of the innermost with_content
_call = _report = None  # set in a program's process
