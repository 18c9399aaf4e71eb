# codefleet: package
"""Tools of the MCP server calculator."""

from typing import TYPE_CHECKING

from servers import package

if TYPE_CHECKING:
    from .add import add as add
    from .calculate import calculate as calculate
    from .multiply import multiply as multiply

__all__ = [
    "add",
    "calculate",
    "multiply",
]

_names: "dict[str, str]" = {}

package(__name__, {
    "add": "add",
    "calculate": "calculate",
    "multiply": "multiply",
})
