"""Shows what is in the workspace's database."""

from __future__ import annotations

from typing import List

from ._connection import connect, tables


def list_tables() -> List[str]:
    """List all tables in the database.

    Effects: read-only; runs in the sandbox, on SQLite's file database.sqlite of the workspace.

    Returns:
        The names of tables and views, sorted; none while there is no database.
    """
    connection = connect(write=False)
    try:
        return tables(connection)
    finally:
        connection.close()
