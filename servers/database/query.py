"""Reads from the workspace's database."""

from __future__ import annotations

import sqlite3
from typing import Any, Dict, List

from ._connection import Parameters, connect, explained


def query(sql: str, parameters: Parameters = None) -> List[Dict[str, Any]]:
    """Execute a SQL query on the database.

    Effects: read-only; runs in the box, on the SQLite file database.sqlite in the workspace.

    Args:
        sql: one statement, such as SELECT * FROM users WHERE age > ?
        parameters: a list for ?, or a mapping for :name.

    Returns:
        The rows, each a dictionary from column to value.

    Raises:
        sqlite3.Error: the statement is wrong, or changes data.
    """
    connection = connect(write=False)
    try:
        connection.row_factory = sqlite3.Row
        cursor = connection.execute(sql, parameters if parameters is not None else ())
        return [dict(row) for row in cursor.fetchall()]
    except sqlite3.Error as error:
        raise explained(error, connection) from None
    finally:
        connection.close()
