# codefleet: package
"""Tools of the MCP server weather."""

from typing import TYPE_CHECKING

from servers import package

if TYPE_CHECKING:
    from .get_forecast import get_forecast as get_forecast
    from .get_weather import get_weather as get_weather

__all__ = [
    "get_forecast",
    "get_weather",
]

_names: "dict[str, str]" = {}

package(__name__, {
    "get_forecast": "get_forecast",
    "get_weather": "get_weather",
})
