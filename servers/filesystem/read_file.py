"""Reads files of the workspace."""

from __future__ import annotations

from typing import Optional

from ._paths import resolve


def read_file(path: str, encoding: Optional[str] = None) -> str:
    """Read the contents of a file.

    Effects: read-only; runs in the box.

    Args:
        path: the file, relative to the workspace.
        encoding: of the text; the default is UTF-8.

    Returns:
        The whole text, with its line ends unchanged.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError, UnicodeDecodeError, LookupError.
    """
    with open(resolve(path), encoding=encoding or "utf-8", newline="") as file:
        return file.read()
