# codefleet: {"generator":1,"server":"weather","tool":"get_weather","function":"get_weather","hash":"sha256:03ede4421fb412e7fabcb340c30375b070b153761ddc66d0b6118a37552083ee","server_version":"weather 1.0.0","signature":"get_weather(location: str, units: Literal[\"celsius\", \"fahrenheit\"] = UNSET) -> GetWeatherResult","body":"78f431a95d8602c147174e1a0853fb7b"}
"""weather/get_weather: Get current weather information for a location."""

from __future__ import annotations

from typing import Any, Dict, Literal, TypedDict

from client.mcp_client import call_mcp_tool
from servers import UNSET, tool

DEFINITION = "sha256:03ede4421fb412e7fabcb340c30375b070b153761ddc66d0b6118a37552083ee"


class GetWeatherResult(TypedDict):
    condition: str
    humidity: int  # percent
    location: str
    source: Literal["live", "sample"]  # live, or sample: made up from the location and the date
    temperature: int  # in the unit
    timestamp: str
    unit: Literal["celsius", "fahrenheit"]
    wind_speed: float  # km/h


@tool
def get_weather(location: str, units: Literal["celsius", "fahrenheit"] = UNSET) -> GetWeatherResult:
    """Get current weather information for a location.

    Effects, as the server declares them: read-only; may reach the outside world.

    Args:
        location: City, as in San Francisco, CA; length 1 or more; length 200 or less.
        units: Unit of temperatures; default "celsius".

    Returns:
        an object with condition, humidity, location, source, temperature, timestamp, unit, wind_speed

    Raises:
        ToolError: the call was rejected or could not be made, or the tool failed.
    """
    arguments: Dict[str, Any] = {"location": location}
    if units is not UNSET:
        arguments["units"] = units
    return call_mcp_tool("weather", "get_weather", arguments, DEFINITION)
