# codefleet: package
"""Tools on the task's workspace: database."""

from typing import TYPE_CHECKING

from servers import package

if TYPE_CHECKING:
    from .execute import execute as execute
    from .list_tables import list_tables as list_tables
    from .query import query as query

__all__ = [
    "execute",
    "list_tables",
    "query",
]

_names: "dict[str, str]" = {}

package(__name__, {
    "execute": "execute",
    "list_tables": "list_tables",
    "query": "query",
})
