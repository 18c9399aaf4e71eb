# codefleet: {"generator":1,"server":"weather","tool":"get_forecast","function":"get_forecast","hash":"sha256:a97aa7e4ace0e8b2fb28504d8ecd6762a14180027f1fb91173a287dc3ec796ce","server_version":"weather 1.0.0","signature":"get_forecast(location: str, days: int = UNSET, units: Literal[\"celsius\", \"fahrenheit\"] = UNSET) -> GetForecastResult","body":"81d1b991895f6aa014202d3e9b3d0059"}
"""weather/get_forecast: Get weather forecast for a location."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict

from client.mcp_client import call_mcp_tool
from servers import UNSET, tool

DEFINITION = "sha256:a97aa7e4ace0e8b2fb28504d8ecd6762a14180027f1fb91173a287dc3ec796ce"


class GetForecastResultForecastItem(TypedDict):
    condition: str
    date: str
    high: int  # in the unit
    low: int  # in the unit
    precipitation_chance: int  # percent


class GetForecastResult(TypedDict):
    forecast: List[GetForecastResultForecastItem]
    location: str
    source: Literal["live", "sample"]  # live, or sample: made up from the location and the date
    unit: Literal["celsius", "fahrenheit"]


@tool
def get_forecast(
    location: str,
    days: int = UNSET,
    units: Literal["celsius", "fahrenheit"] = UNSET,
) -> GetForecastResult:
    """Get weather forecast for a location.

    Effects, as the server declares them: read-only; may reach the outside world.

    Args:
        location: City, as in San Francisco, CA; length 1 or more; length 200 or less.
        days: Days to forecast, today the first; at least 1; at most 16; default 5.
        units: Unit of temperatures; default "celsius".

    Returns:
        an object with forecast, location, source, unit

    Raises:
        ToolError: the call was rejected or could not be made, or the tool failed.
    """
    arguments: Dict[str, Any] = {"location": location}
    if days is not UNSET:
        arguments["days"] = days
    if units is not UNSET:
        arguments["units"] = units
    return call_mcp_tool("weather", "get_forecast", arguments, DEFINITION)
