"""Reads files of the workspace."""

from __future__ import annotations

from typing import Optional

from ._paths import resolve


def read_file(path: str, encoding: Optional[str] = None) -> str:
    """Read the contents of a file.

    Effects: read-only; runs in the sandbox.

    Args:
        path: the file, relative to the workspace.
        encoding: of the text; UTF-8 when not given.

    Returns:
        The whole text, line ends as they are.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError, UnicodeDecodeError, LookupError.
    """
    with open(resolve(path), encoding=encoding or "utf-8", newline="") as file:
        return file.read()
