"""The paths that the tools of this server accept."""

from __future__ import annotations

import os


def workspace() -> str:
    """Returns the directory of relative paths."""
    return os.environ.get("CODEFLEET_WORKSPACE", "/workspace")


def resolve(path: str) -> str:
    """Returns the absolute path, with symbolic links resolved. A path outside of the workspace and /tmp raises
    PermissionError."""
    if not isinstance(path, str):
        raise TypeError("path must be a str, not %s" % type(path).__name__)
    full = os.path.realpath(os.path.join(workspace(), path))
    for root in (workspace(), "/tmp"):
        root = os.path.realpath(root)
        if full == root or full.startswith(root.rstrip("/") + "/"):
            return full
    raise PermissionError("%s is outside of the workspace (%s)" % (path, workspace()))


def relative(full: str) -> str:
    """Returns the path relative to the workspace, if it is in the workspace."""
    root = os.path.realpath(workspace())
    return os.path.relpath(full, root) if (full + "/").startswith(root + "/") else full
