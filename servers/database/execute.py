"""Changes the workspace's database."""

from __future__ import annotations

import sqlite3
from typing import Optional, TypedDict

from ._connection import Parameters, connect, explained


class ExecuteResult(TypedDict):
    rows_affected: int
    last_insert_id: Optional[int]


def execute(sql: str, parameters: Parameters = None) -> ExecuteResult:
    """Execute a SQL statement (INSERT, UPDATE, DELETE) on the database.

    Effects: changes data; runs in the box, on the SQLite file database.sqlite in the workspace,
    which is created when it is first needed. CREATE, ALTER and DROP are possible too. The statement
    takes effect as a whole or not at all.

    Args:
        sql: one statement, such as INSERT INTO users (name) VALUES (?)
        parameters: a list for ?, or a mapping for :name.

    Returns:
        rows_affected, and last_insert_id: the row id of an INSERT, else None.

    Raises:
        sqlite3.Error: the statement is wrong, or a constraint of the data forbids it.
    """
    connection = connect(write=True)
    try:
        with connection:
            cursor = connection.execute(sql, parameters if parameters is not None else ())
            words = sql.split(None, 1)
            inserted = bool(words) and words[0].upper() in ("INSERT", "REPLACE") and cursor.rowcount > 0
            return {"rows_affected": max(cursor.rowcount, 0), "last_insert_id": cursor.lastrowid if inserted else None}
    except sqlite3.Error as error:
        raise explained(error, connection) from None
    finally:
        connection.close()
