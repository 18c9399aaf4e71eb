# codefleet: package
"""Tools on the task's workspace: filesystem."""

from typing import TYPE_CHECKING

from servers import package

if TYPE_CHECKING:
    from .list_directory import list_directory as list_directory
    from .read_file import read_file as read_file
    from .write_file import write_file as write_file

__all__ = [
    "list_directory",
    "read_file",
    "write_file",
]

_names: "dict[str, str]" = {}

package(__name__, {
    "list_directory": "list_directory",
    "read_file": "read_file",
    "write_file": "write_file",
})
