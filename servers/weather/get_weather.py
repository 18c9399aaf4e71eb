# codefleet: {"generator":1,"server":"weather","tool":"get_weather","function":"get_weather","hash":"sha256:841cb11045a1b302809e087abd1c0ed54999b78e3ab36676951b8af8267dac0b","server_version":"weather 1.0.0","signature":"get_weather(location: str, units: Literal[\"celsius\", \"fahrenheit\"] = UNSET) -> GetWeatherResult","body":"dc054e022dec56254dfbab8657e04abd"}
"""weather/get_weather: Get current weather information for a location."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict

from client.mcp_client import call_mcp_tool
from servers import UNSET, tool

DEFINITION = "sha256:841cb11045a1b302809e087abd1c0ed54999b78e3ab36676951b8af8267dac0b"


class _GetWeatherResult(TypedDict):
    condition: str
    humidity: int  # percent
    location: str
    source: Literal["open-meteo", "sample"]  # open-meteo, or sample: made up from the location and the date
    temperature: int  # in the unit
    timestamp: str
    unit: Literal["celsius", "fahrenheit"]
    wind_speed: float  # km/h


class GetWeatherResult(_GetWeatherResult, total=False):
    other_places: List[str]  # places of the same name that were not chosen
    place: str  # the place that open-meteo found, with region and country


@tool
def get_weather(location: str, units: Literal["celsius", "fahrenheit"] = UNSET) -> GetWeatherResult:
    """Get current weather information for a location.

    Effects, as the server declares them: read-only; may reach the outside world.

    Args:
        location: City, as in San Francisco, CA; length 1 or more; length 200 or less.
        units: Unit of temperatures; default "celsius".

    Returns:
        an object with condition, humidity, location, other_places, place, source, temperature, timestamp, unit, wind_speed

    Raises:
        ToolError: the call was rejected or could not be made, or the tool failed.
    """
    arguments: Dict[str, Any] = {"location": location}
    if units is not UNSET:
        arguments["units"] = units
    return call_mcp_tool("weather", "get_weather", arguments, DEFINITION)
