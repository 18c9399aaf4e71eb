"""Lists directories of the workspace."""

from __future__ import annotations

import os
from typing import List, Optional, TypedDict

from ._paths import relative, resolve


class _ItemRequired(TypedDict):
    name: str  # relative to the listed directory
    type: str  # file | directory | other


class Item(_ItemRequired, total=False):
    size: int  # bytes; of files only


class ListDirectoryResult(TypedDict):
    path: str
    items: List[Item]
    recursive: bool


def list_directory(path: str, recursive: Optional[bool] = None) -> ListDirectoryResult:
    """List the contents of a directory.

    Effects: read-only; runs in the box. Links below the directory are not followed.

    Args:
        path: the directory, relative to the workspace; "." is the workspace itself.
        recursive: whether to list everything below the directory; the default is False.

    Returns:
        path, recursive, and items, sorted by name: each has name, type and, if it is a file, size in bytes.

    Raises:
        FileNotFoundError, NotADirectoryError, PermissionError.
    """
    full = resolve(path)
    items: List[Item] = []
    _collect(full, "", bool(recursive), items)
    items.sort(key=lambda item: item["name"])
    return {"path": relative(full), "items": items, "recursive": bool(recursive)}


def _collect(directory: str, prefix: str, recursive: bool, items: List[Item]) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                items.append({"name": name, "type": "directory"})
                if recursive:
                    _collect(entry.path, name + "/", True, items)
            elif entry.is_file(follow_symlinks=False):
                items.append({"name": name, "type": "file", "size": entry.stat(follow_symlinks=False).st_size})
            else:
                items.append({"name": name, "type": "other"})
