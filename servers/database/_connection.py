"""The workspace's SQLite database: one file, /workspace/database.sqlite."""

from __future__ import annotations

import os
import sqlite3
from typing import Any, List, Mapping, Optional, Sequence, Union

Parameters = Optional[Union[Sequence[Any], Mapping[str, Any]]]


def path() -> str:
    return os.path.join(os.environ.get("CODEFLEET_WORKSPACE", "/workspace"), "database.sqlite")


def connect(write: bool) -> sqlite3.Connection:
    """Opens the database. If it does not exist, reading does not create it, but opens an empty one."""
    if not write and not os.path.exists(path()):
        return sqlite3.connect(":memory:")
    connection = sqlite3.connect(path(), timeout=30)
    if not write:
        connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def tables(connection: sqlite3.Connection) -> List[str]:
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    )
    return [row[0] for row in rows]


def explained(error: sqlite3.Error, connection: sqlite3.Connection) -> sqlite3.Error:
    """Returns the error, with the names of the tables if the statement uses a missing one."""
    text = str(error)
    if text.startswith("no such table"):
        names = ", ".join(tables(connection))
        text += "; tables: " + names if names else "; the database has no tables"
    elif "attempt to write a readonly database" in text or "query_only" in text:
        text = "query only reads; use execute to change data"
    return type(error)(text)
