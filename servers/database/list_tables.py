"""Shows what is in the workspace's database."""

from __future__ import annotations

from typing import List

from ._connection import connect, tables


def list_tables() -> List[str]:
    """List all tables in the database.

    Effects: read-only; runs in the box, on the SQLite file database.sqlite in the workspace.

    Returns:
        The sorted names of tables and views. The list is empty if there is no database.
    """
    connection = connect(write=False)
    try:
        return tables(connection)
    finally:
        connection.close()
