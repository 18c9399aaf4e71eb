"""The task's session for programs, which import this as client.session.

    from client.session import checkpoint, resume

    done = resume()                          # the session's newest checkpoint, or None
    step = done["step"] + 1 if done else 1
    ...
    checkpoint(step=step, context="Working on data analysis")

A checkpoint says how far the work is. It is kept if and only if the task's changes to the workspace are committed: put
data into files of the workspace, and their names into the checkpoint.
"""

import json

from codefleet import jsonable

LIMIT = 16 << 10  # bytes of a checkpoint as JSON
LEVELS = 64  # of arrays and objects: executor.maxResultDepth on the host

name = None  # of the task's session
saved = None  # the program's last checkpoint, as JSON
_file = None  # path of the session's log, absolute because programs change the working directory


def checkpoint(data=None, /, **fields):
    """Sets the session's checkpoint: a dictionary, or keyword arguments. The last one of a task counts."""
    global saved
    _need_session()
    value = {**(data or {}), **fields}
    text = json.dumps(value, allow_nan=False)
    text = json.dumps(jsonable.load_kept(text, LEVELS))  # each name once, although {1: "a", "1": "b"} has two keys
    if len(text) > LIMIT:
        message = "the checkpoint is %d bytes of JSON; the limit is %d: put data into files of the workspace"
        raise ValueError(message % (len(text), LIMIT))
    saved = text


def resume():
    """Returns the session's newest checkpoint: this task's if it has set one, or else an earlier task's, or None."""
    _need_session()
    return json.loads(saved) if saved else log()["checkpoint"]


def log():
    """Returns the session's log: its earlier tasks, their code, results and output, and the newest checkpoint."""
    _need_session()
    with open(_file, encoding="utf-8") as file:
        return json.load(file)


def _need_session():
    if name is None:
        raise RuntimeError("this task has no session: submit it with a session's name")
