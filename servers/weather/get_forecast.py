# codefleet: {"generator":1,"server":"weather","tool":"get_forecast","function":"get_forecast","hash":"sha256:2edda94899eeec4f56a8fbbf1f7b969ffb30a15ba70349cad2294ca6a58e1083","server_version":"weather 1.0.0","signature":"get_forecast(location: str, days: int = UNSET, units: Literal[\"celsius\", \"fahrenheit\"] = UNSET) -> GetForecastResult","body":"2e7f6b57d854d054855a918ae3a8c5ac"}
"""weather/get_forecast: Get weather forecast for a location."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict

from client.mcp_client import call_mcp_tool
from servers import UNSET, tool

DEFINITION = "sha256:2edda94899eeec4f56a8fbbf1f7b969ffb30a15ba70349cad2294ca6a58e1083"


class GetForecastResultForecastItem(TypedDict):
    condition: str
    date: str
    high: int  # in the unit
    low: int  # in the unit
    precipitation_chance: int  # percent


class _GetForecastResult(TypedDict):
    forecast: List[GetForecastResultForecastItem]
    location: str
    source: Literal["open-meteo", "sample"]  # open-meteo, or sample: made up from the location and the date
    unit: Literal["celsius", "fahrenheit"]


class GetForecastResult(_GetForecastResult, total=False):
    other_places: List[str]  # places of the same name that were not chosen
    place: str  # the place that open-meteo found, with region and country


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
        an object with forecast, location, other_places, place, source, unit

    Raises:
        ToolError: the call was rejected or could not be made, or the tool failed.
    """
    arguments: Dict[str, Any] = {"location": location}
    if days is not UNSET:
        arguments["days"] = days
    if units is not UNSET:
        arguments["units"] = units
    return call_mcp_tool("weather", "get_forecast", arguments, DEFINITION)
