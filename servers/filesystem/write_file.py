"""Writes files of the workspace."""

from __future__ import annotations

import os
from typing import Optional, TypedDict

from ._paths import relative, resolve


class WriteFileResult(TypedDict):
    path: str
    bytes_written: int
    success: bool


def write_file(path: str, content: str, encoding: Optional[str] = None) -> WriteFileResult:
    """Write content to a file.

    Effects: replaces the file and creates missing directories; runs in the box.

    Args:
        path: the file, relative to the workspace.
        content: the whole text; line ends are written as they are.
        encoding: of the text; the default is UTF-8.

    Returns:
        path, bytes_written and success, which is always True, because a failure raises an error.

    Raises:
        IsADirectoryError, PermissionError, UnicodeEncodeError, LookupError.
    """
    full = resolve(path)
    data = content.encode(encoding or "utf-8")
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "wb") as file:
        file.write(data)
    return {"path": relative(full), "bytes_written": len(data), "success": True}
