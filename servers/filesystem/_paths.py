"""Where the tools of this server look for files."""

from __future__ import annotations

import os


def workspace() -> str:
    """The directory that relative paths start from."""
    return os.environ.get("CODEFLEET_WORKSPACE", "/workspace")


def resolve(path: str) -> str:
    """Returns the absolute path, links followed. Outside of the workspace and /tmp nothing is kept,
    so that such a path is a mistake: it raises PermissionError."""
    if not isinstance(path, str):
        raise TypeError("path is a text, not %s" % type(path).__name__)
    full = os.path.realpath(os.path.join(workspace(), path))
    for root in (workspace(), "/tmp"):
        root = os.path.realpath(root)
        if full == root or full.startswith(root.rstrip("/") + "/"):
            return full
    raise PermissionError("%s is outside of the workspace (%s)" % (path, workspace()))


def shown(full: str) -> str:
    """The path as a caller would give it: relative where it is in the workspace."""
    root = os.path.realpath(workspace())
    return os.path.relpath(full, root) if (full + "/").startswith(root + "/") else full
